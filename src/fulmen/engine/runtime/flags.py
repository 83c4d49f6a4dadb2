"""The arguments of a Trainer, each checked on its own: type, range, and what excludes what."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from fulmen.utilities.durations import read_duration
from fulmen.utilities.retry import RetryPolicy


def _fail(name: str, value: Any, must: str, *, kind: type[MisconfigurationException]) -> MisconfigurationException:
    return kind(f"Trainer({name}={value!r}): must be {must}.")


def boolean(name: str, value: Any, *, none: bool = False) -> None:
    """A bool, or `None` where that means the default."""
    if not (isinstance(value, bool) or (none and value is None)):
        raise _fail(name, value, "True or False" + (", or None" if none else ""), kind=ArgumentTypeError)


def integer(name: str, value: Any, *, least: int, none: bool = False, extra: str = "") -> None:
    """An int of at least `least`."""
    if value is None and none:
        return
    must = f"an int of at least {least}" + extra + (" or None" if none else "")
    if isinstance(value, bool) or not isinstance(value, int):
        raise _fail(name, value, must, kind=ArgumentTypeError)
    if value < least:
        raise _fail(name, value, must, kind=ArgumentValueError)


def share(name: str, value: Any, *, none: bool = True) -> None:
    """A number of batches (int of at least 0) or a share of them (float from 0.0 to 1.0)."""
    must = "an int of at least 0 (batches) or a float from 0.0 to 1.0 (share of the batches)"
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _fail(name, value, must, kind=ArgumentTypeError)
    # A whole float above 1 is a number of batches, as 2.0 in a configuration file.
    if value < 0 or (isinstance(value, float) and not (0.0 <= value <= 1.0 or value.is_integer())):
        raise _fail(name, value, must, kind=ArgumentValueError)


def choice(name: str, value: Any, options: tuple[Any, ...], *, of: tuple[type, ...] = (str,)) -> None:
    """One of some values."""
    must = "one of " + ", ".join(map(repr, options))
    if not isinstance(value, of):
        raise _fail(name, value, must, kind=ArgumentTypeError)
    if value not in options:
        raise _fail(name, value, must, kind=ArgumentValueError)


OFF_IN_BAREBONES = (
    "enable_checkpointing",
    "enable_progress_bar",
    "enable_model_summary",
    "logger",
    "log_every_n_steps",
    "num_sanity_val_steps",
    "fast_dev_run",
    "detect_anomaly",
    "profiler",
)
"""What `barebones` switches off, and excludes."""


@dataclass
class TrainerFlags:
    """All arguments of `Trainer` as given; see there for what they mean."""

    accelerator: Any = "auto"
    strategy: Any = "auto"
    devices: Any = "auto"
    num_nodes: int = 1
    precision: Any = None
    logger: Any = None
    callbacks: Any = None
    fast_dev_run: int | bool = False
    max_epochs: int | None = None
    min_epochs: int | None = None
    max_steps: int = -1
    min_steps: int | None = None
    max_time: Any = None
    limit_train_batches: int | float | None = None
    limit_val_batches: int | float | None = None
    limit_test_batches: int | float | None = None
    limit_predict_batches: int | float | None = None
    overfit_batches: int | float = 0.0
    val_check_interval: Any = None
    check_val_every_n_epoch: int | None = 1
    num_sanity_val_steps: int | None = None
    log_every_n_steps: int | None = None
    enable_checkpointing: bool | None = None
    enable_progress_bar: bool | None = None
    enable_model_summary: bool | None = None
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = None
    gradient_clip_algorithm: str | None = None
    deterministic: Any = None
    benchmark: bool | None = None
    inference_mode: bool = True
    use_distributed_sampler: bool = True
    profiler: Any = None
    detect_anomaly: bool = False
    barebones: bool = False
    plugins: Any = None
    sync_batchnorm: bool = False
    reload_dataloaders_every_n_epochs: int = 0
    default_root_dir: Any = None
    enable_autolog_hparams: bool = True
    model_registry: str | None = None
    policy: Any = None
    retry: Any = None
    accumulate_normalize: Any = None
    skip_bad_batches: Any = False
    on_oom: Any = None

    def check(self) -> None:
        """Check every argument on its own, then those that exclude each other.

        Raises:
            ArgumentTypeError: For a wrong type.
            ArgumentValueError: For a value out of range.
            MisconfigurationException: For arguments that cannot go together.
        """
        for name, check in _CHECKS.items():
            check(name, getattr(self, name))
        self._check_together()

    def _check_together(self) -> None:
        if self.barebones:
            for name in OFF_IN_BAREBONES:
                if getattr(self, name):
                    raise MisconfigurationException(
                        f"Trainer(barebones=True, {name}={getattr(self, name)!r}): barebones switches it off; leave "
                        "one of them out."
                    )
        self._check_limits()
        if self.overfit_batches and self.fast_dev_run:
            raise MisconfigurationException("Trainer(overfit_batches=..., fast_dev_run=...): set one of them only.")
        if self.check_val_every_n_epoch is None and isinstance(self.val_check_interval, float):
            raise MisconfigurationException(
                f"Trainer(val_check_interval={self.val_check_interval}, check_val_every_n_epoch=None): a share of an "
                "epoch makes no sense when batches are counted over epochs; give val_check_interval as an int."
            )

    def _check_limits(self) -> None:
        for unit in ("epochs", "steps"):
            check_order(unit, getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}"))


def _limit_check(name: str, value: Any) -> None:
    share(name, value)


def _sanity(name: str, value: Any) -> None:
    integer(name, value, least=-1, none=True, extra=" (-1: all batches)")


def _max_epochs(name: str, value: Any) -> None:
    integer(name, value, least=-1, none=True, extra=" (-1: no limit)")


def _max_steps(name: str, value: Any) -> None:
    integer(name, value, least=-1, extra=" (-1: no limit)")


def _at_least(least: int, *, none: bool = False) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        integer(name, value, least=least, none=none)

    return check


def _flag(*, none: bool = False) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        boolean(name, value, none=none)

    return check


def _fast_dev_run(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        integer(name, value, least=0, extra=" (batches), or a bool")


def _interval(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, (str, dict, timedelta)):
        value = read_duration(value, f"Trainer({name}={value!r})")
    else:
        share(name, value, none=False)
    if not value:
        raise _fail(
            name, value, "more than 0; to switch validation off set limit_val_batches=0", kind=ArgumentValueError
        )


def _clip(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _fail(name, value, "a number of at least 0, or None", kind=ArgumentTypeError)
    if not value >= 0 or math.isinf(value):
        raise _fail(name, value, "a finite number of at least 0, or None", kind=ArgumentValueError)


def _clip_algorithm(name: str, value: Any) -> None:
    if value is not None:
        choice(name, getattr(value, "value", value), ("norm", "value"))


def _deterministic(name: str, value: Any) -> None:
    if value is not None:
        choice(name, value, (True, False, "warn"), of=(bool, str))


def _accumulate(name: str, value: Any) -> None:
    if isinstance(value, dict):
        raise _fail(
            name,
            value,
            "an int; for another number from some epoch on use the callback GradientAccumulationScheduler(scheduling="
            f"{value!r})",
            kind=ArgumentTypeError,
        )
    integer(name, value, least=1)


def _retry(name: str, value: Any) -> None:
    if value is None or isinstance(value, RetryPolicy):
        return
    integer(name, value, least=0, none=True, extra=" (further tries), a RetryPolicy")


def _normalize(name: str, value: Any) -> None:
    if value is None or (callable(value) and not isinstance(value, type)):
        return
    must = "'tokens', 'samples', a function that returns the count of a batch, or None"
    if not isinstance(value, str):
        raise _fail(name, value, must, kind=ArgumentTypeError)
    if value not in ("tokens", "samples"):
        raise _fail(name, value, must, kind=ArgumentValueError)


def _skip_bad(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        integer(name, value, least=0, extra=" (most bad batches in a row; 0 is off), or a bool")


def _on_oom(name: str, value: Any) -> None:
    if value is not None:
        choice(name, value, ("split",))


def _folder(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise _fail(name, value, "a path, a URL or None", kind=ArgumentTypeError)
    if value is None or "://" in os.fspath(value):
        return
    path = os.path.abspath(os.path.expanduser(os.fspath(value)))
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise ArgumentValueError(
            f"Trainer({name}={value!r}): {path} is a file, so that no folder can be made there. Give a folder."
        )


def _max_time(name: str, value: Any) -> None:
    read_duration(value, f"Trainer({name}={value!r})")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "num_nodes": _at_least(1),
    "fast_dev_run": _fast_dev_run,
    "max_epochs": _max_epochs,
    "min_epochs": _at_least(0, none=True),
    "max_steps": _max_steps,
    "min_steps": _at_least(0, none=True),
    "max_time": _max_time,
    "limit_train_batches": _limit_check,
    "limit_val_batches": _limit_check,
    "limit_test_batches": _limit_check,
    "limit_predict_batches": _limit_check,
    "overfit_batches": _limit_check,
    "val_check_interval": _interval,
    "check_val_every_n_epoch": _at_least(1, none=True),
    "num_sanity_val_steps": _sanity,
    "log_every_n_steps": _at_least(0, none=True),
    "enable_checkpointing": _flag(none=True),
    "enable_progress_bar": _flag(none=True),
    "enable_model_summary": _flag(none=True),
    "accumulate_grad_batches": _accumulate,
    "gradient_clip_val": _clip,
    "gradient_clip_algorithm": _clip_algorithm,
    "deterministic": _deterministic,
    "benchmark": _flag(none=True),
    "inference_mode": _flag(),
    "use_distributed_sampler": _flag(),
    "detect_anomaly": _flag(),
    "barebones": _flag(),
    "sync_batchnorm": _flag(),
    "reload_dataloaders_every_n_epochs": _at_least(0),
    "default_root_dir": _folder,
    "enable_autolog_hparams": _flag(),
    "retry": _retry,
    "accumulate_normalize": _normalize,
    "skip_bad_batches": _skip_bad,
    "on_oom": _on_oom,
}
_OF_FIT: dict[str, Callable[[str, Any], None]] = {"additional_epochs": _at_least(1)}


def check_flag(name: str, value: Any, *, where: str = "Trainer") -> None:
    """Check one argument on its own, as `TrainerFlags.check` does; for those that are settable or given to `fit`.

    Args:
        name: Of the argument.
        value: What was given.
        where: What stands before the argument in the message.

    Raises:
        ArgumentTypeError: For a wrong type.
        ArgumentValueError: For a value out of range.
    """
    try:
        (_CHECKS.get(name) or _OF_FIT[name])(name, value)
    except MisconfigurationException as error:
        if where == "Trainer":
            raise
        raise type(error)(str(error).replace("Trainer(", f"{where}(", 1)) from None


def check_order(unit: str, least: int | None, most: int | None, *, where: str = "Trainer") -> None:
    """Check that a minimum of `unit` ("epochs" or "steps") is not more than the maximum.

    Raises:
        MisconfigurationException: If it is.
    """
    if least is not None and most is not None and -1 != most < least:
        raise MisconfigurationException(
            f"{where}(min_{unit}={least}, max_{unit}={most}): min_{unit} must not be more than max_{unit}."
        )

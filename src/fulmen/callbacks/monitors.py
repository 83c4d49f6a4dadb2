"""What callbacks that decide on a monitored value share: argument checks, freshness, questions to the Trainer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException, suggest

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

MODES = ("min", "max")


class MissingMonitorError(MisconfigurationException, RuntimeError):
    """A monitored value was not logged."""


def missing_monitor(owner: str, monitor: str, available: Iterable[str]) -> str:
    """Say that a monitored value is missing, what there is, and what to do."""
    names = sorted(str(name) for name in available)
    return (
        f"{owner}(monitor={monitor!r}): no such value was logged.{suggest(monitor, names)} Available: {names}."
        f" Log it with `self.log({monitor!r}, value)` or monitor one of these."
    )


def check_mode(owner: str, mode: object) -> None:
    """Refuse a mode that is neither ``min`` nor ``max``."""
    if not isinstance(mode, str):
        raise ArgumentTypeError(f"{owner}(mode={mode!r}): must be 'min' or 'max', not {type(mode).__name__}.")
    if mode not in MODES:
        raise ArgumentValueError(f"{owner}(mode={mode!r}): `mode` can be 'min' or 'max'.{suggest(mode, MODES)}")


def check_monitor(owner: str, monitor: object, *, optional: bool) -> None:
    """Refuse a monitor that is no name."""
    if monitor is None and optional:
        return
    if not isinstance(monitor, str):
        raise ArgumentTypeError(
            f"{owner}(monitor={monitor!r}): must be the name of a logged value, not {type(monitor).__name__}."
        )
    if not monitor:
        raise ArgumentValueError(f"{owner}(monitor=''): give the name of a logged value, for example 'val_loss'.")


def check_count(owner: str, name: str, value: object, *, least: int, optional: bool = False) -> None:
    """Refuse what is no whole number of at least `least`."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{owner}({name}={value!r}): must be a whole number, not {type(value).__name__}.")
    if value < least:
        raise ArgumentValueError(f"{owner}({name}={value}): must be >= {least}.")


def check_number(owner: str, name: str, value: object, *, optional: bool = False) -> None:
    """Refuse what is no number, and NaN."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(f"{owner}({name}={value!r}): must be a number, not {type(value).__name__}.")
    if math.isnan(value):
        raise ArgumentValueError(f"{owner}({name}={value}): must be a number that can be compared.")


def check_flag(owner: str, name: str, value: object) -> None:
    """Refuse what is neither `True`, `False` nor `None`."""
    if value is not None and not isinstance(value, bool):
        raise ArgumentTypeError(f"{owner}({name}={value!r}): must be True, False or None (decided by the Trainer).")


def policy_of(trainer: Trainer) -> Policy:
    """Return the Trainer's policy; `Policy.right` for a stand-in without one."""
    return getattr(trainer, "policy", Policy.right)


def is_fitting(trainer: Trainer) -> bool:
    """Return whether `fit` is what runs, outside of its sanity check."""
    fn: Any = trainer.state.fn
    return getattr(fn, "value", fn) == "fit" and not trainer.sanity_checking


def can_validate(trainer: Trainer) -> bool:
    """Return whether this fit has validation batches."""
    return bool(trainer.enable_validation) and validation_batches(trainer) > 0


def validation_batches(trainer: Trainer) -> float:
    """Return the number of validation batches over all loaders."""
    return sum(trainer.num_val_batches)


def validation_follows(trainer: Trainer, batch_idx: int) -> bool:
    """Return whether a validation runs right after this training batch, as far as counters tell."""
    every = trainer.check_val_every_n_epoch
    if not can_validate(trainer) or every is None or (trainer.current_epoch + 1) % every != 0:
        return False
    interval = trainer.val_check_batch
    if interval is None:
        return False  # validation goes by time
    if math.isinf(interval):
        return bool(trainer.is_last_batch)
    return (batch_idx + 1) % interval == 0


class MonitorWatch:
    """Learns whether a monitored value comes from validation, and whether it is of now.

    A value that is there after a validation and was not before comes from it. In epochs without a validation such
    a value is stale; deciding on it would judge the weights of now by the value of then.

    Args:
        monitor: Name of the value; `None` for none.

    Attributes:
        from_validation: The value comes from validation.
        validated: A validation has ended in this fit (the sanity check does not count).
    """

    def __init__(self, monitor: str | None) -> None:
        self.monitor = monitor
        self.from_validation = False
        self.validated = False
        self._absent_before = False
        self._fresh = False

    def state(self) -> dict[str, bool]:
        """What a checkpoint keeps, also inside of a validation."""
        return {
            "from_validation": self.from_validation,
            "absent_before": self._absent_before,
            "validated": self.validated,
            "fresh": self._fresh,
        }

    def take_back(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned, after `fit_begins`."""
        self.from_validation |= bool(state.get("from_validation"))
        self._absent_before = bool(state.get("absent_before"))
        self.validated = bool(state.get("validated"))
        self._fresh = bool(state.get("fresh"))

    def fit_begins(self) -> None:
        """Forget what belongs to an earlier fit; where the value comes from is kept."""
        self.validated = False
        self._fresh = False

    def validation_begins(self, trainer: Trainer) -> None:
        """Look whether the value is there already."""
        if self.monitor is not None and not self.from_validation:
            self._absent_before = self.monitor not in trainer.callback_metrics

    def validation_ends(self, trainer: Trainer) -> None:
        """Look whether the value has come."""
        if self._absent_before and self.monitor in trainer.callback_metrics:
            self.from_validation = True
        self._absent_before = False
        if not trainer.sanity_checking:
            self.validated = True
            self._fresh = True

    def epoch_ends(self) -> None:
        """From here on the value of the last validation is one of former weights."""
        self._fresh = False

    def stale(self, trainer: Trainer) -> bool:
        """Return whether the value comes from validation, and this epoch has none."""
        every = trainer.check_val_every_n_epoch
        skipped = every is not None and (trainer.current_epoch + 1) % every != 0
        return self.from_validation and skipped and not self._fresh

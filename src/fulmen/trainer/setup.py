"""From a Trainer's arguments to its lists of callbacks and loggers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.checkpoint import Checkpoint
from fulmen.callbacks.model_checkpoint import ModelCheckpoint
from fulmen.callbacks.model_summary import ModelSummary, default_model_summary
from fulmen.callbacks.progress.progress_bar import ProgressBar
from fulmen.callbacks.timer import Timer
from fulmen.core.datamodule import LightningDataModule
from fulmen.core.module import LightningModule
from fulmen.engine.hooks.spec import HOOK_NAMES, OLD_HOOKS, STATE
from fulmen.engine.hooks.table import overrides
from fulmen.engine.runtime.plan import Plan
from fulmen.errors import ArgumentTypeError, MisconfigurationException, suggest, warn
from fulmen.trainer.old_hooks import CALLBACK, DATA, MODULE, check_old_arguments, warn_of_old_hooks
from fulmen.utilities.imports import module_available
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


def make_callbacks(plan: Plan) -> list[Any]:
    """The user's callbacks and the default ones, checkpoint callbacks last.

    Raises:
        ArgumentTypeError: For an object without any hook.
        MisconfigurationException: For switches that contradict the callbacks, or two of one state key.
    """
    given = plan.flags.callbacks
    callbacks = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
    for callback in callbacks:
        check_callback(callback, "Trainer(callbacks=...)")
    _check_switch(plan, callbacks, Checkpoint, "enable_checkpointing")
    _check_switch(plan, callbacks, ProgressBar, "enable_progress_bar")
    if plan.checkpoints and not any(isinstance(c, Checkpoint) for c in callbacks):
        callbacks.append(ModelCheckpoint())
    if plan.progress_bar and not any(isinstance(c, ProgressBar) for c in callbacks):
        from fulmen.callbacks.progress.choose import default_progress_bar

        callbacks.append(default_progress_bar(fits_output=plan.policy.progress_fits_output))
    if plan.summary and not any(isinstance(c, ModelSummary) for c in callbacks):
        callbacks.append(default_model_summary())
    if plan.max_time is not None:
        _add_timer(plan, callbacks)
    check_keys(callbacks)
    return order(callbacks)


def _add_timer(plan: Plan, callbacks: list[Any]) -> None:
    timers = [callback for callback in callbacks if isinstance(callback, Timer)]
    if not timers:
        callbacks.append(Timer(plan.max_time))
    elif all(timer.time_remaining() is None for timer in timers):
        raise MisconfigurationException(
            f"Trainer(max_time={plan.flags.max_time!r}, callbacks=[Timer()]): that Timer ends nothing; give it the "
            "time, `Timer(duration=...)`, and leave max_time out."
        )
    else:
        rank_zero_info(f"Trainer(max_time={plan.flags.max_time!r}) is not used: the Timer in `callbacks` has a time.")


def _check_switch(plan: Plan, callbacks: Iterable[Any], kind: type, switch: str) -> None:
    found = [type(c).__name__ for c in callbacks if isinstance(c, kind)]
    if found and (getattr(plan.flags, switch) is False or plan.flags.barebones):
        which = switch + "=False" if getattr(plan.flags, switch) is False else "barebones=True"
        raise MisconfigurationException(
            f"Trainer({which}, callbacks=[{', '.join(found)}]): the switch says off, the callback says on; leave one "
            "of them out."
        )
    if kind is ProgressBar and len(found) > 1:
        raise MisconfigurationException(f"Trainer(callbacks=[{', '.join(found)}]): give one progress bar only.")


def check_callback(callback: Any, where: str) -> None:
    """Check that an object can serve as a callback; one without the base class gets a warning.

    Raises:
        ArgumentTypeError: If it has no hook at all.
    """
    if isinstance(callback, Callback):
        return
    hint = " Give an object, not the class." if isinstance(callback, type) else ""
    names = [] if isinstance(callback, type) else [n for n in HOOK_NAMES if callable(getattr(callback, n, None))]
    if not names:
        raise ArgumentTypeError(f"{where}: {callback!r} is no callback; derive its class from `fulmen.Callback`.{hint}")
    warn(
        "W405",
        f"{where}: {type(callback).__name__} has the hooks {sorted(names)}, but does not derive from "
        "`fulmen.Callback`; they are called, its state is not saved. Derive it from `fulmen.Callback`.",
        key=type(callback).__name__,
    )


def check_keys(callbacks: Iterable[Any]) -> None:
    """Check that no two callbacks share a state key.

    Raises:
        MisconfigurationException: If two do.
    """
    seen: dict[str, Any] = {}
    for callback in callbacks:
        key = getattr(callback, "state_key", None)
        if key is None:
            continue
        stateful = overrides(callback, STATE, Callback)
        if key in seen and (stateful or callback is seen[key]):
            raise MisconfigurationException(
                f"Trainer.callbacks: two have the same state key {key!r}, which a checkpoint could not tell apart. "
                "Leave one out, or override `state_key` to tell them apart."
            )
        seen[key] = callback


def order(callbacks: Iterable[Any]) -> list[Any]:
    """Checkpoint callbacks last, all others as given."""
    items = list(callbacks)
    return [c for c in items if not isinstance(c, Checkpoint)] + [c for c in items if isinstance(c, Checkpoint)]


def attach_model_callbacks(trainer: Trainer, module: Any) -> None:
    """Add what `configure_callbacks` returns; a callback replaces the Trainer's of the same type."""
    own = module.configure_callbacks()
    own = list(own) if isinstance(own, (list, tuple)) else [own] if own is not None else []
    if not own:
        return
    for callback in own:
        check_callback(callback, f"{type(module).__name__}.configure_callbacks")
    kinds = {type(callback) for callback in own}
    kept = [callback for callback in trainer.callbacks if type(callback) not in kinds]
    check_keys([*kept, *own])
    trainer.callbacks = order([*kept, *own])


def make_loggers(plan: Plan) -> list[Any]:
    """The loggers: TensorBoard if it is installed, else CSV, unless told otherwise.

    Raises:
        ArgumentTypeError: For an object that is no logger.
    """
    given = plan.logger
    if plan.fast_dev_run and plan.flags.logger is not False:
        from fulmen.loggers.logger import DummyLogger

        return [DummyLogger()]  # code that writes to `self.logger.experiment` runs in a trial too
    if given is False or given is None:
        return []
    if given is True:
        from fulmen.loggers import CSVLogger, TensorBoardLogger

        kind: Any = TensorBoardLogger if module_available("tensorboard") else CSVLogger
        return [kind(save_dir=plan.folder)]
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    for logger in found:
        if not callable(getattr(logger, "log_metrics", None)) or isinstance(logger, type):
            raise ArgumentTypeError(
                f"Trainer(logger={given!r}): {logger!r} is no logger; give True, False, a Logger object or a list of "
                "them."
            )
    return found


def check_hooks(trainer: Trainer, module: Any, datamodule: Any) -> None:
    """Point out methods of module, data module and callbacks that look like hooks and are none.

    Raises:
        MisconfigurationException: For a hook that cannot be called with what it gets.
    """
    found: list[tuple[str, Any, type]] = [(MODULE, module, LightningModule)]
    if datamodule is not None:
        found.append((DATA, datamodule, LightningDataModule))
    found += [(CALLBACK, callback, Callback) for callback in trainer.callbacks]
    for role, obj, base in found:
        warn_of_misspelt_hooks(obj, base)
        warn_of_old_hooks(trainer, obj, role)
        check_old_arguments(trainer, obj, base)


def warn_of_misspelt_hooks(obj: Any, base: type) -> None:
    """Warn of methods whose names are close to a hook's, such as `trainng_step`."""
    known = set(dir(base))
    for kind in type(obj).__mro__:
        if kind is base or kind.__module__.startswith(("torch.", "fulmen.")):
            continue
        own = vars(kind)
        for name, value in own.items():
            if not callable(value) or name.startswith("_") or name in known or name in _NAMES:
                continue
            hook = _meant_hook(name)
            if hook is not None and hook not in own:  # beside the hook itself it is a helper of it
                warn(
                    "W406",
                    f"{type(obj).__name__}.{name} is never called: it is no hook.{suggest(name, [hook])}",
                    key=f"{type(obj).__name__}.{name}",
                )


_NAMES = HOOK_NAMES | OLD_HOOKS.keys()
_HOOK_LIKE = sorted(HOOK_NAMES - {"setup", "teardown", "backward", "state_dict", "load_state_dict"})
_SAME_WORD = {"training": "train", "val": "validation", "testing": "test", "prediction": "predict"}


def _meant_hook(name: str) -> str | None:
    """The hook that a name is a misspelling of: word by word the same or nearly so."""
    words = name.split("_")
    if words[0] == "on":
        swapped = "_".join(_SAME_WORD.get(word, word) for word in words)
        if swapped in HOOK_NAMES:
            return swapped
    for hook in difflib.get_close_matches(name, _HOOK_LIKE, n=3, cutoff=0.86):
        theirs = hook.split("_")
        if name.replace("_", "") == hook.replace("_", ""):
            return hook
        if len(theirs) == len(words) and all(map(_nearly, words, theirs)):
            return hook
    return None


def _nearly(word: str, other: str) -> bool:
    if abs(len(word) - len(other)) > 2:  # train is not training
        return False
    return word == other or difflib.SequenceMatcher(None, word, other).ratio() >= 0.75

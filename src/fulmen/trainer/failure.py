"""An exception ends a run: everybody is told, everything is closed, and the exception stays the one that is seen."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.core.datamodule import LightningDataModule
from fulmen.engine.hooks import spec
from fulmen.engine.hooks.table import overrides
from fulmen.engine.runtime.policy import compat_mode
from fulmen.errors import SIGTERMException
from fulmen.trainer.notes import add_causes, add_place
from fulmen.trainer.requeue import requeue_job, save_for_requeue
from fulmen.trainer.states import TrainerStatus
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


def end_failed_run(
    trainer: Trainer,
    error: BaseException,
    *,
    saves: bool,
    seconds: float,
    nested: bool,
    teardown: Iterable[Callable[[], Any]],
) -> None:
    """Note the place on the exception, save if a signal ended a fit, tell callbacks, close loggers, tear down.

    A second exception on the way becomes a note on the first, and what comes after it is done all the same.

    Args:
        trainer: The Trainer.
        error: What ended the run.
        saves: Whether the run has something that a checkpoint callback could save.
        seconds: How long the run took.
        nested: Whether another run goes on around it, which closes loggers and strategy itself.
        teardown: What tears down, in order.
    """
    cursor, module, data = trainer.cursor, trainer.lightning_module, trainer.datamodule
    cleanup = _Cleanup(error)
    if isinstance(error, Exception):
        name = type(module).__name__
        if add_place(error, cursor, epoch=trainer.current_epoch, rank=trainer.global_rank, module=name):
            cleanup.attempt(add_causes, error, trainer)
    trainer.state.status = TrainerStatus.INTERRUPTED
    cursor.results = None
    if isinstance(error, KeyboardInterrupt):
        rank_zero_info("Interrupted; cleaning up.")
        if saves and trainer.policy.raise_keyboard_interrupt:
            _save_last(trainer, cleanup)
    elif isinstance(error, SIGTERMException):
        rank_zero_info(f"{_name(error)}: saving and cleaning up.")
        if saves:
            _save_last(trainer, cleanup)
            if trainer.control.requeue:
                cleanup.attempt(save_for_requeue, trainer)
    for callback in list(trainer.callbacks):
        for name in spec.OLD_WITH[spec.EXCEPTION] if isinstance(error, KeyboardInterrupt) and compat_mode() else ():
            if callable(old := getattr(callback, name, None)):
                cleanup.attempt(old, trainer, module)
        if overrides(callback, spec.EXCEPTION, Callback):
            cleanup.attempt(callback.on_exception, trainer, module, error)
    if data is not None and overrides(data, spec.EXCEPTION, LightningDataModule):
        cleanup.attempt(data.on_exception, error)
    cleanup.attempt(trainer.strategy.on_exception, error)
    if not nested:
        cleanup.attempt(trainer.end_record, "error", seconds=seconds, error=error)
        cleanup.attempt(trainer.hub.sender.finish, trainer.loggers)
        for logger in trainer.loggers:
            cleanup.attempt(logger.finalize, "failed")
    for call in teardown:
        cleanup.attempt(call)
    if not nested:
        cleanup.attempt(trainer.strategy.teardown)
        if trainer.control.requeue and trainer.is_global_zero:
            cleanup.attempt(requeue_job)  # last of all: it ends this process


def describe_failure(trainer: Trainer, error: BaseException) -> dict[str, Any]:
    """What the run record says of an exception: type, message, traceback, where, and the newest checkpoint."""
    callbacks = trainer.checkpoint_callbacks
    newest = [
        path for c in callbacks for path in (getattr(c, "last_model_path", ""), getattr(c, "best_model_path", ""))
    ]
    return {
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "epoch": trainer.current_epoch,
        "step": trainer.global_step,
        "checkpoint": next((path for path in newest if path), None),
    }


def _save_last(trainer: Trainer, cleanup: _Cleanup) -> None:
    """Let the checkpoint callbacks write the newest state."""
    for callback in trainer.checkpoint_callbacks:
        cleanup.attempt(callback.save_last_on_interrupt, trainer)


def _name(error: SIGTERMException) -> str:
    try:
        return signal.Signals(int(error.code or 0) - 128).name
    except ValueError:
        return "Ended by another rank"


class _Cleanup:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def attempt(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except Exception as other:
            name = getattr(function, "__qualname__", None) or repr(function)
            self.error.add_note(f"While cleaning up, `{name}` raised {type(other).__name__}: {other}")

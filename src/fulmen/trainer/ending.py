"""The end of a run that went well: everything is torn down, also what comes after a hook that raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.core.datahooks import DataHooks
from fulmen.core.module import LightningModule
from fulmen.engine.hooks import spec
from fulmen.engine.hooks.table import overrides
from fulmen.errors import CheckpointError

if TYPE_CHECKING:
    from fulmen.trainer.run import Request
    from fulmen.trainer.trainer import Trainer


def teardown_calls(trainer: Trainer, request: Request) -> list[Callable[[], Any]]:
    """`teardown` of data module, callbacks and module, as far as they have one."""
    stage = request.fn.value
    calls: list[Callable[[], Any]] = []
    if request.datamodule is not None and overrides(request.datamodule, spec.TEARDOWN, DataHooks):
        calls.append(partial(request.datamodule.teardown, stage))
    calls.extend(
        partial(callback.teardown, trainer, request.module, stage)
        for callback in trainer.callbacks
        if overrides(callback, spec.TEARDOWN, Callback)
    )
    if overrides(request.module, spec.TEARDOWN, LightningModule):
        calls.append(partial(request.module.teardown, stage))
    return calls


def call_all(calls: Iterable[Callable[[], Any]]) -> None:
    """Call each of `calls`, also after one of them raised.

    Raises:
        BaseException: The first error, with a note for each further one.
    """
    first: BaseException | None = None
    for call in calls:
        try:
            call()
        except BaseException as error:  # Ctrl-C here must not leave the others undone either
            if first is None:
                first = error
            else:
                name = getattr(getattr(call, "func", call), "__qualname__", repr(call))
                first.add_note(f"After it `{name}` raised {type(error).__name__}: {error}")
    if first is not None:
        raise first


def raise_save_errors(trainer: Trainer, further: Iterable[Exception] = ()) -> None:
    """Checkpoints that could not be written are an error at the end, not during training.

    Args:
        trainer: The Trainer, whose callbacks keep their errors.
        further: Errors of files that were written beside training.

    Raises:
        CheckpointError: If there are any.
    """
    errors = [error for callback in trainer.checkpoint_callbacks for error in callback.save_errors]
    errors += further
    if errors:
        raise CheckpointError(
            f"Training has finished, but {len(errors)} checkpoint(s) could not be written; the first error was: "
            f"{errors[0]}"
        ) from errors[0]

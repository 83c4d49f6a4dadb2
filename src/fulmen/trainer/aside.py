"""A run that stands still between two outputs of `predict(stream=True)`: what it leaves to others and keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from fulmen.engine.hooks.running import pop_module, push_module
from fulmen.errors import MisconfigurationException
from fulmen.utilities.seed import seed_calls

if TYPE_CHECKING:
    from fulmen.trainer.run import Request, RunGuard
    from fulmen.trainer.trainer import Trainer

_TAKEN: WeakSet[Any] = WeakSet()  # Trainers and modules of streams that stand still


def step_aside(guard: RunGuard) -> None:
    """Give signals, and the place of the running module, back to the process; keep Trainer and module."""
    guard.signals.__exit__()
    pop_module()
    guard.seedings -= seed_calls()
    _TAKEN.update((guard.trainer, guard.request.module))


def step_in(guard: RunGuard) -> None:
    """Undo `step_aside`."""
    _TAKEN.difference_update((guard.trainer, guard.request.module))
    guard.seedings += seed_calls()
    push_module(guard.request.module)
    guard.signals.__enter__()


def refuse_beside_stream(trainer: Trainer, request: Request) -> None:
    """Check that neither Trainer nor module belongs to a stream that stands still.

    Raises:
        MisconfigurationException: If one does.
    """
    if trainer in _TAKEN:
        what, way = "this Trainer", "use another Trainer"
    elif request.module in _TAKEN:
        what, way = f"this {type(request.module).__name__}", "use a copy of the module"
    else:
        return
    raise MisconfigurationException(
        f"Trainer.{request.fn.value}: {what} is in the middle of `predict(stream=True)`, whose outputs have not all "
        f"been taken. Take them, call `.close()` on the stream, or {way}."
    )

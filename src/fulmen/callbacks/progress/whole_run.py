"""Where a fit is between its first batch and its last: in batches, else in time, else in epochs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from fulmen.callbacks.timer import Timer

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


class RunState(NamedTuple):
    """How far a run is.

    Attributes:
        done: What is behind us, in `unit`.
        total: All of it.
        unit: ``"batches"``, ``"seconds"`` or ``"epochs"``.
        most: Seconds after which `max_time` ends the run, if nothing else does before; `None` without such a limit.
    """

    done: float
    total: float
    unit: str
    most: float | None = None


def run_length(trainer: Trainer) -> int | float | None:
    """Return how many training batches the whole run has, over all epochs or up to `max_steps`; `None` if unknown."""
    per_epoch = trainer.num_training_batches
    lengths: list[int | float] = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        lengths.append(trainer.max_epochs * per_epoch)
    if trainer.max_steps > 0:
        lengths.append(_batches_of_steps(trainer.max_steps, max(1, trainer.accumulate_grad_batches), per_epoch))
    total = min(lengths, default=math.inf)
    return None if math.isinf(total) or math.isnan(total) else total


def _batches_of_steps(steps: int, window: int, per_epoch: int | float) -> int | float:
    """Batches that `steps` updates take; an epoch's last window may be shorter than the others."""
    if window == 1 or math.isinf(per_epoch) or per_epoch <= 0:
        return steps * window
    epochs, rest = divmod(steps, math.ceil(per_epoch / window))
    return epochs * per_epoch + rest * window


def run_position(trainer: Trainer, done: int) -> int:
    """Return how many training batches of the whole run are behind us, `done` of them in this epoch."""
    per_epoch = trainer.num_training_batches
    if math.isinf(per_epoch):
        return int(trainer.global_step * max(1, trainer.accumulate_grad_batches))
    return int(trainer.current_epoch * per_epoch) + done


def run_state(trainer: Trainer, done: int, per_epoch: int | float = math.inf) -> RunState | None:
    """Return how far the run is; `None` if nothing but a stop will end it.

    Args:
        trainer: The Trainer.
        done: Batches of this epoch that are behind us.
        per_epoch: How many an epoch had so far, where the loader has no length; `inf` if none has ended yet.
    """
    most = _time_left(trainer)
    length = run_length(trainer)
    if length is not None:
        return RunState(run_position(trainer, done), length, "batches", most and most[1])
    if most is not None:
        return RunState(most[0], most[0] + most[1], "seconds", most[1])
    epochs = trainer.max_epochs
    if epochs is not None and epochs > 0:
        part = min(1.0, done / per_epoch) if per_epoch > 0 else 0.0
        return RunState(trainer.current_epoch + part, epochs, "epochs")
    return None


def _time_left(trainer: Trainer) -> tuple[float, float] | None:
    """Seconds spent and seconds left, by the `Timer` that ends the run first."""
    left = [
        (remaining, callback.time_elapsed("train"))
        for callback in trainer.callbacks
        if isinstance(callback, Timer) and (remaining := callback.time_remaining("train")) is not None
    ]
    if not left:
        return None
    remaining, spent = min(left)
    return spent, max(0.0, remaining)


def sooner(first: float | None, second: float | None) -> float | None:
    """Return the smaller of two times, or the one that is known."""
    return min((t for t in (first, second) if t is not None), default=None)

"""How long a fit trains: what `fit` itself is given of it, and the counters under which an evaluation logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fulmen.engine.loops.control import Progress
from fulmen.engine.loops.schedule import why_done
from fulmen.engine.runtime.flags import check_flag, check_order
from fulmen.errors import MisconfigurationException
from fulmen.trainer import checkpointing
from fulmen.trainer.auto_resume import AUTO

if TYPE_CHECKING:
    from fulmen.trainer.run import Request
    from fulmen.trainer.trainer import Trainer


def check_limits(trainer: Trainer, request: Request) -> None:
    """Check what `fit` was given of limits, and that a second `fit` has something to do.

    Raises:
        MisconfigurationException: For limits that are wrong or exclude each other, and for a fit with nothing to do.
    """
    control, progress, given = trainer.control, trainer.progress, request.limits
    more = given.get("additional_epochs")
    if more is not None:
        check_flag("additional_epochs", more, where="Trainer.fit")
        if request.ckpt_path == AUTO:
            raise MisconfigurationException(
                f"Trainer.fit(ckpt_path='auto', additional_epochs={more}): each time the command is run again the "
                "epochs would be counted from a later checkpoint; give max_epochs."
            )
        if given.get("max_epochs") is not None:
            raise MisconfigurationException(
                f"Trainer.fit(max_epochs={given['max_epochs']}, additional_epochs={more}): give one of them only."
            )
    limits = {name: given.get(name) for name in ("max_epochs", "max_steps")}
    for name, value in limits.items():
        if value is not None:
            check_flag(name, value, where="Trainer.fit")
        else:
            limits[name] = getattr(control, name)
    for unit in ("epochs", "steps"):
        check_order(unit, getattr(control, f"min_{unit}"), limits[f"max_{unit}"], where="Trainer.fit")
    control.max_epochs = limits["max_epochs"]
    control.max_steps = -1 if limits["max_steps"] is None else limits["max_steps"]
    if control.min_epochs is None and control.min_steps is not None and not trainer.policy.min_steps_alone:
        control.min_epochs = 1
    if request.ckpt_path in (None, ""):
        train_on(trainer, request, progress)
        if trainer.policy.refit_checked and progress.total_batches:
            _check_refit(trainer)


def train_on(trainer: Trainer, request: Request, progress: Progress) -> None:
    """Set `max_epochs` so that `additional_epochs` follow those that `progress` has counted."""
    more = request.limits.pop("additional_epochs", None)  # once: a retry of this fit does not count anew
    if more is not None:
        trainer.control.max_epochs = progress.epoch + progress.epoch_done + more


def _check_refit(trainer: Trainer) -> None:
    control, progress = trainer.control, trainer.progress
    control.should_stop = False
    reason = why_done(control, progress, float("inf"))
    if reason is not None:
        # What both limits need: the one that is reached is raised, the other must leave room.
        over_epochs = control.max_epochs not in (None, -1) and progress.epoch >= (control.max_epochs or 0)
        over_steps = control.max_steps != -1 and progress.global_step >= control.max_steps
        new = [f"max_epochs={progress.epoch + 1}"] * over_epochs
        new += [f"max_steps={progress.global_step + 1}"] * over_steps
        advice = f"`fit(..., {', '.join(new)})`"
        if not over_steps:
            advice += " or `fit(..., additional_epochs=1)`"
        raise MisconfigurationException(
            f"Trainer.fit was called again, but there is nothing left to train: {reason}. Give the new limit, "
            f"{advice} (-1 for no limit); or make a new Trainer."
        )


def counters_of(checkpoint: dict[str, Any]) -> Progress:
    """The counters that a checkpoint holds."""
    progress = Progress()
    checkpointing.restore_progress(progress, checkpoint)
    return progress


class KeptCounters:
    """The Trainer's counters, put back after an evaluation that logs under those of its checkpoint.

    Args:
        progress: The Trainer's.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.kept: dict[str, Any] | None = None

    def lend(self, other: Progress) -> None:
        """Show the counters of `other` until `back`."""
        self.kept = self.progress.state_dict()
        self.progress.load_state_dict(other.state_dict())

    def back(self) -> None:
        """Show the Trainer's own again."""
        if self.kept is not None:
            self.progress.load_state_dict(self.kept)
            self.kept = None

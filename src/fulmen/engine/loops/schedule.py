"""When a fit validates and stops: plain functions of control and progress."""

from __future__ import annotations

import time

from fulmen.engine.loops.control import Progress, RunControl
from fulmen.errors import ArgumentValueError, MisconfigurationException


def can_stop(control: RunControl, progress: Progress) -> bool:
    """Whether `min_epochs` and `min_steps` are met."""
    epochs = not control.min_epochs or progress.epoch >= control.min_epochs
    return epochs and (not control.min_steps or progress.global_step >= control.min_steps)


def steps_done(control: RunControl, progress: Progress) -> bool:
    """Whether `max_steps` is reached."""
    return control.max_steps != -1 and progress.global_step >= control.max_steps


def why_done(control: RunControl, progress: Progress, num_batches: int | float) -> str | None:
    """Why a fit has no further epoch to run; `None` if it has one."""
    if num_batches == 0:
        return "there are no training batches"
    if steps_done(control, progress):
        return f"max_steps={control.max_steps} reached"
    if control.max_epochs is not None and control.max_epochs != -1 and progress.epoch >= control.max_epochs:
        return f"max_epochs={control.max_epochs} reached"
    if control.should_stop and can_stop(control, progress):
        return control.stop_reason or "trainer.should_stop was set"
    return None


def epoch_validates(control: RunControl, progress: Progress) -> bool:
    """Whether the running epoch validates at all."""
    every = control.val_every_epochs
    return every is None or (progress.epoch + 1) % every == 0


def run_ends(control: RunControl, progress: Progress) -> bool:
    """Whether `max_steps` or a stop ends the run at the batch that was just trained on."""
    return steps_done(control, progress) or (control.should_stop and can_stop(control, progress))


def validation_due(control: RunControl, progress: Progress, *, is_last: bool, at_end: bool) -> bool:
    """Whether to validate after the batch that was just trained on.

    Args:
        control: The run's control.
        progress: Its counters.
        is_last: Whether the batch is its epoch's last.
        at_end: `Policy.end_validates`.
    """
    if at_end and (control.max_steps != -1 or control.should_stop) and run_ends(control, progress):
        return True
    if not epoch_validates(control, progress):
        return False
    if control.val_seconds is not None:
        if control.should_stop and can_stop(control, progress):
            return True
        # No later time would come.
        over = at_end and is_last and progress.epoch + 1 == control.max_epochs
        return over or time.monotonic() - control.val_clock >= control.val_seconds
    endless = control.val_batch == float("inf")
    whole = isinstance(control.val_interval, float) and control.val_interval == 1.0
    if is_last and (endless or whole):  # by the data, which may end before its length says
        return True
    if control.should_stop and can_stop(control, progress):
        return True
    if endless:
        limit = control.limits.train
        return isinstance(limit, int) and not isinstance(limit, bool) and progress.batches % max(limit, 1) == 0
    batches = progress.total_batches if control.val_every_epochs is None else progress.batches
    return batches % control.val_batch == 0


def set_val_batch(control: RunControl, num_batches: int | float) -> None:
    """Turn `val_check_interval` into a number of batches, now that the train loader is known.

    Raises:
        ArgumentValueError: If it cannot be done.
    """
    interval = control.val_interval
    if control.val_seconds is not None:
        control.val_batch = float("inf")
    elif isinstance(interval, int):
        control.val_batch = interval
        if interval > num_batches and control.val_every_epochs is not None and control.limits.val != 0:
            raise ArgumentValueError(
                f"Trainer(val_check_interval={interval}) is more than the {num_batches} training batches of an epoch, "
                "so that validation would never run. Lower it, set limit_val_batches=0 to switch validation off, or "
                "check_val_every_n_epoch=None to count batches over epochs."
            )
    elif num_batches == float("inf"):
        if interval != 1.0:
            raise MisconfigurationException(
                f"Trainer(val_check_interval={interval}) is a fraction of an epoch, but the length of the training "
                "loader is not known; give an int (batches) or 1.0."
            )
        control.val_batch = float("inf")
    else:
        control.val_batch = max(1, int(num_batches * interval))

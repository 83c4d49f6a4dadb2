"""When schedulers move: plain functions of the session."""

from __future__ import annotations

from typing import Any

from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.engine.hooks.spec import LR_SCHEDULER_STEP
from fulmen.engine.loops.control import Progress
from fulmen.engine.loops.schedule import epoch_validates
from fulmen.engine.loops.session import Session
from fulmen.errors import MisconfigurationException, warn


def step_schedulers(session: Session, interval: str, *, plateau: bool) -> None:
    """Step the schedulers of one interval.

    Args:
        session: The run.
        interval: `"step"` or `"epoch"`.
        plateau: Those that watch a value (after validation), or the others (before it).

    Raises:
        MisconfigurationException: If a watched value is missing and the scheduler is strict.
    """
    progress, policy = session.progress, session.policy
    by_step = interval == "step"
    if by_step and not session.optimization.stepped and policy.skip_scheduler_on_overflow:
        return
    for index, config in enumerate(session.control.schedulers):
        if config.reduce_on_plateau is not plateau or config.interval != interval:
            continue
        if by_step and not session.optimization.moves(config.scheduler):
            continue
        count = progress.epoch + 1
        if by_step and policy.scheduler_counts_updates:
            # Of a scheduler that moves at each update nothing is counted.
            count = _count(progress, index) if config.frequency > 1 else 1
        elif by_step:
            count = progress.batches
        if count % config.frequency or (plateau and not by_step and _waits(session, config)):
            continue
        value = _monitored(session, config) if plateau else None
        if plateau and value is None:
            continue
        cursor = session.cursor
        outer, cursor.hook = cursor.hook, LR_SCHEDULER_STEP
        session.module.lr_scheduler_step(config.scheduler, value)
        cursor.hook = outer


def _count(progress: Progress, index: int) -> int:
    """Count an update for a scheduler; returns how many there were."""
    counts = [*progress.scheduler_updates, *[0] * (index + 1 - len(progress.scheduler_updates))]
    counts[index] += 1
    progress.scheduler_updates = tuple(counts)  # a new one: checkpoints may hold the old
    return counts[index]


def _waits(session: Session, config: LRSchedulerConfig) -> bool:
    """Whether this epoch was one without validation, and gave the watched value in no other way either."""
    control, progress = session.control, session.progress
    if not session.policy.plateau_waits or progress.validated_at > progress.total_batches - progress.batches:
        return False
    if control.val_every_epochs is not None and epoch_validates(control, progress):
        return False  # there is nothing to validate with
    return config.monitor not in session.train_results.view().callback


def _monitored(session: Session, config: LRSchedulerConfig) -> Any:
    assert config.monitor is not None
    metrics = session.hub.callback_metrics
    value = metrics.get(config.monitor)
    if value is None:
        what = f"{type(config.scheduler).__name__} watches {config.monitor!r}, which was not logged"
        if config.strict:
            raise MisconfigurationException(
                f"{what}. Logged so far: {sorted(metrics)}. Log it with `self.log({config.monitor!r}, ...)`, or set "
                "'monitor' of the lr_scheduler dict to one of these."
            )
        warn("W601", f"{what}; the rate stays as it is.", key=config.monitor)
    return value

"""When schedulers move: plain functions of the session."""

from __future__ import annotations

from typing import Any

from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.engine.hooks.spec import LR_SCHEDULER_STEP
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
    progress = session.progress
    for config in session.control.schedulers:
        if config.reduce_on_plateau is not plateau or config.interval != interval:
            continue
        count = progress.batches if interval == "step" else progress.epoch + 1
        if count % config.frequency:
            continue
        value = _monitored(session, config) if plateau else None
        if plateau and value is None:
            continue
        cursor = session.cursor
        outer, cursor.hook = cursor.hook, LR_SCHEDULER_STEP
        session.module.lr_scheduler_step(config.scheduler, value)
        cursor.hook = outer


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

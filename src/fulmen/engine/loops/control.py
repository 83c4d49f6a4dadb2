"""What may change during a run, and what counts it: `RunControl` and `Progress`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.utilities.durations import read_duration


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        epoch: Number of finished epochs, which is the number of the running one.
        epoch_done: The running epoch has no more batches (its end hooks run).
        batches: Batches of the running epoch that were taken from the loader.
        total_batches: Batches of all epochs.
        global_step: Updates so far, as the policy counts them.
        optimizer_steps: Calls of wrapped optimizers' `step` so far.
        stepped_batches: Batches that ended an accumulation window, the x axis of loggers.
        in_window: Batches of the running accumulation window.
        closed_batches: Batches after which everything was done; fewer than `total_batches` while the row, validation
            and watching schedulers of the last one are still to come.
        validated_at: `total_batches` at the last validation, -1 before the first.
        validated_step: `stepped_batches` then, under which the loggers have its row.
        is_last: The batch last taken is the final one of its epoch.
        scheduler_updates: Updates so far of the optimizers of schedulers that move each so many of them, by the
            scheduler's number.
    """

    epoch: int = 0
    epoch_done: bool = False
    batches: int = 0
    total_batches: int = 0
    global_step: int = 0
    optimizer_steps: int = 0
    stepped_batches: int = 0
    in_window: int = 0
    closed_batches: int = 0
    validated_at: int = -1
    validated_step: int = -1
    is_last: bool = False
    scheduler_updates: tuple[int, ...] = field(default_factory=tuple, init=False)

    def state_dict(self) -> dict[str, Any]:
        """All counters."""
        return dict(self.__dict__)

    def restart_epoch(self) -> None:
        """Begin an epoch that was broken off anew; go to the next one if its batches were over."""
        if self.epoch_done:
            self.epoch += 1
        self.epoch_done = self.is_last = False
        self.batches = self.in_window = 0
        self.closed_batches = self.total_batches

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the counters back; unknown ones are ignored."""
        for name in self.__dict__:
            if name in state_dict:
                setattr(self, name, type(getattr(self, name))(state_dict[name]))


@dataclass
class Limits:
    """Batches per stage: an int, a fraction, or `None` for all."""

    train: int | float | None = None
    val: int | float | None = None
    test: int | float | None = None
    predict: int | float | None = None


@dataclass
class RunControl:
    """What hooks and user code may change while loops run; read at batch boundaries.

    Attributes:
        should_stop: Stop as soon as `min_epochs` and `min_steps` allow it.
        stop_reason: Why, for the record.
        interrupt: An exception to raise at the next batch boundary (Ctrl-C, SIGTERM), or `None`.
        sigterm: The process got SIGTERM or SIGUSR1 in this run.
        requeue: It was SIGUSR1: the cluster shall run the job again.
        accumulate: Batches per optimizer step.
        clip_value: Largest gradient norm or value, `None` for no clipping.
        clip_algorithm: `"norm"` or `"value"`; `None` means norm.
        limits: Batches per stage.
        max_epochs: Epochs, -1 for no limit, `None` if not set.
        min_epochs: Epochs before `should_stop` has effect.
        max_steps: Updates, -1 for no limit.
        min_steps: Updates before `should_stop` has effect.
        log_every: Rows for loggers each so many stepped batches, 0 for none.
        optimizers: The run's optimizers, unwrapped.
        schedulers: Their schedulers.
        loggers: The loggers in use.
        reload_every: Make loaders anew every so many epochs, 0 for never.
        sanity_steps: Batches of the sanity check, -1 for all.
        val_interval: `val_check_interval` as given: int, fraction of an epoch, or a time.
        val_seconds: The same as a time, `None` if it is none; `val_batch` is then infinite.
        val_clock: Clock reading (`time.monotonic`) from which that time runs: the last validation's end.
        val_every_epochs: `check_val_every_n_epoch`.
        val_batch: Validate each so many batches; set when the train loader is known.
    """

    should_stop: bool = False
    stop_reason: str | None = None
    interrupt: BaseException | None = None
    sigterm: bool = False
    requeue: bool = False
    accumulate: int = 1
    clip_value: float | None = None
    clip_algorithm: str | None = None
    limits: Limits = field(default_factory=Limits)
    max_epochs: int | None = None
    min_epochs: int | None = None
    max_steps: int = -1
    min_steps: int | None = None
    log_every: int = 50
    optimizers: list[Any] = field(default_factory=list)
    schedulers: list[LRSchedulerConfig] = field(default_factory=list)
    loggers: list[Any] = field(default_factory=list)
    reload_every: int = 0
    sanity_steps: int | float = 2
    val_interval: Any = 1.0
    val_seconds: float | None = None
    val_clock: float = 0.0
    val_every_epochs: int | None = 1
    val_batch: int | float = float("inf")
    fast_dev_run: bool = False

    def set_val_interval(self, value: Any) -> None:
        """Take a checked `val_check_interval`, which may be a time; `None` means once per epoch."""
        timed = isinstance(value, (str, dict, timedelta))
        span = read_duration(value, "val_check_interval") if timed else None
        self.val_seconds = None if span is None else span.total_seconds()
        self.val_interval = 1.0 if value is None else batches_of(value)


def batches_of(limit: Any) -> Any:
    """A limit of batches, as an int where a whole float above 1 was given."""
    return int(limit) if isinstance(limit, float) and limit > 1.0 else limit

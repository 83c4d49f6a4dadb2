"""Measure how long stages take, and stop training after a given time."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.engine.hooks.table import ignores_outputs
from fulmen.errors import ArgumentValueError, suggest
from fulmen.utilities.durations import read_duration
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer

_STAGES = ("train", "validate", "test", "predict")


class Timer(Callback):
    """Measures the time in training, validation, test and prediction; stops training when `duration` is used up.

    The time already spent is kept in checkpoints, so that a resumed run stops after the same total. Every rank looks at
    its own clock, and the trainer brings their decisions together; there is no collective here.

    Example::

        timer = Timer(duration="00:12:00:00")  # 12 hours
        timer = Timer(duration=timedelta(weeks=1))
        timer = Timer(duration={"days": 4, "hours": 2})
        timer.time_elapsed("train")

    Args:
        duration: When to stop: ``"DD:HH:MM:SS"``, a timedelta, a dict of `timedelta`'s arguments, or `None` for never.
        interval: Look at the clock after each ``"step"`` or each ``"epoch"``.
        verbose: Say when the time is used up.

    Raises:
        ArgumentTypeError: `duration` is of another type.
        ArgumentValueError: `duration` cannot be read or is negative; `interval` is none of these.
    """

    def __init__(
        self,
        duration: str | timedelta | dict[str, int] | None = None,
        interval: str = "step",
        verbose: bool = True,
    ) -> None:
        name = getattr(interval, "value", interval)
        if name not in ("step", "epoch"):
            raise ArgumentValueError(
                f"Timer(interval={interval!r}): give 'step' or 'epoch'.{suggest(str(name), ('step', 'epoch'))}"
            )
        span = read_duration(duration, f"Timer(duration={duration!r})")
        self._duration = span.total_seconds() if span is not None else None
        self._interval = str(name)
        self._verbose = verbose
        self._start: dict[str, float] = {}
        self._end: dict[str, float] = {}
        self._offset = 0.0
        self._deadline = math.inf

    def start_time(self, stage: str = "train") -> float | None:
        """Return the clock reading (`time.monotonic`) at the stage's start; `None` if it has not begun."""
        return self._start.get(_stage(stage))

    def end_time(self, stage: str = "train") -> float | None:
        """Return the clock reading at the stage's end; `None` if it has not ended."""
        return self._end.get(_stage(stage))

    def time_elapsed(self, stage: str = "train") -> float:
        """Return the seconds spent in the stage; for training with those before the run was resumed."""
        stage = _stage(stage)
        offset = self._offset if stage == "train" else 0.0
        start = self._start.get(stage)
        return offset if start is None else self._end.get(stage, time.monotonic()) - start + offset

    def time_remaining(self, stage: str = "train") -> float | None:
        """Return the seconds left of `duration`; `None` without one."""
        return None if self._duration is None else self._duration - self.time_elapsed(stage)

    def _begin(self, stage: str) -> None:
        self._start[stage] = time.monotonic()
        self._end.pop(stage, None)

    def _finish(self, stage: str) -> None:
        self._end[stage] = time.monotonic()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop at once if a resumed run has no time left."""
        self._start.pop("train", None)
        if self._duration is not None and self._offset >= self._duration:
            self._stop(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._begin("train")
        if self._duration is not None:
            self._deadline = self._start["train"] + self._duration - self._offset

    @ignores_outputs
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the clock."""
        if time.monotonic() >= self._deadline and self._interval == "step":
            self._stop(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the clock."""
        if time.monotonic() >= self._deadline and self._interval == "epoch":
            self._stop(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._finish("train")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._begin("validate")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._finish("validate")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._begin("test")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._finish("test")

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._begin("predict")

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._finish("predict")

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds spent in each stage."""
        return {"time_elapsed": {stage: self.time_elapsed(stage) for stage in _STAGES}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the training time of the run that goes on."""
        self._offset = float(state_dict.get("time_elapsed", {}).get("train", 0.0))

    def __getstate__(self) -> dict[str, Any]:
        """Everything; clock readings mean nothing in another process, so the time so far becomes the offset."""
        return {
            **self.__dict__,
            "_offset": self.time_elapsed("train"),
            "_start": {},
            "_end": {},
            "_deadline": math.inf,
        }

    def _stop(self, trainer: Trainer) -> None:
        first = not trainer.should_stop
        trainer.should_stop = True
        spent = timedelta(seconds=int(self.time_elapsed("train")))
        control = getattr(trainer, "control", None)  # a stand-in may have none
        if first and control is not None:
            control.stop_reason = f"the time is used up after {spent} (max_time or Timer)"
        if first and self._verbose:
            rank_zero_info(f"Timer: the time is used up after {spent}; training stops.")


def _stage(stage: Any) -> str:
    name = str(getattr(stage, "value", stage))
    if name == "sanity_check":
        return "validate"
    if name not in _STAGES:
        raise ArgumentValueError(f"Timer: there is no stage {name!r}; it is one of {_STAGES}.{suggest(name, _STAGES)}")
    return name

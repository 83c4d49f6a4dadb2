"""What a Trainer is doing: function, stage and status, under Lightning's names."""

from __future__ import annotations

from enum import StrEnum

from fulmen.engine.hooks.running import Cursor


class TrainerStatus(StrEnum):
    """How the last call ended, or that it runs."""

    INITIALIZING = "initializing"
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"

    @property
    def stopped(self) -> bool:
        """Whether nothing runs any more."""
        return self in (self.FINISHED, self.INTERRUPTED)


class TrainerFn(StrEnum):
    """Which method was called."""

    FITTING = "fit"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"


class RunningStage(StrEnum):
    """What runs at the moment."""

    TRAINING = "train"
    SANITY_CHECKING = "sanity_check"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"

    @property
    def evaluating(self) -> bool:
        """Whether it is an evaluation."""
        return self in (self.VALIDATING, self.TESTING, self.SANITY_CHECKING)

    @property
    def dataloader_prefix(self) -> str | None:
        """Prefix of the stage's loader hook."""
        if self in (self.VALIDATING, self.SANITY_CHECKING):
            return "val"
        return self.value


class TrainerState:
    """State of a Trainer; the stage is read from the place that the run has reached.

    Args:
        cursor: That place.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.status = TrainerStatus.INITIALIZING
        self.fn: TrainerFn | None = None
        self._cursor = cursor

    @property
    def stage(self) -> RunningStage | None:
        """What runs at the moment, `None` if nothing does."""
        return RunningStage(self._cursor.stage) if self._cursor.stage is not None else None

    @stage.setter
    def stage(self, stage: RunningStage | None) -> None:
        self._cursor.stage = stage.value if stage is not None else None

    @property
    def finished(self) -> bool:
        """Whether the last call ended well."""
        return self.status == TrainerStatus.FINISHED

    @property
    def stopped(self) -> bool:
        """Whether nothing runs any more."""
        return self.status.stopped

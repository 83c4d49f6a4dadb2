"""What outside code reads of the loops: `trainer.fit_loop` and its kin as views on control and progress."""

from __future__ import annotations

from typing import Any, Protocol

from fulmen.engine.hooks.spec import VALIDATION
from fulmen.engine.loops.control import Progress, RunControl
from fulmen.engine.runtime.flags import check_flag


class Viewed(Protocol):
    """What the views need of a Trainer."""

    @property
    def control(self) -> RunControl:
        """What may change during a run."""
        ...

    @property
    def progress(self) -> Progress:
        """Counters."""
        ...

    @property
    def enable_validation(self) -> bool:
        """Whether a fit validates."""
        ...


class SourceView:
    """Whether a loader is defined.

    Args:
        trainer: The Trainer.
        name: Hook that gives the loader.
    """

    def __init__(self, trainer: Any, name: str) -> None:
        self._trainer = trainer
        self._name = name

    def is_defined(self) -> bool:
        """Whether somebody gives the loader."""
        session = self._trainer.session
        return bool(session is not None and session.loaders.has(self._name))


class LoopView:
    """An evaluation or prediction loop as outside code knows it.

    Args:
        trainer: The Trainer.
        loader: Hook that gives the loader.
    """

    def __init__(self, trainer: Any, loader: str) -> None:
        self._trainer = trainer
        self._data_source = SourceView(trainer, loader)


class EpochLoopView:
    """The training epoch's counters.

    Args:
        trainer: The Trainer.
    """

    def __init__(self, trainer: Viewed) -> None:
        self._trainer = trainer
        self._progress = trainer.progress
        self.val_loop = LoopView(trainer, VALIDATION.loader)

    @property
    def batch_idx(self) -> int:
        """Index of the running batch in its epoch."""
        return self._progress.batches - 1

    @property
    def total_batch_idx(self) -> int:
        """Index of the running batch over all epochs."""
        return self._progress.total_batches - 1

    @property
    def global_step(self) -> int:
        """Updates so far."""
        return self._progress.global_step

    @property
    def _batches_that_stepped(self) -> int:
        return self._progress.stepped_batches

    @_batches_that_stepped.setter
    def _batches_that_stepped(self, value: int) -> None:
        self._progress.stepped_batches = value


class FitLoopView:
    """The fit loop's limits and counters; limits may be set.

    Args:
        trainer: The Trainer.
    """

    def __init__(self, trainer: Viewed) -> None:
        self._trainer = trainer
        self._progress = trainer.progress
        self.epoch_loop = EpochLoopView(trainer)

    @property
    def max_epochs(self) -> int | None:
        """Epochs to train."""
        return self._trainer.control.max_epochs

    @max_epochs.setter
    def max_epochs(self, value: int | None) -> None:
        check_flag("max_epochs", value)
        self._trainer.control.max_epochs = value

    @property
    def min_epochs(self) -> int | None:
        """Epochs before a stop has effect."""
        return self._trainer.control.min_epochs

    @min_epochs.setter
    def min_epochs(self, value: int | None) -> None:
        check_flag("min_epochs", value)
        self._trainer.control.min_epochs = value

    @property
    def max_steps(self) -> int:
        """Updates to make."""
        return self._trainer.control.max_steps

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        check_flag("max_steps", value)
        self._trainer.control.max_steps = value

    @property
    def min_steps(self) -> int | None:
        """Updates before a stop has effect."""
        return self._trainer.control.min_steps

    @min_steps.setter
    def min_steps(self, value: int | None) -> None:
        check_flag("min_steps", value)
        self._trainer.control.min_steps = value

    @property
    def batch_idx(self) -> int:
        """Index of the running batch in its epoch."""
        return self._progress.batches - 1

    @property
    def total_batch_idx(self) -> int:
        """Index of the running batch over all epochs."""
        return self._progress.total_batches - 1

    @property
    def batches_that_stepped(self) -> int:
        """Batches that ended an accumulation window, the x axis of loggers."""
        return self._progress.stepped_batches

    @property
    def val_loop(self) -> LoopView:
        """The validation loop."""
        return self.epoch_loop.val_loop

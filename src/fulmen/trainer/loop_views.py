"""What outside code reads of the loops: `trainer.fit_loop` and its kin as views on control and progress."""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar, overload

from fulmen.engine.hooks.spec import VALIDATION
from fulmen.engine.loops.control import Progress, RunControl
from fulmen.engine.runtime.flags import check_flag

T = TypeVar("T")


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


class TrainingView:
    """What the views of the training loops share: the place in the data.

    Args:
        trainer: The Trainer.
    """

    def __init__(self, trainer: Viewed) -> None:
        self._trainer = trainer
        self._progress = trainer.progress

    @property
    def batch_idx(self) -> int:
        """Index of the running batch in its epoch."""
        return self._progress.batches - 1

    @property
    def total_batch_idx(self) -> int:
        """Index of the running batch over all epochs."""
        return self._progress.total_batches - 1


class EpochLoopView(TrainingView):
    """The training epoch's counters.

    Args:
        trainer: The Trainer.
    """

    def __init__(self, trainer: Viewed) -> None:
        super().__init__(trainer)
        self.val_loop = LoopView(trainer, VALIDATION.loader)

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


class Limit(Generic[T]):
    """A limit of the run under its Trainer argument's name: read from the run's control, checked where it is set.

    Args:
        doc: What it limits.
    """

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, view: None, owner: type) -> Self: ...

    @overload
    def __get__(self, view: FitLoopView, owner: type) -> T: ...

    def __get__(self, view: FitLoopView | None, owner: type) -> Any:
        return self if view is None else getattr(view.control, self._name)

    def __set__(self, view: FitLoopView, value: T) -> None:
        check_flag(self._name, value)
        setattr(view.control, self._name, value)


class FitLoopView(TrainingView):
    """The fit loop's limits and counters; limits may be set.

    Args:
        trainer: The Trainer.
    """

    max_epochs = Limit[int | None]("Epochs to train.")
    min_epochs = Limit[int | None]("Epochs before a stop has effect.")
    max_steps = Limit[int]("Updates to make.")
    min_steps = Limit[int | None]("Updates before a stop has effect.")

    def __init__(self, trainer: Viewed) -> None:
        super().__init__(trainer)
        self.epoch_loop = EpochLoopView(trainer)

    @property
    def control(self) -> RunControl:
        """What may change during a run."""
        return self._trainer.control

    @property
    def batches_that_stepped(self) -> int:
        """Batches that ended an accumulation window, the x axis of loggers."""
        return self._progress.stepped_batches

    @property
    def val_loop(self) -> LoopView:
        """The validation loop."""
        return self.epoch_loop.val_loop

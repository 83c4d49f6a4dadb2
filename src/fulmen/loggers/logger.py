"""What every logger has: `Logger`, the silent `DummyLogger`, and the raw handle that only rank zero gets."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.utilities.rank_zero import rank_zero_only

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

T = TypeVar("T")


class Logger(ABC):
    """Base class of loggers.

    A subclass must define `log_metrics` and `log_hyperparams`. `name` and `version` have defaults here, so that
    loggers written for older versions, which had neither, work.

    Attributes:
        axis: x axis of all values that are not logged with one of their own; `None` for the step. See
            `LightningModule.log`; may be set at any time.
    """

    axis: str | None = None
    axis_as_column: ClassVar[bool] = False
    """Rows keep their step, and the x value of another axis is in a column of its name; else it is the step."""

    @property
    def name(self) -> str | None:
        """Name of the experiment; by default the name of the class."""
        return type(self).__name__

    @property
    def version(self) -> int | str | None:
        """Which run of the experiment this is; by default 0."""
        return 0

    @property
    def root_dir(self) -> str | None:
        """Folder of all versions of the experiment, or `None` if nothing is kept in local files."""
        return None

    @property
    def log_dir(self) -> str | None:
        """Folder of this version, or `None` if nothing is kept in local files."""
        return None

    @property
    def save_dir(self) -> str | None:
        """Folder that the logger was given, or `None` if nothing is kept in local files."""
        return None

    @property
    def group_separator(self) -> str:
        """What stands between a group's name and a metric's, ``train/loss``."""
        return "/"

    @abstractmethod
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record values.

        Args:
            metrics: Name to value.
            step: Number of the optimizer step they belong to.
        """

    @abstractmethod
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Record hyperparameters.

        Args:
            params: Name to value.
            args: For the logger at hand.
            kwargs: For the logger at hand.
        """

    def log_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Record the run's configuration; nothing by default, since ``run.jsonl`` in the log folder has it.

        Override it in a logger that keeps its values elsewhere. Called at the start of a run, after `log_hyperparams`.

        Args:
            manifest: Sections of plain values; see `fulmen.trainer.run_manifest`.
        """
        return None

    def log_graph(self, model: Module, input_array: Tensor | None = None) -> None:
        """Record the model's graph; nothing by default.

        Args:
            model: The model.
            input_array: What to call it with; the model's `example_input_array` if not given.
        """
        return None

    def save(self) -> None:
        """Write to disk what is still in memory."""
        return None

    def finalize(self, status: str) -> None:
        """Finish the run: write everything, close handles. May come more than once (`fit`, then `test`).

        Args:
            status: ``"success"``, ``"failed"`` or another word for how it ended.
        """
        self.save()

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Called after a checkpoint callback has written a file.

        Args:
            checkpoint_callback: That callback.
        """
        return None

    def rewind(self, step: int) -> None:
        """Called when a run is resumed in this logger's folder: forget what a lost part of the run wrote.

        Args:
            step: The number of steps the resumed run has behind it, which is the first step it will log (again).
                Records of this step and later ones go, earlier ones stay.
        """
        return None

    def position(self) -> Any:
        """What a checkpoint keeps, as plain values, to forget exactly what is recorded after it; `None` for nothing."""
        return None

    def go_back(self, position: Any) -> bool:
        """Called when a run is resumed, before `rewind`: forget what was recorded after `position` was returned.

        Args:
            position: What `position` returned when the checkpoint was written.

        Returns:
            Whether that was done; if not, `rewind` is called.
        """
        return False


def check_axis(axis: Any, owner: str) -> str | None:
    """Return a logger's `axis` if it can be one.

    Raises:
        ArgumentTypeError: If it is no text.
        ArgumentValueError: If it is empty.
    """
    if axis is not None and not isinstance(axis, str):
        raise ArgumentTypeError(f"{owner}(axis={axis!r}): expected a text or None, got {type(axis).__name__}.")
    if axis == "":
        raise ArgumentValueError(
            f"{owner}(axis=''): give 'step', 'epoch', 'samples', 'tokens', 'time' or the name of a logged value."
        )
    return axis


class DummyExperiment:
    """A raw handle that accepts everything and does nothing; what ranks other than zero get."""

    def nop(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        # Python's own protocols (copy, pickle, numpy) must not find methods that return None.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.nop

    def __getitem__(self, index: Any) -> DummyExperiment:
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        pass


def rank_zero_experiment(fn: Callable[[Any], T]) -> Callable[[Any], T]:
    """Decorate a getter of the raw handle so that ranks other than zero get a `DummyExperiment` instead.

    Args:
        fn: Takes the logger, returns its raw handle.
    """

    @functools.wraps(fn)
    def experiment(self: Any) -> Any:
        return fn(self) if rank_zero_only.rank == 0 else DummyExperiment()

    return experiment


class DummyLogger(Logger):
    """A logger that keeps nothing and answers every call, for `fast_dev_run` and the like."""

    def __init__(self) -> None:
        self._experiment = DummyExperiment()

    @property
    def experiment(self) -> DummyExperiment:
        """The raw handle, on which every method does nothing."""
        return self._experiment

    @property
    def name(self) -> str:
        """Empty."""
        return ""

    @property
    def version(self) -> str:
        """Empty."""
        return ""

    def log_metrics(self, metrics: Mapping[str, Any] | None = None, step: int | None = None, **kwargs: Any) -> None:
        """Do nothing."""

    def log_hyperparams(self, params: Any = None, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def __getitem__(self, index: int) -> DummyLogger:
        # `trainer.loggers`-like use: logger[0].experiment.add_image(...)
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return DummyExperiment().nop

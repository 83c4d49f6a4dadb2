"""Metrics, hyperparameters and the model's graph as TensorBoard event files."""

from __future__ import annotations

import inspect
import os
import warnings
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fulmen.errors import ArgumentTypeError, PossibleUserWarning, suggest, warn
from fulmen.loggers import files
from fulmen.loggers.hparams_file import NAME_HPARAMS_FILE, save_hparams_to_yaml
from fulmen.loggers.logger import Logger, check_axis, rank_zero_experiment
from fulmen.loggers.values import scalar, step_number
from fulmen.types import PathOrStr
from fulmen.utilities.imports import module_available
from fulmen.utilities.logger import add_prefix, convert_params, flatten_params, sanitize_params
from fulmen.utilities.rank_zero import rank_zero_only
from fulmen.utilities.seed import isolate_rng

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.utils.tensorboard import SummaryWriter

_HP_METRIC = "hp_metric"


@runtime_checkable
class _MovesBatches(Protocol):
    """A module with Lightning's data hooks."""

    device: Any

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any: ...

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any: ...

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any: ...


class TensorBoardLogger(Logger):
    """Log to ``<save_dir>/<name>/version_<n>/`` as TensorBoard event files, through `torch.utils.tensorboard`.

    Needs the package ``tensorboard`` (``pip install fulmen[tensorboard]``). Figures, images, text, histograms and
    everything else go through the raw handle: ``logger.experiment.add_figure("confusion", figure, step)``.

    Args:
        save_dir: Folder (or fsspec URL) for all experiments.
        name: Folder of the experiment below it; `None` or an empty text for none.
        version: Number n of the folder ``version_<n>``, a text for a folder of that name, or `None` for the next free
            number, looked up when first needed.
        log_graph: Whether `log_graph` records the model's graph; it needs the model's `example_input_array`.
        default_hp_metric: Whether `log_hyperparams` without metrics also writes a placeholder ``hp_metric`` of -1.
        prefix: Put before each metric's name, with a ``-`` between.
        sub_dir: A further folder below the version's, for the event files.
        axis: x axis of values that are logged without one (see `LightningModule.log`).
        **kwargs: For `torch.utils.tensorboard.SummaryWriter`: ``max_queue``, ``flush_secs``, ``filename_suffix``,
            ``comment``, ``purge_step``.

    Raises:
        ModuleNotFoundError: If ``tensorboard`` is not installed.
        ArgumentTypeError: If an argument has a wrong type, or `SummaryWriter` does not know it.
        ArgumentValueError: If `version` is negative or `axis` is empty.
    """

    LOGGER_JOIN_CHAR = "-"
    NAME_HPARAMS_FILE = NAME_HPARAMS_FILE

    def __init__(
        self,
        save_dir: PathOrStr,
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        log_graph: bool = False,
        default_hp_metric: bool = True,
        prefix: str = "",
        sub_dir: PathOrStr | None = None,
        *,
        axis: str | None = None,
        **kwargs: Any,
    ) -> None:
        owner = type(self).__name__
        self.axis = check_axis(axis, owner)
        if not module_available("tensorboard"):
            raise ModuleNotFoundError(
                f"{owner} needs the package `tensorboard`, which is not installed. Install it with "
                "`pip install fulmen[tensorboard]`, or use `CSVLogger`, which needs nothing.",
                name="tensorboard",
            )
        self._save_dir = files.check_path(save_dir, "save_dir", owner)
        self._name = files.check_text(name, "name", owner)
        self._version = files.check_version(version, owner)
        self._kept_step = -1
        self._kept_tags: set[str] = set()  # of the last step that `rewind` kept
        self._log_graph = _check_flag(log_graph, "log_graph", owner)
        self._default_hp_metric = _check_flag(default_hp_metric, "default_hp_metric", owner)
        self._prefix = files.check_text(prefix, "prefix", owner)
        self._sub_dir = None if sub_dir is None else files.check_path(sub_dir, "sub_dir", owner)
        if kwargs:
            _check_writer_arguments(kwargs, owner)
        self._kwargs = kwargs
        self._experiment: SummaryWriter | None = None
        self.hparams: dict[str, Any] = {}
        self._hparams_on_disk = False

    @property
    def name(self) -> str:
        """Name of the experiment's folder; empty for none."""
        return self._name

    @property
    def version(self) -> int | str:
        """The version given, else the next free number, fixed when first asked for."""
        if self._version is None:
            self._version = files.next_version(files.local(self.root_dir))
        return self._version

    def go_on_in(self, folder: str) -> None:
        """Go on in the folder of an earlier version, if none was given or chosen yet."""
        if self._version is None:
            self._version = files.version_of(folder)

    @property
    def save_dir(self) -> str:
        """The folder given."""
        return self._save_dir

    @property
    def root_dir(self) -> str:
        """Folder of all versions: ``save_dir/name``."""
        return os.path.join(files.local(self._save_dir), self._name)

    @property
    def sub_dir(self) -> str | None:
        """The further folder below the version's, if any."""
        return self._sub_dir

    @property
    def log_dir(self) -> str:
        """Folder of the event files: ``save_dir/name/version_<n>``, and ``sub_dir`` below it if given."""
        version = self.version
        folder = os.path.join(self.root_dir, version if isinstance(version, str) else f"version_{version}")
        return folder if self._sub_dir is None else files.local(os.path.join(folder, self._sub_dir))

    @property
    @rank_zero_experiment
    def experiment(self) -> SummaryWriter:
        """The raw `SummaryWriter`; opens an event file when first asked for. Off rank zero a `DummyExperiment`."""
        if self._experiment is None:
            self._experiment = self._open()
        return self._experiment

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Add one point per metric.

        Args:
            metrics: Name to value; a mapping as value draws its entries into one chart (`add_scalars`). NaN and
                infinities are recorded as such.
            step: Number of the step; 0 if not given.

        Raises:
            LoggingError: If a value is not a number or a tensor with one element.
        """
        writer = self.experiment
        owner = type(self).__name__
        if step is not None:
            step = step_number(step, owner)
        for key, value in add_prefix(metrics, self._prefix, self.LOGGER_JOIN_CHAR).items():
            if step == self._kept_step and key in self._kept_tags:
                continue
            if isinstance(value, Mapping):
                writer.add_scalars(key, {k: self._number(f"{key}/{k}", v) for k, v in value.items()}, step)
            else:
                writer.add_scalar(key, self._number(key, value), step)

    @rank_zero_only
    def log_hyperparams(
        self,
        params: Mapping[str, Any] | Namespace,
        metrics: Mapping[str, Any] | float | None = None,
        step: int | None = None,
    ) -> None:
        """Record hyperparameters in ``hparams.yaml`` and for TensorBoard's table of runs.

        Without `metrics` the table shows all metrics of the run with their last values; with `metrics` only these.

        Args:
            params: Name to value, may be nested.
            metrics: Values to show beside them; a single number is called ``hp_metric``.
            step: Number of the step of these values.
        """
        params = convert_params(params)
        self.hparams.update(params)
        self._hparams_on_disk = False
        listed: list[str] = []
        if metrics is not None:
            metrics = dict(metrics) if isinstance(metrics, Mapping) else {_HP_METRIC: metrics}
            listed = list(add_prefix(metrics, self._prefix, self.LOGGER_JOIN_CHAR))
        elif self._default_hp_metric:
            metrics = {_HP_METRIC: -1}
        if metrics:
            self.log_metrics(metrics, step)
        self._write_session(params, listed, step)

    @rank_zero_only
    def log_graph(self, model: Module, input_array: Any = None) -> None:
        """Record the model's graph, if the logger was made with ``log_graph=True``.

        The model is traced in evaluation mode; its modes and the random state are put back. A model that cannot be
        traced gives a warning, not an error.

        Args:
            model: The model.
            input_array: A tensor or a tuple of positional arguments; the model's `example_input_array` if not given.
        """
        import torch

        if not self._log_graph:
            return
        inputs = getattr(model, "example_input_array", None) if input_array is None else input_array
        if inputs is None:
            _graph_warning(
                "the model has no `example_input_array` and no `input_array` was given. Set "
                "`self.example_input_array = torch.zeros(...)` in the model's constructor"
            )
        elif not isinstance(inputs, (torch.Tensor, tuple)):
            _graph_warning(
                f"its example input is a {type(inputs).__name__}, which cannot be traced. Make it a tensor or a tuple "
                "of the positional arguments of `forward`"
            )
        else:
            self._trace(model, inputs)

    @rank_zero_only
    def save(self) -> None:
        """Write waiting events to disk, and ``hparams.yaml`` if the hyperparameters changed or it is missing."""
        self.experiment.flush()
        self._save_hparams()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write everything and close the event file. A logger that was never used creates nothing."""
        if self._experiment is not None:
            self._experiment.flush()
            self._experiment.close()
            self._save_hparams()

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Hide events of `step` and later from TensorBoard; see `Logger.rewind`.

        Event files only grow, so nothing is deleted: a mark in a new file tells readers to drop what came before it
        from this step on. Of the step before, what is there stays, and is not written a second time.
        """
        folder = self.log_dir
        marked = [part for part in (folder, *_below(folder)) if _has_events(part)]
        if not marked:
            return
        if self._experiment is not None:
            self._experiment.close()
        from torch.utils.tensorboard import SummaryWriter

        for part in marked:
            if part != folder:  # charts with several lines have one folder each
                SummaryWriter(part, purge_step=step).close()
        self._kept_step, self._kept_tags = step - 1, _tags_at(folder, step - 1)
        self._experiment = self._open(purge_step=step)

    def _open(self, **more: Any) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(log_dir=self.log_dir, **{**self._kwargs, **more})

    def _number(self, key: str, value: Any) -> Any:
        return scalar(key, value, type(self).__name__, numbers_only=True)

    def _write_session(self, params: dict[str, Any], listed: list[str], step: int | None) -> None:
        """Write the row of this run in the table.

        TensorBoard takes one run's list of metrics for all runs of the table, and without any finds them by itself. So
        a list is written only if the caller named metrics; a placeholder in it would hide all others.
        """
        from torch.utils.tensorboard.summary import hparams

        flat = {key: _table_cell(value) for key, value in sanitize_params(flatten_params(params)).items()}
        columns, start, end = hparams(flat, dict.fromkeys(listed, 0.0))
        target: Any = self.experiment.file_writer
        if target is None:  # closed by `finalize` of an earlier run; a new one is opened like the first
            self._experiment = self._open()
            target = self._experiment.file_writer
        for summary in (columns, start, end) if listed else (start, end):
            target.add_summary(summary, step)

    def _save_hparams(self) -> None:
        path = os.path.join(self.log_dir, self.NAME_HPARAMS_FILE)
        if not files.is_folder(self.log_dir):
            return
        if (self.hparams and not self._hparams_on_disk) or not files.is_file(path):
            save_hparams_to_yaml(path, self.hparams)
        self._hparams_on_disk = True

    def _trace(self, model: Module, inputs: Any) -> None:
        modes = [(module, module.training) for module in model.modules()]
        try:
            with isolate_rng(), warnings.catch_warnings():
                # `add_graph` knows no other way than torch.jit.trace; the user cannot act on it.
                warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
                if isinstance(model, _MovesBatches):
                    inputs = model.on_before_batch_transfer(inputs, 0)
                    inputs = model.transfer_batch_to_device(inputs, model.device, 0)
                    inputs = model.on_after_batch_transfer(inputs, 0)
                self.experiment.add_graph(model, inputs)
        except Exception as error:
            reason = str(error).strip().splitlines()
            _graph_warning(f"tracing failed with {type(error).__name__}: {reason[0].rstrip('.') if reason else ''}")
        finally:
            for module, training in modes:
                module.training = training

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_experiment": None}


def _table_cell(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _check_flag(value: Any, argument: str, owner: str) -> bool:
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{owner}({argument}={value!r}): expected True or False, got {type(value).__name__}.")
    return value


def _check_writer_arguments(kwargs: dict[str, Any], owner: str) -> None:
    from torch.utils.tensorboard import SummaryWriter

    known = [name for name in inspect.signature(SummaryWriter).parameters if name != "log_dir"]
    own = ["save_dir", "name", "version", "log_graph", "default_hp_metric", "prefix", "sub_dir", "axis"]
    for name, value in kwargs.items():
        if name == "log_dir":
            raise ArgumentTypeError(
                f"{owner}(log_dir={value!r}): the folder is made of save_dir, name and version. Use "
                f"{owner}(save_dir={value!r}, name='', version='') to write into exactly this folder."
            )
        if name not in known:
            raise ArgumentTypeError(
                f"{owner}({name}={value!r}): neither {owner} nor SummaryWriter has an argument {name!r}."
                f"{suggest(name, own + known)} SummaryWriter takes {', '.join(known)}."
            )


def _graph_warning(reason: str) -> None:
    warn("W304", f"The model's graph is not logged: {reason}.", key=reason, category=PossibleUserWarning, stacklevel=4)


def _below(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in files.entries(folder)[0]]


def _tags_at(folder: str, step: int) -> set[str]:
    """Names of the points that event files of a folder hold for a step."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    _, names = files.entries(folder)
    events = (
        event
        for name in names
        if "tfevents" in name
        for event in EventFileLoader(os.path.join(folder, name)).Load()
        if event.step == step
    )
    return {value.tag for event in events for value in event.summary.value}


def _has_events(folder: str) -> bool:
    return any(name.startswith("events.out.tfevents") for name in files.entries(folder)[1])

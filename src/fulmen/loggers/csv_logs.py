"""Metrics as ``metrics.csv`` and hyperparameters as ``hparams.yaml`` in a folder."""

from __future__ import annotations

import csv
import io
import os
from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError, warn
from fulmen.loggers import files
from fulmen.loggers.hparams_file import NAME_HPARAMS_FILE, save_hparams_to_yaml
from fulmen.loggers.logger import Logger, check_axis, rank_zero_experiment
from fulmen.loggers.values import scalar, step_number
from fulmen.types import PathOrStr
from fulmen.utilities.logger import add_prefix, convert_params
from fulmen.utilities.rank_zero import rank_zero_only

# In every row, so their second appearance at a step is no repetition.
_ROW_KEYS = frozenset({"step", "epoch"})


class ExperimentWriter:
    """What `CSVLogger.experiment` returns: rows in memory, and the two files they go to.

    A metrics file that is already there is continued: its rows are kept, new ones follow. Columns are sorted by name.
    A row is appended in time that does not depend on the rows before it; only a new column rewrites the file
    (atomically, with the waiting rows).

    Args:
        log_dir: Folder of the files; created if needed.
    """

    NAME_METRICS_FILE = "metrics.csv"
    NAME_HPARAMS_FILE = NAME_HPARAMS_FILE

    def __init__(self, log_dir: PathOrStr) -> None:
        self.log_dir = files.local(os.fspath(log_dir))
        self.metrics: list[dict[str, Any]] = []
        self.metrics_keys: list[str] = []
        self.hparams: dict[str, Any] = {}
        self.metrics_file_path = os.path.join(self.log_dir, self.NAME_METRICS_FILE)
        self._file = files.AppendFile(self.metrics_file_path)
        self._known: set[str] = set()
        self._last_step: int | None = None
        self._rows = 0  # in the file
        self._earlier_rows = False
        # Cells of the last step that `rewind` kept: what is done again after a resume logs them at the same step.
        self._kept_step = -1
        self._kept_cells: dict[str, str] = {}
        files.make_folder(self.log_dir)
        self._continue_file()

    def log_metrics(self, metrics_dict: Mapping[str, Any], step: int | None = None) -> None:
        """Add one row.

        Args:
            metrics_dict: Column to value; a mapping as value fills one column ``key/name`` for each of its entries.
            step: Value of the column ``step``; one more than the row before if not given.

        Raises:
            LoggingError: If a value is not a number, a text or a tensor with one element.
        """
        row: dict[str, Any] = {}
        for key, value in metrics_dict.items():
            if isinstance(value, Mapping):
                row.update(
                    {f"{key}/{name}": scalar(f"{key}/{name}", item, "CSVLogger") for name, item in value.items()}
                )
            else:
                row[key] = scalar(key, value, "CSVLogger")
        if step is None:
            step = 0 if self._last_step is None else self._last_step + 1
        else:
            step = step_number(step, "CSVLogger")
        row["step"] = step
        cells = len(row)
        if self._earlier_rows:
            self._meet_earlier_rows(row, step)
        self._last_step = step
        if len(row) == cells or row.keys() - _ROW_KEYS:  # else all of it is there already
            self.metrics.append(row)

    def log_hparams(self, params: Mapping[str, Any]) -> None:
        """Add hyperparameters and write them to ``hparams.yaml``."""
        self.hparams.update(params)
        save_hparams_to_yaml(os.path.join(self.log_dir, self.NAME_HPARAMS_FILE), self.hparams)

    def save(self) -> None:
        """Write the rows in memory to the file."""
        if not self.metrics:
            return
        rows, self.metrics = self.metrics, []
        new = set().union(*rows) - self._known
        try:
            if new:
                self._grow(new, rows)
            else:
                self._file.append(_csv_text(self.metrics_keys, rows))
                self._rows += len(rows)
        except BaseException:
            self.metrics = rows + self.metrics  # a full disk may have room again later
            raise

    def rewind(self, step: int) -> None:
        """Drop the rows of `step` and later; see `Logger.rewind`."""
        self.metrics = [row for row in self.metrics if row["step"] < step]
        last: int | None = None
        kept: dict[str, str] = {}
        dropped = False

        def keep(row: dict[str, Any]) -> bool:
            nonlocal last, dropped
            at = _step_of(row)
            if at is not None and at >= step:
                dropped = True
                return False
            if at is not None:
                if last is None or at > last:
                    last = at
                    kept.clear()
                if at == last:
                    kept.update((key, str(value)) for key, value in row.items() if value not in ("", None))
            return True

        columns, rows = self._read()
        rows = [row for row in rows if keep(row)]
        if dropped:
            self._replace(columns, rows)
        for row in self.metrics:
            keep(row)
        self._last_step = last
        self._kept_step = -1 if last is None else last
        self._kept_cells = {key: text for key, text in kept.items() if key not in _ROW_KEYS}
        self._earlier_rows = last is not None

    def position(self) -> dict[str, Any]:
        """Where the file is, how many rows it has, and the step of the last."""
        return {
            "folder": os.path.abspath(self.log_dir),
            "rows": self._rows + len(self.metrics),
            "last": self._last_step,
        }

    def go_back(self, position: Mapping[str, Any]) -> bool:
        """Drop all rows after those of `position`; `False` if this is not the file that it was taken of."""
        if position["folder"] != os.path.abspath(self.log_dir):
            return False
        self.save()
        columns, rows = self._read()
        number = position["rows"]
        if len(rows) < number or (number and _step_of(rows[number - 1]) != position["last"]):
            return False
        if len(rows) > number:
            self._replace(columns, rows[:number])
        self._last_step = position["last"]
        self._earlier_rows, self._kept_step, self._kept_cells = False, -1, {}
        return True

    def close(self) -> None:
        """Write the rows in memory and close the file; logging may go on after it."""
        self.save()
        self._file.close()

    def _continue_file(self) -> None:
        if not files.is_file(self.metrics_file_path):
            return
        files.cut_torn_line(self.metrics_file_path)
        self.metrics_keys, rows = self._read()
        self._known = set(self.metrics_keys)
        self._rows = len(rows)
        if rows:
            self._last_step = _step_of(rows[-1])
            self._earlier_rows = self._last_step is not None

    def _meet_earlier_rows(self, row: dict[str, Any], step: int) -> None:
        """Look at a new row as long as it may repeat rows that were there when this writer started."""
        if step == self._kept_step:
            again = self._kept_cells.keys() & row.keys()
            same = {key for key in again if self._kept_cells[key] == str(row[key])}
            for key in same:
                del row[key]  # it stays in the row where it was
            if again - same:
                self._forget(step, again - same)
            self._kept_cells = {key: text for key, text in self._kept_cells.items() if key not in again}
        elif self._last_step is not None and step < self._last_step:
            warn(
                "W301",
                f"{self.metrics_file_path} has rows up to step {self._last_step} of an earlier run; they are kept, and "
                f"the rows of this run follow them, beginning at step {step}. Use another `version` (or None for the "
                "next free one) for a new run.",
                key=self.metrics_file_path,
                stacklevel=5,
            )
        if step != self._kept_step:
            self._earlier_rows = False

    def _forget(self, step: int, keys: set[str]) -> None:
        """Empty the cells of these keys at a step; rows left without a value go."""

        def emptied(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
            left = []
            for row in rows:
                if _step_of(row) != step or not keys & row.keys():
                    left.append(row)
                    continue
                rest = {key: value for key, value in row.items() if key not in keys}
                if any(value not in ("", None) for key, value in rest.items() if key not in _ROW_KEYS):
                    left.append(rest)
            return left

        self.metrics = emptied(self.metrics)
        columns, rows = self._read()
        self._replace(columns, emptied(rows))

    def _grow(self, new: set[str], rows: list[dict[str, Any]]) -> None:
        _, earlier = self._read()
        self._replace(sorted(self._known | new), [*earlier, *rows])

    def _replace(self, columns: list[str], rows: Iterable[Mapping[str, Any]]) -> None:
        self._file.close()  # the handle would go on writing to the file that is replaced
        rows = list(rows)
        self._rows = len(rows)
        header = _csv_text(columns, [dict(zip(columns, columns, strict=True))])
        files.replace_text(self.metrics_file_path, header + _csv_text(columns, rows))
        self.metrics_keys = columns
        self._known = set(columns)

    def _read(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return columns and rows of the file, cells as text; nothing if there is none."""
        if not files.is_file(self.metrics_file_path):
            return [], []
        reader = csv.reader(io.StringIO(files.read_text(self.metrics_file_path), newline=""))
        columns = next(reader, [])
        return columns, [dict(zip(columns, row, strict=False)) for row in reader if row]


class CSVLogger(Logger):
    """Log to ``<save_dir>/<name>/version_<n>/`` as CSV (metrics) and YAML (hyperparameters).

    Rows that the folder already has are kept: a resumed run appends to them.

    Args:
        save_dir: Folder (or fsspec URL) for all experiments.
        name: Folder of the experiment below it; `None` or an empty text for none.
        version: Number n of the folder ``version_<n>``, a text for a folder of that name, or `None` for the next free
            number, looked up when first needed.
        prefix: Put before each metric's name, with a ``-`` between.
        flush_logs_every_n_steps: Rows are written to disk at each step whose number plus one is a multiple of this,
            and by `save` and `finalize`.
        axis: x axis of values that are logged without one (see `LightningModule.log`), as a column beside ``step``.

    Raises:
        ArgumentTypeError: If an argument has a wrong type.
        ArgumentValueError: If `version` is negative, `flush_logs_every_n_steps` is below 1, or `axis` is empty.
    """

    LOGGER_JOIN_CHAR = "-"
    axis_as_column = True

    def __init__(
        self,
        save_dir: PathOrStr,
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
        *,
        axis: str | None = None,
    ) -> None:
        owner = type(self).__name__
        self.axis = check_axis(axis, owner)
        self._save_dir = files.check_path(save_dir, "save_dir", owner)
        self._name = files.check_text(name, "name", owner)
        self._version = files.check_version(version, owner)
        self._prefix = files.check_text(prefix, "prefix", owner)
        if isinstance(flush_logs_every_n_steps, bool) or not isinstance(flush_logs_every_n_steps, int):
            raise ArgumentTypeError(
                f"{owner}(flush_logs_every_n_steps={flush_logs_every_n_steps!r}): expected an int, got "
                f"{type(flush_logs_every_n_steps).__name__}."
            )
        if flush_logs_every_n_steps < 1:
            raise ArgumentValueError(
                f"{owner}(flush_logs_every_n_steps={flush_logs_every_n_steps}): must be at least 1; 1 writes at every "
                "step, a large number only in `save` and `finalize`."
            )
        self._flush_logs_every_n_steps = flush_logs_every_n_steps
        self._experiment: ExperimentWriter | None = None

    @property
    def name(self) -> str:
        """Name of the experiment's folder; empty for none."""
        return self._name

    @property
    def version(self) -> int | str:
        """The version given, else the next free number, fixed when first asked for."""
        if self._version is None:
            self._version = files.next_version(self.root_dir)
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
    def log_dir(self) -> str:
        """Folder of this version: ``save_dir/name/version_<n>``, or with the version's text."""
        version = self.version
        return os.path.join(self.root_dir, version if isinstance(version, str) else f"version_{version}")

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The raw writer; creates the folder when first asked for. Off rank zero a `DummyExperiment`."""
        if self._experiment is None:
            self._experiment = ExperimentWriter(self.log_dir)
        return self._experiment

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Add one row; see `ExperimentWriter.log_metrics`."""
        writer = self.experiment
        writer.log_metrics(add_prefix(metrics, self._prefix, self.LOGGER_JOIN_CHAR), step)
        if writer.metrics and (writer.metrics[-1]["step"] + 1) % self._flush_logs_every_n_steps == 0:
            writer.save()

    @rank_zero_only
    def log_hyperparams(self, params: Mapping[str, Any] | Namespace | None = None, *args: Any, **kwargs: Any) -> None:
        """Write hyperparameters to ``hparams.yaml``, with those of earlier calls.

        Args:
            params: Name to value.
            args: Not used; other loggers take metrics here.
            kwargs: Not used.
        """
        self.experiment.log_hparams(convert_params(params))

    @rank_zero_only
    def save(self) -> None:
        """Write the rows in memory to disk."""
        self.experiment.save()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write the rows in memory and close the file. A logger that was never used creates nothing."""
        if self._experiment is not None:
            self._experiment.close()

    def position(self) -> dict[str, Any] | None:
        """See `ExperimentWriter.position`."""
        return self._experiment.position() if self._experiment is not None else None

    def go_back(self, position: Any) -> bool:
        """Drop the rows that were written after a checkpoint; see `Logger.go_back`."""
        if rank_zero_only.rank != 0 or not files.is_file(
            os.path.join(self.log_dir, ExperimentWriter.NAME_METRICS_FILE)
        ):
            return False
        return bool(self.experiment.go_back(position))

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Drop the rows of `step` and later from the file; see `Logger.rewind`."""
        if self._experiment is not None or files.is_file(
            os.path.join(self.log_dir, ExperimentWriter.NAME_METRICS_FILE)
        ):
            self.experiment.rewind(step)

    def __getstate__(self) -> dict[str, Any]:
        # Rows in memory stay with the original, which will write them; a copy reads the file when first used.
        return {**self.__dict__, "_experiment": None}


def _csv_text(columns: list[str], rows: Iterable[Mapping[str, Any]]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([row.get(column, "") for column in columns] for row in rows)
    return buffer.getvalue()


def _step_of(row: Mapping[str, Any]) -> int | None:
    value = row.get("step")
    try:
        return int(float(value)) if value not in ("", None) else None
    except (ValueError, OverflowError):
        return None

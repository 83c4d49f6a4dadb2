"""Where monitors, loggers and the bar read logged values: live values over those of stages that are past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from fulmen.engine.hooks.running import Cursor
from fulmen.engine.results.axes import STEP, Axes, axis_of
from fulmen.engine.results.store import View, to_numbers
from fulmen.errors import PossibleUserWarning, warn
from fulmen.loggers.sender import RowSender


class MetricsHub:
    """The three dictionaries that `trainer.callback_metrics`, `.logged_metrics`, `.progress_bar_metrics` return.

    Args:
        cursor: Its `results` is the store in use.
        loggers: Gives the loggers in use.
        record: Called with kind and fields for the run record; `None` for none.
        sender: Sends rows to loggers; a plain one if not given.
    """

    def __init__(
        self,
        cursor: Cursor,
        loggers: Callable[[], Iterable[Any]],
        record: Callable[..., None] | None = None,
        sender: RowSender | None = None,
    ) -> None:
        self.sender = RowSender() if sender is None else sender
        self.cursor = cursor
        self.loggers = loggers
        self.record = record
        self.axes = Axes()
        self.rows = 0
        self._callback: dict[str, Tensor] = {}
        self._logged: dict[str, Tensor] = {}
        self._bar: dict[str, float | Tensor] = {}  # numbers once the bar has read them

    def reset(self) -> None:
        """Forget everything (a new run begins)."""
        self.rows = 0
        self._callback = {}
        self._logged = {}
        self._bar = {}

    def state_dict(self) -> dict[str, Any]:
        """All three dictionaries as they read now, and the counts of axes; nothing is changed."""
        live = self.cursor.results.view() if self.cursor.results is not None else View()
        return {
            "callback": {**self._callback, **live.callback},
            "logged": {**self._logged, **live.log},
            "bar": {**self._bar, **live.bar},
            "axes": self.axes.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        self._callback = dict(state_dict["callback"])
        self._logged = dict(state_dict["logged"])
        self._bar = dict(state_dict["bar"])
        if "axes" in state_dict:  # files of earlier versions have none
            self.axes.load_state_dict(state_dict["axes"])

    def keep(self) -> View:
        """Keep the live values, before another store takes over or is reset; returns them."""
        results = self.cursor.results
        if results is None:
            return View()
        view = results.view()
        self._callback.update(view.callback)
        self._logged.update(view.log)
        self._bar.update(view.bar)
        return view

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Add values that monitors may read."""
        self._callback.update(metrics)

    def note(self, kind: str, **fields: Any) -> None:
        """Write an entry of the run record, if there is one."""
        if self.record is not None:
            self.record(kind, **fields)

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """Values for monitors, as 0-dim tensors."""
        if self.cursor.results is not None:
            self._callback.update(self.cursor.results.view().callback)
        return self._callback

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        """Values that loggers get, as 0-dim tensors."""
        if self.cursor.results is not None:
            self._logged.update(self.cursor.results.view().log)
        return self._logged

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """Values for the bar, as numbers; reading them is one transfer."""
        if self.cursor.results is not None:
            self._bar.update(self.cursor.results.view().bar)
        tensors = {key: value for key, value in self._bar.items() if isinstance(value, Tensor)}
        self._bar.update(to_numbers(tensors))
        return dict(self._bar)  # type: ignore[arg-type]  # all are numbers now

    def write(self, metrics: Mapping[str, Any], *, step: int | None, epoch: int, default_step: int) -> None:
        """Send values to all loggers and the record.

        Args:
            metrics: 0-dim tensors or numbers by key; a key `step` gives the x value.
            step: x value; if `None`, the key `step`, else `default_step` (and the key `epoch` is added).
            epoch: Current epoch.
            default_step: Number of batches that stepped.
        """
        if not metrics:
            return
        loggers = list(self.loggers())
        if not loggers and self.record is None:
            return
        if loggers:
            self._logged.update((name, value) for name, value in metrics.items() if isinstance(value, Tensor))
        numbers = to_numbers(dict(metrics))
        if step is None:
            own = numbers.pop("step", None)
            if own is not None:
                step = int(own)
            else:
                numbers.setdefault("epoch", epoch)
                step = default_step
        self.rows += len(loggers)
        for logger in loggers:
            if self.axes.keys or axis_of(logger) is not None:
                self._write_by_axes(logger, numbers, step, epoch)
            else:
                self.sender.send(logger, dict(numbers), step)  # a logger may change what it is given
        if self.record is not None:
            self.record("metrics", step=step, values=numbers)

    def _write_by_axes(self, logger: Any, numbers: dict[str, Any], step: int, epoch: int) -> None:
        """One row per axis: at the axis' own x value, or with it in a column beside the step."""
        column = getattr(logger, "axis_as_column", False)
        beside = {"epoch": numbers["epoch"]} if "epoch" in numbers else {}
        values = {key: value for key, value in numbers.items() if key not in beside}
        for axis, part in self.axes.split(values, axis_of(logger)).items():
            if axis == STEP:
                self.sender.send(logger, {**part, **beside}, step)
                continue
            x = self.axes.value(axis, numbers, {**self._callback, **self._logged}, epoch)
            if column:
                self.sender.send(logger, {**part, **beside, axis: x}, step)
            else:
                self.sender.send(logger, part, int(x))

    def warn_of_silence(self, *, log_every: int, batches: int) -> None:
        """Say at the end of a fit that its loggers got nothing although step values were logged.

        Args:
            log_every: Rows are written each so many batches; 0 if nobody wants them.
            batches: Batches that ended an accumulation window.
        """
        results, loggers = self.cursor.results, list(self.loggers())
        if self.rows or not loggers or not log_every or not batches or results is None or not results.logs_steps:
            return
        names = ", ".join(sorted({type(logger).__name__ for logger in loggers}))
        warn(
            "W208",
            f"{names} got no value in the whole run: it made {batches} steps, and step values are written "
            f"each Trainer(log_every_n_steps={log_every}) of them. Set log_every_n_steps to at most {batches}, or log "
            "with on_epoch=True.",
            category=PossibleUserWarning,
        )

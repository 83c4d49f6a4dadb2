"""The bar for terminals, drawn with rich. It starts no thread: hooks draw it, ten times a second at most."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich import get_console
from rich.console import Console
from rich.errors import LiveError
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.style import Style
from rich.text import Text

from fulmen.callbacks.console import format_metric, format_seconds
from fulmen.callbacks.progress.timed_progress import TimedProgressBar
from fulmen.callbacks.progress.whole_run import RunState, sooner
from fulmen.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class CustomBarColumn(BarColumn):
    """The bar itself; it pulses where the loader has no length."""


class CustomTimeColumn(ProgressColumn):
    """Time taken and time left."""

    max_refresh = 0.5  # seconds; digits that change faster cannot be read

    def __init__(self, style: str | Style) -> None:
        self.style = style
        super().__init__()

    def render(self, task: Task) -> Text:
        """Return ``0:00:12 • 0:01:40``."""
        left = sooner(_run_left(task) if "before" in task.fields else task.time_remaining, task.fields.get("most"))
        times = (task.finished_time if task.finished else task.elapsed, left)
        parts = ["-:--:--" if t is None else str(timedelta(seconds=int(t))) for t in times]
        return Text(" • ".join(parts), style=self.style)


class BatchesProcessedColumn(ProgressColumn):
    """Batches done of all."""

    def __init__(self, style: str | Style) -> None:
        self.style = style
        super().__init__()

    def render(self, task: Task) -> Text:
        """Return ``12/80``, or ``12/--`` without a length; times or epochs, where a run has no other end."""
        if task.fields.get("unit") == "seconds":
            return Text(f"{format_seconds(task.completed)}/{format_seconds(task.total)}", style=self.style)
        total = "--" if task.total is None or math.isinf(task.total) else int(task.total)
        epochs = " epochs" if task.fields.get("unit") == "epochs" else ""
        return Text(f"{int(task.completed)}/{total}{epochs}", style=self.style)


class ProcessingSpeedColumn(ProgressColumn):
    """Batches per second."""

    def __init__(self, style: str | Style) -> None:
        self.style = style
        super().__init__()

    def render(self, task: Task) -> Text:
        """Return ``123.45it/s``; nothing for a run that is not counted in batches."""
        if task.fields.get("unit", "batches") != "batches":
            return Text()
        speed = task.finished_speed if task.finished and task.finished_speed is not None else task.speed
        return Text(f"{speed or 0.0:.2f}it/s", style=self.style)


class MetricsTextColumn(ProgressColumn):
    """The values beside the training bar."""

    def __init__(self, trainer: Trainer, style: str | Style, text_delimiter: str, metrics_format: str) -> None:
        self.trainer = trainer
        self.style = style
        self.text_delimiter = text_delimiter
        self.metrics_format = metrics_format
        self.task_id: TaskID | None = None
        self._metrics: dict[str, Any] = {}
        super().__init__()

    def update(self, metrics: dict[str, Any]) -> None:
        """Take new values; they are drawn next time."""
        self._metrics = metrics

    def render(self, task: Task) -> Text:
        """Return ``loss: 0.123 acc: 0.900`` for the training bar, nothing for others."""
        if task.id != self.task_id:
            return Text()
        return Text(self.text_delimiter.join(self._texts()), justify="left", style=self.style)

    def _texts(self) -> Iterator[str]:
        for name, value in self._metrics.items():
            try:
                text = value if isinstance(value, str) else format(value, self.metrics_format)
            except (TypeError, ValueError):
                text = format_metric(value)
            yield f"{name}: {text}"


class CustomProgress(Progress):
    """Draws only when told to: rich itself would draw at each new task and each reset, thousands of times a second."""

    def refresh(self) -> None:
        """Do nothing; see `draw`."""

    def draw(self) -> None:
        """Draw now."""
        super().refresh()

    def begin_anew(self) -> None:
        """Start after a stop, below what is on the screen by now; the former display would be drawn over it."""
        self.live = Live(console=self.console, auto_refresh=False, get_renderable=self.get_renderable)
        self.start()


@dataclass
class RichProgressBarTheme:
    """Styles of the parts of the bar, in rich's words (a colour, ``"bold"``, a `Style`).

    Attributes:
        description: The name of the bar.
        progress_bar: The bar.
        progress_bar_finished: The bar once it is full.
        progress_bar_pulse: The bar of a loader without length.
        batch_progress: Batches done.
        time: Time taken and left.
        processing_speed: Batches per second.
        metrics: The values.
        metrics_text_delimiter: What stands between two values.
        metrics_format: Format of a value.
    """

    description: str | Style = ""
    progress_bar: str | Style = "#6206E0"
    progress_bar_finished: str | Style = "#6206E0"
    progress_bar_pulse: str | Style = "#6206E0"
    batch_progress: str | Style = ""
    time: str | Style = "dim"
    processing_speed: str | Style = "dim underline"
    metrics: str | Style = "italic"
    metrics_text_delimiter: str = " "
    metrics_format: str = ".3f"


class RichProgressBar(TimedProgressBar):
    """Progress on a terminal: the epoch with its values, validation while it runs, the whole run if asked for.

    Values are read and the bar is drawn ten times a second at most, less often where drawing is slow (2 % of the time
    goes into it), whatever `refresh_rate` says.

    Args:
        refresh_rate: Drawings per second; 0 switches the bar off, more than 10 is 10.
        leave: Keep the finished bar of each epoch on the screen.
        theme: Styles.
        console_kwargs: Arguments of a `rich.console.Console` to draw on; by default rich's own is used.
        total_bar: Also show one bar with time left over all epochs, or up to `max_steps`.

    Raises:
        ArgumentTypeError: An argument of the wrong type.
        ArgumentValueError: A negative `refresh_rate`.
    """

    def __init__(
        self,
        refresh_rate: int = 100,
        leave: bool = False,
        theme: RichProgressBarTheme = RichProgressBarTheme(),  # noqa: B008 (Lightning's signature; never changed here)
        console_kwargs: dict[str, Any] | None = None,
        *,
        total_bar: bool = False,
    ) -> None:
        where = "RichProgressBar"
        if isinstance(refresh_rate, bool) or not isinstance(refresh_rate, (int, float)):
            raise ArgumentTypeError(f"{where}(refresh_rate={refresh_rate!r}): give drawings per second as a number.")
        if not refresh_rate >= 0:
            raise ArgumentValueError(f"{where}(refresh_rate={refresh_rate!r}): give 0 (off) or more per second.")
        if not isinstance(theme, RichProgressBarTheme):
            raise ArgumentTypeError(f"{where}(theme={theme!r}): give a RichProgressBarTheme, or leave it out.")
        if console_kwargs is not None and not isinstance(console_kwargs, dict):
            raise ArgumentTypeError(f"{where}(console_kwargs={console_kwargs!r}): give a dict of Console's arguments.")
        super().__init__(1 / refresh_rate if refresh_rate else 1.0)
        self._refresh_rate = refresh_rate
        self._leave = leave
        self._console_kwargs = dict(console_kwargs or {})
        self._console: Console | None = None
        self._metric_component: MetricsTextColumn | None = None
        self._progress_stopped = False
        self.theme = dataclasses.replace(theme)
        self.total_bar = total_bar
        self.progress: CustomProgress | None = None
        self._reset_progress_bar_ids()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is on the screen."""
        live = {"progress": None, "_console": None, "_metric_component": None}
        return {**super().__getstate__(), **live, **dict.fromkeys(_IDS.values())}

    # ------------------------------------------------------------------------------------------- what subclasses read
    @property
    def refresh_rate(self) -> float:
        """Drawings per second that were asked for."""
        return self._refresh_rate

    @property
    def is_enabled(self) -> bool:
        """Whether the bar shows anything."""
        return self._enabled and self.refresh_rate > 0

    @property
    def train_progress_bar(self) -> Task:
        """Rich's task of the training bar."""
        return self._task("train")

    @property
    def val_sanity_check_bar(self) -> Task:
        """Rich's task of the sanity check's bar."""
        return self._task("sanity")

    @property
    def val_progress_bar(self) -> Task:
        """Rich's task of the validation bar."""
        return self._task("validate")

    @property
    def test_progress_bar(self) -> Task:
        """Rich's task of the test bar."""
        return self._task("test")

    def _task(self, stage: str) -> Task:
        task_id = getattr(self, _IDS[stage])
        if self.progress is None or task_id is None:
            raise TypeError(f"{type(self).__name__} has no bar for {stage!r} now; it is there while the stage runs.")
        return next(task for task in self.progress.tasks if task.id == task_id)

    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn]:
        """Return the columns before the values; override it to show others."""
        return [
            TextColumn("[progress.description]{task.description}"),
            CustomBarColumn(
                complete_style=self.theme.progress_bar,
                finished_style=self.theme.progress_bar_finished,
                pulse_style=self.theme.progress_bar_pulse,
            ),
            BatchesProcessedColumn(style=self.theme.batch_progress),
            CustomTimeColumn(style=self.theme.time),
            ProcessingSpeedColumn(style=self.theme.processing_speed),
        ]

    def refresh(self, hard: bool = False) -> None:
        """Draw if it is time, or now."""
        if self.progress is not None and (hard or self.is_due):
            self.progress.draw()

    # ---------------------------------------------------------------------------------------------------- the display
    def _init_progress(self, trainer: Trainer) -> None:
        if self.is_disabled or (self.progress is not None and not self._progress_stopped):
            return
        self._reset_progress_bar_ids()
        self._console = Console(**self._console_kwargs) if self._console_kwargs else get_console()
        theme = self.theme
        self._metric_component = MetricsTextColumn(
            trainer, theme.metrics, theme.metrics_text_delimiter, theme.metrics_format
        )
        columns = [*self.configure_columns(trainer), self._metric_component]
        self.progress = CustomProgress(*columns, auto_refresh=False, console=self._console)
        try:
            self.progress.start()
        except LiveError:
            # An older rich, and something of the user's is drawn on the console: draw on one of our own.
            self._console = Console(**self._console_kwargs)
            self.progress = CustomProgress(*columns, auto_refresh=False, console=self._console)
            self.progress.start()
        self._progress_stopped = False

    def _reset_progress_bar_ids(self) -> None:
        self.train_progress_bar_id: TaskID | None = None
        self.val_sanity_progress_bar_id: TaskID | None = None
        self.val_progress_bar_id: TaskID | None = None
        self.test_progress_bar_id: TaskID | None = None
        self.predict_progress_bar_id: TaskID | None = None
        self.run_progress_bar_id: TaskID | None = None

    def _stop_progress(self) -> None:
        if self.progress is not None and not self._progress_stopped:
            self._progress_stopped = True
            # A terminal that is gone must not hide the error that ends the run.
            with suppress(OSError, ValueError):
                self.progress.stop()

    def _add_task(self, total_batches: int | float, description: str, visible: bool = True) -> TaskID:
        assert self.progress is not None
        return self.progress.add_task(self._styled(description), total=_known(total_batches), visible=visible)

    def _styled(self, description: str) -> str:
        return f"[{self.theme.description}]{description}" if self.theme.description else description

    def _get_train_description(self, current_epoch: int) -> str:
        last = self.trainer.max_epochs
        text = f"Epoch {current_epoch}/{last - 1}" if last is not None and last > 0 else f"Epoch {current_epoch}"
        return text.ljust(len(self.validation_description))  # the bars below each other begin in one column

    def _title(self, stage: str) -> str:
        return self._get_train_description(self.trainer.current_epoch) if stage == "train" else super()._title(stage)

    # ------------------------------------------------------------------------------------------------- drawing by time
    def _open(self, stage: str) -> None:
        self._init_progress(self.trainer)
        if stage == "train":
            self._add_run_bar()
        elif stage == "validate":
            self._count_training(self._train_done)
        self.refresh()

    def _begin(self, stage: str, total: int | float) -> None:
        if self.progress is None or (stage == "train" and self._leave and self.train_progress_bar_id is not None):
            self._restart()
        assert self.progress is not None
        name = _IDS[stage]
        task_id = getattr(self, name)
        description = self._title(stage)
        if task_id is None:
            task_id = self._add_task(total, description)
            setattr(self, name, task_id)
        else:
            self.progress.reset(task_id, description=self._styled(description), visible=True)
            self._task(stage).total = _known(total)  # `reset` and `update` take None for "as before"
        if stage == "train" and self._metric_component is not None:
            self._metric_component.task_id = task_id

    def _restart(self) -> None:
        """Leave the bars as they are on the screen and begin new ones below."""
        self._stop_progress()
        self._init_progress(self.trainer)
        if self.trainer.state.fn == "fit":
            self._add_run_bar()

    def _add_run_bar(self) -> None:
        state = self._run_state(0) if self.total_bar else None
        if state is None or self.progress is None or self.run_progress_bar_id is not None:
            return
        self.run_progress_bar_id = self._add_task(state.total, "Run".ljust(len(self.validation_description)))
        self._begin_run_bar(state)

    def _begin_run_bar(self, state: RunState) -> None:
        """Count from where the run is; what was done before says nothing about its speed."""
        assert self.progress is not None and self.run_progress_bar_id is not None
        completed: Any = state.done  # rich says int, and counts in floats
        self.progress.reset(
            self.run_progress_bar_id, completed=completed, unit=state.unit, most=state.most, before=state.done
        )

    def _start_at(self, done: int) -> None:
        super()._start_at(done)
        progress = self.progress
        if done <= 0 or progress is None:
            return
        if self.train_progress_bar_id is not None:
            progress.reset(self.train_progress_bar_id, completed=done)
            self._task("train").total = _known(self.total_train_batches)
        if self.run_progress_bar_id is not None and (state := self._run_state(done)) is not None:
            self._begin_run_bar(state)

    def _draw(self, stage: str, done: int, pl_module: LightningModule, last: bool) -> bool:
        progress, task_id = self.progress, getattr(self, _IDS[stage])
        if progress is None or task_id is None:
            return False
        if stage == "train":
            self._count_training(done)
        else:
            progress.update(task_id, completed=done)
        if last and not self.is_due:
            return False
        if stage == "train":
            self._update_metrics(self.trainer, pl_module)
        progress.draw()
        return True

    def _count_training(self, done: int) -> None:
        """Set the bars of epoch and run, where there are any."""
        if self.progress is None or self.train_progress_bar_id is None:
            return
        self.progress.update(self.train_progress_bar_id, completed=done)
        if self.run_progress_bar_id is not None and (state := self._run_state(done)) is not None:
            self.progress.update(self.run_progress_bar_id, completed=state.done, total=state.total, most=state.most)

    def _hide(self) -> None:
        if self.progress is not None and not self._progress_stopped:
            self.progress.stop()

    def _unhide(self) -> None:
        if self.progress is not None and not self._progress_stopped:
            self.progress.begin_anew()

    def _update_metrics(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.is_enabled and self._metric_component is not None:
            self._metric_component.update(self.get_metrics(trainer, pl_module))

    def _close(self, stage: str) -> None:
        task_id = getattr(self, _IDS[stage])
        if self.progress is None:
            return
        if stage in ("sanity", "validate") and self.trainer.state.fn == "fit":
            if task_id is not None:
                self.progress.update(task_id, visible=False)
            return
        if stage == "train":
            self._update_metrics(self.trainer, self.trainer.lightning_module)
        self.progress.draw()

    def _stop(self) -> None:
        self._stop_progress()


_IDS = {
    "train": "train_progress_bar_id",
    "sanity": "val_sanity_progress_bar_id",
    "validate": "val_progress_bar_id",
    "test": "test_progress_bar_id",
    "predict": "predict_progress_bar_id",
    "run": "run_progress_bar_id",
}


def _run_left(task: Task) -> float | None:
    """Time left by the pace since the bar began; rich's own knows half a minute, in which nothing may be validated."""
    new = task.completed - task.fields["before"]
    if task.finished:
        return 0.0
    if new <= 0 or not task.total or not task.elapsed or task.fields["unit"] == "seconds":
        return None
    return task.elapsed / new * (task.total - task.completed)


def _known(total: int | float) -> int | float | None:
    """A total as rich takes it: `None` if unknown, so that the bar pulses and no time left is reckoned."""
    return None if math.isinf(total) else total

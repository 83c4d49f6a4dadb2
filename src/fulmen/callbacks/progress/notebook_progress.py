"""A bar for notebooks: one HTML display that is updated in place; needs IPython, no widgets."""

from __future__ import annotations

import html
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.console import format_metric, format_seconds
from fulmen.callbacks.progress.timed_progress import TimedProgressBar
from fulmen.callbacks.progress.whole_run import sooner

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule


@dataclass
class _Row:
    """One line: how far something is, and since when.

    Attributes:
        label: Name.
        done: What is behind us.
        total: All of it; `inf` if unknown.
        unit: What is counted.
        before: What was done when the clock started.
        start: When that was.
        most: Seconds left at most.
    """

    label: str
    done: float = 0
    total: float = math.inf
    unit: str = "batches"
    before: float = 0
    start: float = field(default_factory=lambda: time.monotonic())
    most: float | None = None

    def html(self) -> str:
        """Return name, bar, count, time taken and time left."""
        spent = time.monotonic() - self.start
        known = not math.isinf(self.total) and self.total > 0
        new = self.done - self.before
        left = sooner(spent / new * (self.total - self.done) if known and new > 0 else None, self.most)
        if self.unit == "seconds":
            count = f"{format_seconds(self.done)}/{format_seconds(self.total)}"
        else:
            count = f"{int(self.done)}/{int(self.total)}" if known else str(int(self.done))
            count += " epochs" if self.unit == "epochs" else ""
        bar = f"<progress value='{self.done:g}' max='{self.total:g}'></progress>" if known else "<progress></progress>"
        return f"<div>{html.escape(self.label)} {bar} {count} {format_seconds(spent)} • {format_seconds(left)}</div>"


class NotebookProgress(TimedProgressBar):
    """Shows the run, the epoch and the evaluation as HTML progress elements in the output of the cell.

    The display is replaced in place (twice a second at most), so that a notebook's file does not grow.
    """

    def __init__(self) -> None:
        super().__init__(0.5)
        self._handle: Any = None
        self._rows: dict[str, _Row] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the display."""
        return {**super().__getstate__(), "_handle": None, "_rows": {}}

    def _open(self, stage: str) -> None:
        if not (stage in ("sanity", "validate") and self.trainer.state.fn == "fit"):
            self._rows = {}
        if stage == "train" and (state := self._run_state(0)) is not None:
            self._rows["run"] = _Row("Run", state.done, state.total, state.unit, state.done)

    def _begin(self, stage: str, total: int | float) -> None:
        self._rows[stage] = _Row(self._title(stage), total=total)

    def _start_at(self, done: int) -> None:
        super()._start_at(done)
        if done <= 0:
            return
        if (row := self._rows.get("train")) is not None:
            row.total, row.before = self.total_train_batches, done
        if (row := self._rows.get("run")) is not None and (state := self._run_state(done)) is not None:
            row.before = state.done

    def _draw(self, stage: str, done: int, pl_module: LightningModule, last: bool) -> bool:
        if stage in self._rows:
            self._rows[stage].done = done
        if stage == "train":
            self._count_run(done)
        if last and not self.is_due:
            return False
        self._render(pl_module)
        return True

    def _count_run(self, done: int) -> None:
        row, state = self._rows.get("run"), self._run_state(done)
        if row is not None and state is not None:
            row.done, row.total, row.unit, row.most = state

    def _close(self, stage: str) -> None:
        if stage in ("sanity", "validate") and self.trainer.state.fn == "fit":
            self._rows.pop(stage, None)
        else:
            self._render(self.trainer.lightning_module)

    def _stop(self) -> None:
        self._handle = None
        self._rows = {}

    def _render(self, pl_module: Any) -> None:
        from IPython.display import HTML, display

        metrics = self.get_metrics(self.trainer, pl_module) if self.trainer.state.fn == "fit" else {}
        text = " ".join(f"{name}={format_metric(value)}" for name, value in metrics.items())
        rows = "".join(row.html() for row in self._rows.values())
        content = HTML(f"<div>{rows}<div><code>{html.escape(text)}</code></div></div>")
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

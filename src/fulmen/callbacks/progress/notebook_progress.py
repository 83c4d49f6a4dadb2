"""A bar for notebooks: one HTML display that is updated in place; needs IPython, no widgets."""

from __future__ import annotations

import html
import math
import time
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.console import format_metric, format_seconds
from fulmen.callbacks.progress.progress_bar import TimedProgressBar, run_length, run_position

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule


class NotebookProgress(TimedProgressBar):
    """Shows the run, the epoch and the evaluation as HTML progress elements in the output of the cell.

    The display is replaced in place (twice a second at most), so that a notebook's file does not grow.
    """

    def __init__(self) -> None:
        super().__init__(0.5)
        self._handle: Any = None
        self._rows: dict[str, tuple[str, int, int | float, float]] = {}  # label, done, total, start

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the display."""
        return {**super().__getstate__(), "_handle": None, "_rows": {}}

    def _open(self, stage: str) -> None:
        if not (stage in ("sanity", "validate") and self.trainer.state.fn == "fit"):
            self._rows = {}
        if stage == "train":
            self._rows["run"] = ("Run", 0, run_length(self.trainer) or math.inf, time.monotonic())

    def _begin(self, stage: str, total: int | float) -> None:
        if stage == "train":
            label = f"Epoch {self.trainer.current_epoch}"
        else:
            label = {
                "sanity": self.sanity_check_description,
                "validate": self.validation_description,
                "test": self.test_description,
            }.get(stage, self.predict_description)
        self._rows[stage] = (label, 0, total, time.monotonic())

    def _start_at(self, done: int) -> None:
        super()._start_at(done)
        if done > 0 and "train" in self._rows:
            label, _, _, start = self._rows["train"]
            self._rows["train"] = (label, done, self.total_train_batches, start)

    def _count(self, stage: str, done: int) -> None:
        if stage in self._rows:
            label, _, total, start = self._rows[stage]
            self._rows[stage] = (label, done, total, start)

    def _draw(self, stage: str, done: int, pl_module: LightningModule, last: bool) -> bool:
        self._count(stage, done)
        if stage == "train":
            self._count("run", run_position(self.trainer, done))
        if last and not self.is_due:
            return False
        self._render(pl_module)
        return True

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
        rows = "".join(self._row(*row) for row in self._rows.values())
        content = HTML(f"<div>{rows}<div><code>{html.escape(text)}</code></div></div>")
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    @staticmethod
    def _row(label: str, done: int, total: int | float, start: float) -> str:
        spent = time.monotonic() - start
        known = not math.isinf(total) and total > 0
        left = spent / done * (total - done) if known and done else None
        bar = f"<progress value='{done}' max='{int(total)}'></progress>" if known else "<progress></progress>"
        count = f"{done}/{int(total)}" if known else str(done)
        times = f"{format_seconds(spent)} • {format_seconds(left)}"
        return f"<div>{html.escape(label)} {bar} {count} {times}</div>"

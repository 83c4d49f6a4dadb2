"""Progress as plain lines, for output that is no terminal."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.console import format_metric, format_seconds
from fulmen.callbacks.progress.timed_progress import TimedProgressBar
from fulmen.callbacks.progress.whole_run import RunState, sooner
from fulmen.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer

_LONGEST = 600.0  # seconds between two lines, however long the run
_GROWTH = 0.05  # of the time that the run has taken passes between two lines
_EPOCH_PART = 0.25  # of that time has to pass before an epoch's end gets a line of its own


class Pace:
    """Batches per second over the time that a stage was really running (pauses left out).

    Attributes:
        before: Batches that were done when the clock started.
    """

    def __init__(self) -> None:
        self.before = 0
        self._since = time.monotonic()
        self._spent = 0.0
        self._running = True

    def pause(self) -> None:
        """Stop the clock."""
        if self._running:
            self._spent += time.monotonic() - self._since
            self._running = False

    def resume(self) -> None:
        """Let the clock go on."""
        if not self._running:
            self._since = time.monotonic()
            self._running = True

    @property
    def is_running(self) -> bool:
        """Whether the clock goes."""
        return self._running

    def rate(self, done: float) -> float | None:
        """Return batches per second, with `done` batches now; `None` if there is nothing to divide."""
        seconds = self._spent + (time.monotonic() - self._since if self._running else 0.0)
        count = done - self.before
        return count / seconds if count > 0 and seconds > 0 else None


class PlainProgress(TimedProgressBar):
    """Writes a line now and then: epoch, batch, rate, time left, and the values logged with `prog_bar=True`.

    The distance of lines grows with the run (5 % of the time so far, ten minutes at most), so that the log of a week
    stays short. The end of an epoch is a line of its own unless one was written a moment ago; that of the run always
    is, whatever ended it.

    Args:
        interval: Seconds between two lines at the beginning of a run; 0 switches the lines off.

    Raises:
        ArgumentTypeError: `interval` is no number.
        ArgumentValueError: `interval` is negative or not finite.
    """

    def __init__(self, interval: float = 10.0) -> None:
        if isinstance(interval, bool) or not isinstance(interval, (int, float)):
            raise ArgumentTypeError(f"PlainProgress(interval={interval!r}): give seconds as a number.")
        if not 0 <= interval < math.inf:
            raise ArgumentValueError(f"PlainProgress(interval={interval!r}): give 0 (off) or more seconds.")
        super().__init__(1.0)
        self.interval = float(interval)
        self._started = time.monotonic()
        self._written = 0.0
        self._pending: tuple[str, str, int, RunState | None] | None = None  # the end of a pass that has no line yet
        self._pace: dict[str, Pace] = {}
        self._run: Pace | None = None
        self._run_before = 0.0  # of the run's units, when its clock started
        self._held: list[Pace] = []  # clocks that a pause stopped
        self._total: dict[str, int | float] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but clock readings, which mean nothing in another process."""
        return {**super().__getstate__(), "_pace": {}, "_run": None, "_pending": None, "_held": []}

    @property
    def is_enabled(self) -> bool:
        """Whether lines are written."""
        return self._enabled and self.interval > 0

    @property
    def gap(self) -> float:
        """Seconds that have to pass between two lines now."""
        grown = min(_LONGEST, _GROWTH * (time.monotonic() - self._started))
        return max(self.interval, grown)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the trainer and start the clock: the first line comes after `interval`."""
        super().setup(trainer, pl_module, stage)
        self._start_clock()

    def _start_clock(self) -> None:
        self._started = self._written = time.monotonic()
        self._due = self._written + self.gap if self.is_enabled else math.inf

    def _open(self, stage: str) -> None:
        if stage == "validate" and self.trainer.state.fn == "fit":
            self._pace["train"].pause()
        elif stage != "sanity":
            self._start_clock()
        self._pending = None

    def _begin(self, stage: str, total: int | float) -> None:
        self._total[stage] = total
        self._pace[stage] = Pace()
        if stage == "train" and self._run is None:
            self._run = Pace()
            state = self._run_state(0)
            self._run_before = state.done if state is not None else 0.0

    def _start_at(self, done: int) -> None:
        super()._start_at(done)
        if done > 0:
            self._total["train"] = self.total_train_batches
            self._pace["train"].before = done
            if (state := self._run_state(done)) is not None and self._run is not None:
                self._run_before = state.done

    def _close(self, stage: str) -> None:
        if stage == "validate" and "train" in self._pace:
            self._pace["train"].resume()
        if self._pending is not None:
            stage, title, done, state = self._pending
            self._write(self._line(stage, title, done, state, self.trainer.lightning_module, ended=True))
        if stage == "train":
            self._run = None

    def _hide(self) -> None:
        """A line needs no terminal; the time that passes does not count."""
        self._held = [pace for pace in (*self._pace.values(), self._run) if pace is not None and pace.is_running]
        for pace in self._held:
            pace.pause()

    def _unhide(self) -> None:
        for pace in self._held:
            pace.resume()
        self._held = []

    def resume(self) -> None:
        """What paused the run is over: clocks go on."""
        self._come_back()

    def _next_due(self, before: float, now: float) -> float:
        return self._written + self.gap

    def _draw(self, stage: str, done: int, pl_module: LightningModule, last: bool) -> bool:
        # Evaluations inside of `fit` speak through the next training line.
        if last and (stage == "sanity" or (stage == "validate" and self.trainer.state.fn == "fit")):
            return False
        state = self._run_state(done) if stage == "train" else None
        if last and time.monotonic() < self._written + _EPOCH_PART * self.gap:
            # Whether this is the run's end is known when the stage ends; values are read then.
            self._pending = (stage, self._title(stage), done, state)
            return False
        self._write(self._line(stage, self._title(stage), done, state, pl_module))
        return True

    def _write(self, line: str) -> None:
        self._pending = None
        self.print(line, flush=True)
        self._written = time.monotonic()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print; a line of progress stands by itself, so there is nothing to protect."""
        kwargs.setdefault("file", sys.stdout)
        print(*args, **kwargs)

    # -------------------------------------------------------------------------------------------------------- one line
    def _line(
        self, stage: str, title: str, done: int, state: RunState | None, pl_module: LightningModule, ended: bool = False
    ) -> str:
        total = self._total.get(stage, math.inf)
        rate, left = self._speed(stage, done, total)
        parts = [title, self._count(done, total)]
        if rate is not None:
            parts.append(f"{rate:.2f} it/s" if rate >= 1 else f"{1 / rate:.2f} s/it")
        if left is not None and left > 0 and not ended:
            parts.append(f"ETA {format_seconds(left)}")
        if state is not None:
            parts.extend(self._run_part(state, ended))
        metrics = self.get_metrics(self.trainer, pl_module) if self.trainer.state.fn == "fit" else {}
        parts.append(" ".join(f"{name}={format_metric(value)}" for name, value in metrics.items()))
        return " | ".join(part for part in parts if part)

    def _title(self, stage: str) -> str:
        last = self.trainer.max_epochs
        title = super()._title(stage)
        return f"{title}/{last - 1}" if stage == "train" and last is not None and last > 0 else title

    def _count(self, done: int, total: int | float) -> str:
        if math.isinf(total) or total <= 0:
            return f"batch {done}"
        return f"batch {done}/{int(total)} ({100 * done / total:.0f}%)"

    def _speed(self, stage: str, done: int, total: int | float) -> tuple[float | None, float | None]:
        if stage not in self._pace:
            return None, None
        rate = self._pace[stage].rate(done)
        left = (total - done) / rate if rate and not math.isinf(total) else None
        return rate, left

    def _run_part(self, state: RunState, ended: bool) -> list[str]:
        """Time left of the whole run; validation and everything between epochs counts in its pace."""
        parts = [f"run {100 * min(1.0, state.done / state.total):.0f}%"] if state.total > 0 else []
        rate = self._run.rate(state.done - self._run_before) if self._run is not None else None
        left = (state.total - state.done) / rate if rate and state.unit != "seconds" else None
        left = sooner(left, state.most)
        if left is not None and state.done < state.total and not ended:
            parts.append(f"run ETA {format_seconds(left)}")
        return parts

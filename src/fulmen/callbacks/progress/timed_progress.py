"""What all bars of ours share: reading values and drawing by time, not by batches."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.progress.progress_bar import ProgressBar
from fulmen.callbacks.progress.whole_run import RunState, run_state
from fulmen.engine.hooks.table import ignores_outputs

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer

_MIN_PERIOD = 0.1  # no bar reads metrics or draws more often than ten times a second
_SHARE = 0.02  # of the run's time is spent on drawing, at most


class TimedProgressBar(ProgressBar):
    """A bar that draws by time: most batches cost one clock reading and nothing else.

    Subclasses say how to draw: `_open` and `_close` a stage, `_begin` a pass over a loader, `_draw` it.
    Stages are ``"train"``, ``"sanity"``, ``"validate"``, ``"test"`` and ``"predict"``.
    """

    def __init__(self, period: float = _MIN_PERIOD) -> None:
        super().__init__()
        self._period = max(_MIN_PERIOD, period)
        self._train_done = 0
        self._eval_done = 0
        self._eval_stage = "validate"
        self._epoch_length: int | float = math.inf  # batches of the last whole epoch
        self._due = 0.0
        self._has_drawn = False
        self._hidden = False
        # When to draw next, kept while the first batch of an epoch is waited for.
        self._first_batch: float | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether the bar shows anything."""
        return self._enabled

    @property
    def is_disabled(self) -> bool:
        """The contrary of `is_enabled`."""
        return not self.is_enabled

    def disable(self) -> None:
        """Show nothing from now on."""
        self._enabled = False
        self._due = math.inf

    def enable(self) -> None:
        """Show again."""
        self._enabled = True
        self._due = 0.0

    # ------------------------------------------------------------------------------------------ what subclasses give
    def _open(self, stage: str) -> None:
        """A stage begins."""

    def _begin(self, stage: str, total: int | float) -> None:
        """A training epoch, or the pass over one loader of an evaluation, begins."""

    def _draw(self, stage: str, done: int, pl_module: LightningModule, last: bool) -> bool:
        """Show that `done` batches are behind us; return whether anything was drawn.

        Called when it is time, and with `last` at the end of each pass, time or not: passes may be short and many, so
        what costs time waits for `is_due` there too.
        """
        return True

    def _close(self, stage: str) -> None:
        """A stage is over."""

    def _stop(self) -> None:
        """The run ends, well or not: put the output back in order. May be called twice."""

    def _hide(self) -> None:
        """Leave the terminal to something else."""

    def _unhide(self) -> None:
        """Take it back."""

    # ----------------------------------------------------------------------------------------- making room for others
    def pause(self) -> None:
        """Make room: something else, a debugger, needs the terminal. The bar comes back when it is next drawn."""
        if self.is_enabled and not self._hidden:
            self._hidden = True
            self._hide()

    def resume(self) -> None:
        """What needed the terminal is over: draw at the next batch."""
        if self._hidden:
            self._due = 0.0

    def _come_back(self) -> None:
        if self._hidden:
            self._hidden = False
            self._unhide()

    # ------------------------------------------------------------------------------------------------ drawing by time
    def _show(self, stage: str, done: int, pl_module: LightningModule, last: bool = False) -> None:
        """Draw, and set when to draw next."""
        if self.is_disabled:
            self._due = math.inf
            return
        if self._first_batch is not None and stage == "train":
            self._due, self._first_batch = 0.0 if self._hidden else self._first_batch, None
            self._start_at(done if last else done - 1)
            if not last and not self.is_due:
                return
        self._come_back()
        before = time.monotonic()
        if self._draw(stage, done, pl_module, last):
            now = time.monotonic()
            # What is imported and set up at the first drawing says nothing about the next ones.
            self._due = self._next_due(before if self._has_drawn else now, now)
            self._has_drawn = True

    def _next_due(self, before: float, now: float) -> float:
        """When to draw next, if drawing took from `before` to `now`: later where drawing is slow."""
        return now + max(self._period, (now - before) / _SHARE)

    def _start_at(self, done: int) -> None:
        """The first batch of an epoch is over, `done` came before it: none, unless a run was resumed inside it."""
        if done > 0 and self._epoch_total is not None:
            key, total = self._epoch_total
            self._epoch_total = (key, min(self.trainer.num_training_batches, total + done))

    def _stage_name(self, stage: str) -> str:
        """What an evaluation is called."""
        names = {
            "sanity": self.sanity_check_description,
            "validate": self.validation_description,
            "test": self.test_description,
            "predict": self.predict_description,
        }
        return names[stage]

    def _title(self, stage: str) -> str:
        """What a pass is called: the number of the epoch, or the evaluation and, after the first, the loader's."""
        if stage == "train":
            return f"Epoch {self.trainer.current_epoch}"
        index = self._current_eval_dataloader_idx
        return f"{self._stage_name(stage)} DataLoader {index}" if index else self._stage_name(stage)

    def _run_state(self, done: int) -> RunState | None:
        """How far the whole run is, `done` batches into this epoch."""
        return run_state(self.trainer, done, self._epoch_length)

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the bar was drawn."""
        return time.monotonic() >= self._due

    def _stage_begins(self, stage: str) -> None:
        if stage != "train":
            self._eval_stage = stage
        if self.is_enabled:
            self._come_back()
            self._open(stage)

    def _eval_begin(self, dataloader_idx: int, pl_module: LightningModule) -> None:
        self._end_pass(pl_module)
        self.has_dataloader_changed(dataloader_idx)
        self._eval_done = 0
        if self.is_enabled:
            self._come_back()
            self._begin(self._eval_stage, self._eval_total())

    def _eval_total(self) -> int | float:
        if self._eval_stage == "test":
            return self.total_test_batches_current_dataloader
        if self._eval_stage == "predict":
            return self.total_predict_batches_current_dataloader
        return self.total_val_batches_current_dataloader

    def _end_pass(self, pl_module: LightningModule) -> None:
        if self.is_enabled and self._current_eval_dataloader_idx is not None:
            self._show(self._eval_stage, self._eval_done, pl_module, last=True)

    def _eval_end(self, pl_module: LightningModule) -> None:
        self._end_pass(pl_module)
        self.reset_dataloader_idx_tracker()
        if self.is_enabled:
            self._come_back()
            self._close(self._eval_stage)

    # ---------------------------------------------------------------------------------------------------------- hooks
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the trainer and start the clock."""
        super().setup(trainer, pl_module, stage)
        self.reset_dataloader_idx_tracker()
        self._epoch_length = math.inf
        self._due = 0.0 if self.is_enabled else math.inf

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the output in order."""
        self._hidden = False
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the output in order, so that the traceback can be read."""
        self._hidden = False
        self._stop()

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the bar of the sanity check."""
        self._stage_begins("sanity")

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the bar of the sanity check."""
        self._eval_end(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the training bar."""
        self._train_done = 0
        self._stage_begins("train")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the training bar."""
        if self.is_enabled:
            self._come_back()
            self._close("train")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the bar to the new epoch."""
        self._train_done = 0
        if self.is_enabled:
            self._come_back()
            self._begin("train", self.total_train_batches)
            self._first_batch, self._due = self._due, 0.0

    @ignores_outputs
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Draw if it is time."""
        self._train_done = batch_idx + 1
        if time.monotonic() >= self._due:
            self._show("train", batch_idx + 1, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the finished epoch."""
        self._epoch_length = self._train_done or math.inf
        if self.is_enabled:
            self._show("train", self._train_done, pl_module, last=True)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the validation bar."""
        if not trainer.sanity_checking:
            self._stage_begins("validate")

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Go on to the next loader if it is another one."""
        if dataloader_idx != self._current_eval_dataloader_idx:
            self._eval_begin(dataloader_idx, pl_module)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw if it is time."""
        self._eval_done = batch_idx + 1
        if time.monotonic() >= self._due:
            self._show(self._eval_stage, batch_idx + 1, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the validation bar; the training bar shows the new values."""
        if not trainer.sanity_checking:
            self._eval_end(pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the test bar."""
        self._stage_begins("test")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the test bar."""
        self._eval_end(pl_module)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the prediction bar."""
        self._stage_begins("predict")

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the prediction bar."""
        self._eval_end(pl_module)

    # Batches of all evaluations are counted alike.
    on_test_batch_start = on_predict_batch_start = on_validation_batch_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

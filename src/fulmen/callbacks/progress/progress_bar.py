"""Base class of progress bars under Lightning's names, and the part that all of ours share: reading by time."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.engine.hooks.table import ignores_outputs
from fulmen.errors import warn

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class ProgressBar(Callback):
    r"""Base class of progress bars; subclass it and override hooks to write your own.

    It knows the trainer, the number of batches of each stage and what to show, and draws nothing itself.

    Example::

        class Percent(ProgressBar):
            def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
                super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
                print(f"{100 * batch_idx / self.total_train_batches:.0f} %", end="\r")
    """

    # On the class, so that a subclass which does not call this constructor works too.
    _trainer: Trainer | None = None
    _current_eval_dataloader_idx: int | None = None
    _enabled: bool = True
    _epoch_total: tuple[Any, int | float] | None = None

    def __init__(self) -> None:
        self._trainer = None
        self._current_eval_dataloader_idx = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but live objects: `setup` gives the trainer again."""
        return {**self.__dict__, "_trainer": None}

    @property
    def trainer(self) -> Trainer:
        """The trainer of the run; known from `setup` on.

        Raises:
            TypeError: Before `setup`.
        """
        if self._trainer is None:
            raise TypeError(f"{type(self).__name__}.trainer is not there yet: a Trainer sets it when a run begins.")
        return self._trainer

    @property
    def sanity_check_description(self) -> str:
        """What the bar of the sanity check is called."""
        return "Sanity Checking"

    @property
    def train_description(self) -> str:
        """What the training bar is called until the first epoch gives it a number."""
        return "Training"

    @property
    def validation_description(self) -> str:
        """What the validation bar is called."""
        return "Validation"

    @property
    def test_description(self) -> str:
        """What the test bar is called."""
        return "Testing"

    @property
    def predict_description(self) -> str:
        """What the prediction bar is called."""
        return "Predicting"

    @property
    def total_train_batches(self) -> int | float:
        """Batches of the running training epoch; `inf` if the loader has no length and `max_steps` sets no end.

        Where `max_steps` ends the run inside the epoch, only the batches up to there count.
        """
        trainer = self.trainer
        total = trainer.num_training_batches
        max_steps = trainer.max_steps
        if max_steps <= 0:
            return total
        # Steps are counted on during the epoch, so the number is fixed when it is first asked for in an epoch.
        key = (trainer.current_epoch, max_steps, total)
        if self._epoch_total is None or self._epoch_total[0] != key:
            left = max(0, max_steps - trainer.global_step) * max(1, trainer.accumulate_grad_batches)
            self._epoch_total = (key, min(total, left))
        return self._epoch_total[1]

    @property
    def total_val_batches_current_dataloader(self) -> int | float:
        """Batches of the validation loader that is being read; `inf` if unknown."""
        trainer = self.trainer
        return self._of_current(trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches)

    @property
    def total_test_batches_current_dataloader(self) -> int | float:
        """Batches of the test loader that is being read; `inf` if unknown."""
        return self._of_current(self.trainer.num_test_batches)

    @property
    def total_predict_batches_current_dataloader(self) -> int | float:
        """Batches of the prediction loader that is being read; `inf` if unknown."""
        return self._of_current(self.trainer.num_predict_batches)

    @property
    def total_val_batches(self) -> int | float:
        """Batches of all validation loaders together; 0 in an epoch that does not validate."""
        trainer = self.trainer
        every = trainer.check_val_every_n_epoch
        if not trainer.enable_validation or (every is not None and (trainer.current_epoch + 1) % every != 0):
            return 0
        batches: Any = trainer.num_val_batches
        return sum(batches) if isinstance(batches, (list, tuple)) else batches

    def _of_current(self, batches: Any) -> int | float:
        if isinstance(batches, (list, tuple)):
            index = self._current_eval_dataloader_idx or 0
            return batches[index] if index < len(batches) else math.inf
        return batches

    def has_dataloader_changed(self, dataloader_idx: int) -> bool:
        """Remember the loader and say whether it is another one than before."""
        old, self._current_eval_dataloader_idx = self._current_eval_dataloader_idx, dataloader_idx
        return old != dataloader_idx

    def reset_dataloader_idx_tracker(self) -> None:
        """Forget which loader was read; called when an evaluation ends."""
        self._current_eval_dataloader_idx = None

    def disable(self) -> None:
        """Show nothing from now on; called on all ranks but the first."""
        self._enabled = False

    def enable(self) -> None:
        """Show again."""
        self._enabled = True

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without breaking the bar; `trainer.print` and `self.print` of a module come here."""
        print(*args, **kwargs)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the trainer; switch off on all ranks but the first."""
        self._trainer = trainer
        self._epoch_total = None
        if not trainer.is_global_zero:
            self.disable()

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return what stands beside the bar: the logger's version and all values logged with `prog_bar=True`.

        Override it to show something else::

            def get_metrics(self, trainer, pl_module):
                items = super().get_metrics(trainer, pl_module)
                items.pop("v_num", None)
                return items
        """
        standard = get_standard_metrics(trainer)
        logged = trainer.progress_bar_metrics
        for name in standard.keys() & logged.keys():
            warn(
                "W060",
                f"The progress bar shows {name!r} itself; the value logged as `self.log({name!r}, ..., prog_bar=True)` "
                f"takes its place. Log it under another name, or override `get_metrics` of the bar.",
                key=name,
            )
        return {**standard, **logged}


def get_standard_metrics(trainer: Trainer) -> dict[str, int | str]:
    """Return what every bar shows: `v_num`, the loggers' version (the last four characters of a long one)."""
    versions = list(dict.fromkeys(logger.version for logger in trainer.loggers))
    if not versions:
        return {}
    version = versions[0] if len(versions) == 1 else "_".join(map(str, versions))
    if version is None or version == "":
        return {}
    return {"v_num": version[-4:] if isinstance(version, str) else version}


def run_length(trainer: Trainer) -> int | float | None:
    """Return how many training batches the whole run has, over all epochs or up to `max_steps`; `None` if unknown."""
    lengths: list[int | float] = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        lengths.append(trainer.max_epochs * trainer.num_training_batches)
    if trainer.max_steps > 0:
        lengths.append(trainer.max_steps * max(1, trainer.accumulate_grad_batches))
    total = min(lengths, default=math.inf)
    return None if math.isinf(total) or math.isnan(total) else total


def run_position(trainer: Trainer, done: int) -> int:
    """Return how many training batches of the whole run are behind us, `done` of them in this epoch."""
    per_epoch = trainer.num_training_batches
    if math.isinf(per_epoch):
        return int(trainer.global_step * max(1, trainer.accumulate_grad_batches))
    return int(trainer.current_epoch * per_epoch) + done


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
        self._due = 0.0
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

    # ------------------------------------------------------------------------------------------------ drawing by time
    def _show(self, stage: str, done: int, pl_module: LightningModule, last: bool = False) -> None:
        """Draw, and set when to draw next."""
        if self.is_disabled:
            self._due = math.inf
            return
        if self._first_batch is not None and stage == "train":
            self._due, self._first_batch = self._first_batch, None
            self._start_at(done if last else done - 1)
            if not last and not self.is_due:
                return
        before = time.monotonic()
        if self._draw(stage, done, pl_module, last):
            self._due = self._next_due(before, time.monotonic())

    def _next_due(self, before: float, now: float) -> float:
        """When to draw next, if drawing took from `before` to `now`: later where drawing is slow."""
        return now + max(self._period, (now - before) / _SHARE)

    def _start_at(self, done: int) -> None:
        """The first batch of an epoch is over, `done` came before it: none, unless a run was resumed inside it."""
        if done > 0 and self._epoch_total is not None:
            key, total = self._epoch_total
            self._epoch_total = (key, min(self.trainer.num_training_batches, total + done))

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the bar was drawn."""
        return time.monotonic() >= self._due

    def _eval_begin(self, stage: str, dataloader_idx: int, pl_module: LightningModule) -> None:
        if self._current_eval_dataloader_idx is not None:
            self._end_pass(stage, pl_module)
        self.has_dataloader_changed(dataloader_idx)
        self._eval_done = 0
        if self.is_enabled:
            self._begin(stage, self._eval_total(stage))

    def _eval_total(self, stage: str) -> int | float:
        if stage == "test":
            return self.total_test_batches_current_dataloader
        if stage == "predict":
            return self.total_predict_batches_current_dataloader
        return self.total_val_batches_current_dataloader

    def _end_pass(self, stage: str, pl_module: LightningModule) -> None:
        if self.is_enabled and self._current_eval_dataloader_idx is not None:
            self._show(stage, self._eval_done, pl_module, last=True)

    def _eval_end(self, stage: str, pl_module: LightningModule) -> None:
        self._end_pass(stage, pl_module)
        self.reset_dataloader_idx_tracker()
        if self.is_enabled:
            self._close(stage)

    # ---------------------------------------------------------------------------------------------------------- hooks
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the trainer and start the clock."""
        super().setup(trainer, pl_module, stage)
        self.reset_dataloader_idx_tracker()
        self._due = 0.0 if self.is_enabled else math.inf

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the output in order."""
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the output in order, so that the traceback can be read."""
        self._stop()

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the bar of the sanity check."""
        if self.is_enabled:
            self._open("sanity")

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the bar of the sanity check."""
        self._eval_end("sanity", pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the training bar."""
        self._train_done = 0
        if self.is_enabled:
            self._open("train")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the training bar."""
        if self.is_enabled:
            self._close("train")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the bar to the new epoch."""
        self._train_done = 0
        if self.is_enabled:
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
        if self.is_enabled:
            self._show("train", self._train_done, pl_module, last=True)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the validation bar."""
        if self.is_enabled and not trainer.sanity_checking:
            self._open("validate")

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Go on to the next loader if it is another one."""
        if dataloader_idx != self._current_eval_dataloader_idx:
            self._eval_begin("sanity" if trainer.sanity_checking else "validate", dataloader_idx, pl_module)

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
            self._show("sanity" if trainer.sanity_checking else "validate", batch_idx + 1, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the validation bar; the training bar shows the new values."""
        if trainer.sanity_checking:
            return
        self._eval_end("validate", pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the test bar."""
        if self.is_enabled:
            self._open("test")

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Go on to the next loader if it is another one."""
        if dataloader_idx != self._current_eval_dataloader_idx:
            self._eval_begin("test", dataloader_idx, pl_module)

    def on_test_batch_end(
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
            self._show("test", batch_idx + 1, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the test bar."""
        self._eval_end("test", pl_module)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the prediction bar."""
        if self.is_enabled:
            self._open("predict")

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Go on to the next loader if it is another one."""
        if dataloader_idx != self._current_eval_dataloader_idx:
            self._eval_begin("predict", dataloader_idx, pl_module)

    def on_predict_batch_end(
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
            self._show("predict", batch_idx + 1, pl_module)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the prediction bar."""
        self._eval_end("predict", pl_module)

"""Base class of progress bars under Lightning's names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
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

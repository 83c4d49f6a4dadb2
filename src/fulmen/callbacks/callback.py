"""Base class of callbacks: every hook as an empty method.

Hooks get the trainer and the module first. A hook that a subclass does not override costs nothing: the hook table
(`fulmen.engine.hooks`) looks up overridden methods once, not per step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from fulmen.engine.hooks.running import running_module

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class Callback:
    """Something that acts at fixed points of a run, beside the module.

    Subclass it and override hooks. State that should survive a checkpoint is returned by `state_dict` and given back
    to `load_state_dict`; callbacks of one class are told apart by `state_key`.
    """

    decides_last: ClassVar[bool] = False
    """`True` for callbacks that decide on monitored values; they run after the module's own hook."""

    @property
    def state_key(self) -> str:
        """Key of this callback's state in a checkpoint; two callbacks of one Trainer must not share it."""
        return self.__class__.__qualname__

    @property
    def _legacy_state_key(self) -> type[Callback]:
        return type(self)

    def _generate_state_key(self, **kwargs: Any) -> str:
        """Build a key from the class name and the values that tell instances apart."""
        return f"{self.__class__.__qualname__}{kwargs!r}"

    def log(self, name: str, value: Any, **kwargs: Any) -> None:
        """Log from inside a hook of this callback, as `LightningModule.log` does.

        Args:
            name: Key of the value.
            value: Number, 0-dim tensor or metric.
            **kwargs: Flags of `LightningModule.log`.

        Raises:
            LoggingError: Outside of a run, or in a hook that does not allow it.
        """
        running_module(f"{type(self).__name__}.log({name!r}, ...)").log(name, value, **kwargs)

    def log_dict(self, dictionary: Any, **kwargs: Any) -> None:
        """Log several values from inside a hook of this callback, as `LightningModule.log_dict` does."""
        running_module(f"{type(self).__name__}.log_dict(...)").log_dict(dictionary, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to keep in a checkpoint (plain values and tensors)."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Called when fit, validate, test or predict begins; `stage` says which."""

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Called when fit, validate, test or predict ends; `stage` says which."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when `fit` begins, after set-up and before the sanity check."""

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when `fit` ends."""

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the validation sanity check begins."""

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the validation sanity check ends."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when training begins, before the first epoch."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when training ends."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a training epoch begins."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a training epoch ends."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Called before a training batch; returning -1 skips the rest of the epoch."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Called after a training batch; `outputs` is a dict with the detached `loss`, `{}` for a skipped step."""

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a validation run begins."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a validation run ends."""

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the validation epoch begins."""

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the validation epoch ends."""

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a validation batch."""

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a validation batch; `outputs` is what the step returned."""

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a test run begins."""

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a test run ends."""

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the test epoch begins."""

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the test epoch ends."""

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a test batch."""

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a test batch; `outputs` is what the step returned."""

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a predict run begins."""

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when a predict run ends."""

    def on_predict_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the predict epoch begins."""

    def on_predict_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called when the predict epoch ends."""

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a predict batch."""

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a predict batch; `outputs` is what the step returned."""

    def on_before_zero_grad(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Called before gradients are cleared."""

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Called before `loss.backward()`."""

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after `loss.backward()`, before optimizers step."""

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Called before an optimizer steps; gradients are unscaled and not yet clipped."""

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Called when a run is interrupted by an exception."""

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Called when a checkpoint is put together; may change it."""

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Called when a checkpoint is loaded, before `load_state_dict`."""


Hook = Callable[..., Any]

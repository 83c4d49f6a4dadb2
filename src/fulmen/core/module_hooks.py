"""Hooks of a module, all empty; override those you need. Order: `docs/hooks.md` and `tests/parity`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


class ModuleHooks(nn.Module):
    """The hooks that loops fire on the module, after those of the callbacks."""

    def on_fit_start(self) -> None:
        """Called when `fit` begins, after set-up and before the sanity check."""

    def on_fit_end(self) -> None:
        """Called when `fit` ends."""

    def on_train_start(self) -> None:
        """Called when training begins, before the first epoch."""

    def on_train_end(self) -> None:
        """Called when training ends."""

    def on_validation_start(self) -> None:
        """Called when a validation run begins."""

    def on_validation_end(self) -> None:
        """Called when a validation run ends."""

    def on_test_start(self) -> None:
        """Called when a test run begins."""

    def on_test_end(self) -> None:
        """Called when a test run ends."""

    def on_predict_start(self) -> None:
        """Called when a predict run begins."""

    def on_predict_end(self) -> None:
        """Called when a predict run ends."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Called before a training batch; returning -1 skips the rest of the epoch."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Called after a training batch; `outputs` is a dict with the detached `loss`, `{}` for a skipped step."""

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called before a validation batch."""

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called after a validation batch; `outputs` is what the step returned."""

    def on_test_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called before a test batch."""

    def on_test_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called after a test batch; `outputs` is what the step returned."""

    def on_predict_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called before a predict batch."""

    def on_predict_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called after a predict batch; `outputs` is what the step returned."""

    def on_validation_model_zero_grad(self) -> None:
        """Clear gradients before a validation run inside of training."""
        self.zero_grad()

    def on_validation_model_eval(self) -> None:
        """Put the model into evaluation mode for validation."""
        self.eval()

    def on_validation_model_train(self) -> None:
        """Put the model back after validation; if not overridden, each submodule gets the mode that it had."""
        self.train()

    def on_test_model_eval(self) -> None:
        """Put the model into evaluation mode for a test."""
        self.eval()

    def on_test_model_train(self) -> None:
        """Put the model back after a test; if not overridden, each submodule gets the mode that it had."""
        self.train()

    def on_predict_model_eval(self) -> None:
        """Put the model into evaluation mode for prediction."""
        self.eval()

    def on_train_epoch_start(self) -> None:
        """Called when a training epoch begins."""

    def on_train_epoch_end(self) -> None:
        """Called when a training epoch ends."""

    def on_validation_epoch_start(self) -> None:
        """Called when the validation epoch begins."""

    def on_validation_epoch_end(self) -> None:
        """Called when the validation epoch ends."""

    def on_test_epoch_start(self) -> None:
        """Called when the test epoch begins."""

    def on_test_epoch_end(self) -> None:
        """Called when the test epoch ends."""

    def on_predict_epoch_start(self) -> None:
        """Called when the predict epoch begins."""

    def on_predict_epoch_end(self) -> None:
        """Called when the predict epoch ends."""

    def on_before_zero_grad(self, optimizer: Optimizer) -> None:
        """Called before gradients are cleared."""

    def on_before_backward(self, loss: Tensor) -> None:
        """Called before `loss.backward()`; `loss` is scaled for accumulation and precision."""

    def on_after_backward(self) -> None:
        """Called after `loss.backward()`, before optimizers step."""

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Called before an optimizer steps; gradients are unscaled and not yet clipped."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called when a checkpoint is put together; add to it or change it."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called when a checkpoint is loaded, before the weights are."""

    def configure_sharded_model(self) -> None:
        """Old name of `configure_model`."""

    def configure_model(self) -> None:
        """Create or wrap large layers here; called in every run, so keep it safe to call twice."""

"""Lightning's method names for a precision plugin.

The engine never calls them: `fulmen.strategies.face.route_overrides` leads the engine's verbs through those that a
subclass overrides. Each default calls the verb as the class defines it, past any such route.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fulmen.engine.precision.closure import FunctionClosure

if TYPE_CHECKING:
    from fulmen.types import StepClosure


class PrecisionFace:
    """Mixin with the old names; `Precision` is the only class that uses it."""

    # The closure of the step that runs now: whatever callable an override hands on to `optimizer_step`, gradients are
    # reported as final to this one.
    _running: StepClosure | None = None
    # Verbs that `route_overrides` leads through old names, on the instance.
    routes: Sequence[str] = ()

    def _verb(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(type(self), name).__get__(self)
        return method

    def forward_context(self) -> AbstractContextManager[Any]:
        """Old name of `context`."""
        return self._verb("context")()

    def train_step_context(self) -> AbstractContextManager[Any]:
        """Context of the training step only."""
        return self.forward_context()

    def val_step_context(self) -> AbstractContextManager[Any]:
        """Context of the validation step only."""
        return self.forward_context()

    def test_step_context(self) -> AbstractContextManager[Any]:
        """Context of the test step only."""
        return self.forward_context()

    def predict_step_context(self) -> AbstractContextManager[Any]:
        """Context of the predict step only."""
        return self.forward_context()

    def module_init_context(self) -> AbstractContextManager[Any]:
        """Old name of `init_context`, for modules."""
        return self._verb("init_context")()

    def tensor_init_context(self) -> AbstractContextManager[Any]:
        """Old name of `init_context`, for tensors."""
        return self._verb("init_context")()

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Old name of `convert`."""
        return self._verb("convert")(module)

    def connect(
        self, model: torch.nn.Module, optimizers: list[Any], lr_schedulers: list[Any]
    ) -> tuple[torch.nn.Module, list[Any], list[Any]]:
        """Look at, or exchange, module and optimizers after they were made."""
        return model, optimizers, lr_schedulers

    def pre_backward(self, tensor: Tensor, module: Any) -> Tensor:
        """Old name of `scale`."""
        return self._verb("scale")(tensor)

    def backward(self, tensor: Tensor, model: Any, optimizer: Any = None, *args: Any, **kwargs: Any) -> None:
        """Run the module's own `backward`, or the tensor's where it has none."""
        if model is not None and hasattr(model, "backward"):
            model.backward(tensor, *args, **kwargs)
        else:
            tensor.backward(*args, **kwargs)

    def post_backward(self, tensor: Tensor, module: Any) -> Tensor:
        """Return the loss without its graph."""
        return tensor.detach()

    def unscale_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Old name of `unscale`."""
        self._verb("unscale")(optimizer)

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, model: Any = None, closure: Any = None, **kwargs: Any
    ) -> Any:
        """Old name of `step`; `closure` is any callable."""
        return self._verb("step")(optimizer, as_step_closure(closure, self._running), **kwargs)

    def clip_gradients(
        self, optimizer: torch.optim.Optimizer, clip_val: float = 0.0, gradient_clip_algorithm: Any = "norm"
    ) -> None:
        """Old name of `clip`."""
        from fulmen.engine.precision.clipping import check_clip_algorithm

        if not clip_val or clip_val <= 0:
            return
        if check_clip_algorithm(gradient_clip_algorithm) == "value":
            self.clip_grad_by_value(optimizer, clip_val)
        else:
            self.clip_grad_by_norm(optimizer, clip_val)

    def clip_grad_by_norm(self, optimizer: torch.optim.Optimizer, clip_val: float) -> None:
        """Clip by total norm."""
        self._verb("clip")(optimizer, clip_val, "norm")

    def clip_grad_by_value(self, optimizer: torch.optim.Optimizer, clip_val: float) -> None:
        """Clip by absolute value."""
        self._verb("clip")(optimizer, clip_val, "value")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add to a checkpoint."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Read from a checkpoint."""

    def run_with(self, closure: StepClosure, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function during which `closure` is the step's own one."""
        before, self._running = self._running, closure
        try:
            return function(*args, **kwargs)
        finally:
            self._running = before


def as_step_closure(closure: Any, running: StepClosure | None = None) -> StepClosure:
    """Return a closure with `compute` and `ready` for any callable (or `None`).

    Args:
        closure: A step closure, or a function of the user's own around one.
        running: The step closure that is at work; its `ready` is used where `closure` has none.
    """
    if hasattr(closure, "compute") and hasattr(closure, "ready"):
        return closure
    parts: dict[str, Any] = {"manual": closure is None}
    if closure is not None:
        parts["compute"] = closure
    if running is not None:
        parts["ready"] = running.ready
        parts["manual"] = getattr(running, "manual", parts["manual"])
    return FunctionClosure(**parts)

"""Full precision, and what every precision offers to the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.precision.clipping import clip_gradients
from fulmen.engine.precision.face import PrecisionFace
from fulmen.types import StepClosure

_NO_CONTEXT: AbstractContextManager[Any] = nullcontext()


class Precision(PrecisionFace):
    """Numbers stay what they are: ``"32-true"``.

    The engine uses only the verbs of this class; Lightning's method names come from `PrecisionFace`. A subclass may
    override either.

    Attributes:
        precision: Name of the precision.
        plain: Whether every verb is the identity and `step` calls the optimizer directly, so that the engine may skip
            the calls. Subclasses that override anything are not plain.
        stepped: Whether the last `step` changed weights (a loss scaler skips a step whose gradients overflowed).
        settles: Whether the next `scale` may change the loss scale; not while gradients of another scale wait.
    """

    precision: str = "32-true"
    plain: bool = True
    stepped: bool = True
    settles: bool = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "plain" not in vars(cls):
            cls.plain = cls.plain and all(name.startswith("__") or not callable(v) for name, v in vars(cls).items())

    def context(self) -> AbstractContextManager[Any]:
        """Return the context in which steps and forwards run."""
        return _NO_CONTEXT

    def init_context(self) -> AbstractContextManager[Any]:
        """Return the context in which modules and tensors are created."""
        return _NO_CONTEXT

    def convert(self, module: torch.nn.Module) -> torch.nn.Module:
        """Bring a module's weights into this precision, in place."""
        return module

    def convert_input(self, data: Any) -> Any:
        """Bring a batch's floating point tensors into this precision."""
        return data

    def convert_output(self, data: Any) -> Any:
        """Bring a forward's floating point tensors back into the default dtype."""
        return data

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss that `backward` starts from."""
        return loss

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the loss scale out of the gradients of an optimizer; doing it twice is allowed."""

    def step(self, optimizer: Any, closure: StepClosure, **kwargs: Any) -> Any:
        """Run the closure and step the optimizer.

        Args:
            optimizer: A torch optimizer.
            closure: `compute` makes gradients, `ready` is called when they are final.
            **kwargs: Passed on to ``optimizer.step``.

        Returns:
            What ``optimizer.step`` returns.
        """
        return optimizer.step(closure.both, **kwargs)

    def clip(
        self, optimizer: torch.optim.Optimizer, clip_val: float | None, algorithm: str | None = "norm"
    ) -> Tensor | None:
        """Clip the gradients of an optimizer's parameters in place; see `clip_gradients`."""
        return clip_gradients(self.main_params(optimizer), clip_val, algorithm)

    def main_params(self, optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
        """Yield the parameters that the optimizer steps."""
        for group in optimizer.param_groups:
            yield from group["params"]

    def state_dict(self) -> dict[str, Any]:
        """Return what must be kept to go on, the loss scaler's state for example."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    def teardown(self) -> None:
        """Release what was acquired."""

    def __getstate__(self) -> dict[str, Any]:
        # Routes are made anew at the next set-up.
        state = {key: value for key, value in vars(self).items() if key not in self.routes}
        return state | {"routes": (), "_running": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.precision!r})"

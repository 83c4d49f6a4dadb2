"""What a module may know of the run it is in; the Session of the loops fits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from fulmen.core.optimizer import LightningOptimizer
    from fulmen.engine.hooks.running import Cursor


class OptimizationHandle(Protocol):
    """The step room as a module sees it."""

    lightning_optimizers: list[LightningOptimizer]

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Backward with hooks, scaling and synchronisation."""
        ...

    def clip(self, optimizer: Any, value: float | None, algorithm: str | None) -> None:
        """Clip the gradients of one optimizer."""
        ...


class RunHandle(Protocol):
    """A running session as a module sees it."""

    @property
    def cursor(self) -> Cursor:
        """Where the run is."""
        ...

    @property
    def optimization(self) -> OptimizationHandle:
        """The step room."""
        ...

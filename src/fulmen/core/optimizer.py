"""The optimizer that user code sees during a run: same state and class family as the wrapped one, a step of our own.

`LightningOptimizer` shares the wrapped optimizer's ``__dict__``, so that state, groups and hooks are one and the same
object; only `step` differs: it goes through the step room (precision, hooks before the step, counting).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from torch.optim import Optimizer

if TYPE_CHECKING:
    from torch import Tensor

Closure = Callable[[], Any]


class OptimizerRoom(Protocol):
    """What an optimizer needs of the step room; see `fulmen.engine.loops`."""

    closure: Closure
    plain: bool
    finish: LightningOptimizer | None

    def step(self, optimizer: LightningOptimizer, closure: Closure | None, kwargs: dict[str, Any]) -> Any:
        """Step through precision and hooks."""
        ...

    def after_step(self, optimizer: LightningOptimizer) -> None:
        """Count the step."""
        ...

    def toggle(self, optimizer: LightningOptimizer, *, sync_grad: bool) -> Any:
        """Context in which only this optimizer's parameters need gradients."""
        ...


class LightningOptimizer:
    """Wraps an optimizer for a run; instances are also instances of the wrapped optimizer's class.

    Args:
        optimizer: The optimizer to wrap.
        room: Step room of the run; without one, `step` is the wrapped optimizer's own.
    """

    __slots__ = ("_fulmen_optimizer", "_fulmen_room", "_fulmen_step")

    def __new__(cls, optimizer: Optimizer, room: OptimizerRoom | None = None) -> LightningOptimizer:
        """Make an instance of a class that also derives from the optimizer's."""
        kind = type(optimizer)
        family = type(f"Lightning{kind.__name__}", (cls, kind), {"__module__": kind.__module__})
        made: LightningOptimizer = object.__new__(family)
        return made

    def __init__(self, optimizer: Optimizer, room: OptimizerRoom | None = None) -> None:
        # One dictionary for both: a later `load_state_dict` on either is seen by the other.
        object.__setattr__(self, "__dict__", optimizer.__dict__)
        self._fulmen_optimizer = optimizer
        self._fulmen_room = room
        self._fulmen_step: Callable[..., Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (LightningOptimizer, (self._fulmen_optimizer,))

    @property
    def optimizer(self) -> Optimizer:
        """The wrapped optimizer."""
        return self._fulmen_optimizer

    @property
    def step(self) -> Callable[..., Any]:
        """`step(closure=None, **kwargs)`: run the closure, fire `on_before_optimizer_step`, update the weights.

        A property, because learning-rate schedulers put a `step` of their own into the shared ``__dict__``.
        """
        return self._step if self._fulmen_step is None else self._fulmen_step

    @step.setter
    def step(self, function: Callable[..., Any]) -> None:
        # A scheduler built on the wrapper puts its counting wrapper here, around `_step`.
        self._fulmen_step = function

    def _step(self, closure: Closure | None = None, **kwargs: Any) -> Any:
        room = self._fulmen_room
        optimizer = self._fulmen_optimizer
        if room is None:
            return optimizer.step(closure, **kwargs) if closure is not None else optimizer.step(**kwargs)
        if closure is room.closure and room.plain:
            # The automatic closure then also does what comes between backward and the update: no extra frame.
            room.finish = self
            result = optimizer.step(closure, **kwargs)
            room.finish = None
            room.after_step(self)
            return result
        return room.step(self, closure, kwargs)

    @contextmanager
    def toggle_model(self, sync_grad: bool = True) -> Iterator[None]:
        """Only this optimizer's parameters need gradients inside; for manual optimization.

        Args:
            sync_grad: Whether ranks synchronise gradients inside.
        """
        room = self._fulmen_room
        if room is None:
            yield
            return
        with room.toggle(self, sync_grad=sync_grad):
            yield

    def __repr__(self) -> str:
        return f"Lightning{self._fulmen_optimizer!r}"


class NoOptimizer(Optimizer):
    """Stands in when `configure_optimizers` returns `None`: runs the closure and changes nothing."""

    def __init__(self) -> None:
        import torch

        super().__init__([torch.zeros(1)], {})

    def step(self, closure: Closure | None = None) -> Tensor | None:  # type: ignore[override]  # torch's overloads
        """Run the closure."""
        return closure() if closure is not None else None

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to load."""

    def __repr__(self) -> str:
        return "NoOptimizer"


def is_steppable(value: Any) -> bool:
    """Whether `value` can serve as an optimizer."""
    return isinstance(value, Optimizer) or (
        callable(getattr(value, "step", None)) and callable(getattr(value, "zero_grad", None))
    )

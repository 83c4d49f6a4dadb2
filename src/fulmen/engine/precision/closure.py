"""Closures of an optimizer step that are not the loops' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _nothing() -> None:
    return None


class FunctionClosure:
    """A step closure made of two functions.

    Calling the object runs `compute` alone, which is what code written against Lightning's strategies expects.

    Args:
        compute: Runs step and backward and returns the loss (or `None`).
        ready: Runs when gradients are final.
        manual: Whether `None` from `compute` is no reason to skip the step (gradients were made elsewhere).
    """

    def __init__(
        self, compute: Callable[[], Any] = _nothing, ready: Callable[[], Any] = _nothing, manual: bool = False
    ) -> None:
        self.compute = compute
        self.ready = ready
        self.manual = manual

    def both(self) -> Any:
        """Run `compute`, then `ready`."""
        loss = self.compute()
        self.ready()
        return loss

    def __call__(self) -> Any:
        return self.compute()

"""What starts the other processes of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Launcher(ABC):
    """Runs a function in all processes of a run.

    A strategy for one process has none: `strategy.launcher` is `None` and the trainer calls the function itself.
    """

    @property
    @abstractmethod
    def is_interactive_compatible(self) -> bool:
        """Whether it works in a notebook."""

    @abstractmethod
    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run `function` in every process; returns the result of rank 0."""

    def kill(self, signum: int) -> None:
        """Send a signal to the processes that were started here."""
        return None

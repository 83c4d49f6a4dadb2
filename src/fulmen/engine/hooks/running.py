"""Where the run is: the hook that is running, its stage, batch and loader.

`Cursor` answers `self.log` (which hook am I in) and the note that an exception gets. A stack of running modules serves
`Callback.log`; nested runs push and pop.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fulmen.errors import LoggingError

if TYPE_CHECKING:
    from fulmen.engine.hooks.spec import HookSpec
    from fulmen.engine.results.store import Results


class Cursor:
    """The place a run has reached; written by loops and slots, read by `self.log` and error notes.

    Attributes:
        stage: Name of the running stage (`train`, `sanity_check`, `validate`, `test`, `predict`) or `None`.
        hook: The hook whose user code is running, or `None`.
        results: Store that takes logged values now, or `None`.
        batch: The batch in work (only as long as it is).
        batch_idx: Index of that batch, -1 before the first.
        dataloader_idx: Index of its loader if there are several, else `None`.
    """

    __slots__ = ("batch", "batch_idx", "dataloader_idx", "hook", "results", "stage")

    def __init__(self) -> None:
        self.stage: str | None = None
        self.hook: HookSpec | None = None
        self.results: Results | None = None
        self.batch: Any = None
        self.batch_idx = -1
        self.dataloader_idx: int | None = None

    def mark(self) -> tuple[Any, ...]:
        """The place, to come `back` to after a nested run."""
        return (self.stage, self.hook, self.results, self.batch, self.batch_idx, self.dataloader_idx)

    def back(self, mark: tuple[Any, ...]) -> None:
        """Return to a place that `mark` gave."""
        self.stage, self.hook, self.results, self.batch, self.batch_idx, self.dataloader_idx = mark


_MODULES: ContextVar[tuple[Any, ...]] = ContextVar("fulmen_running_modules", default=())


def push_module(module: Any) -> None:
    """Mark `module` as the one whose run is active in this context."""
    _MODULES.set((*_MODULES.get(), module))


def pop_module() -> None:
    """Undo the last `push_module`."""
    _MODULES.set(_MODULES.get()[:-1])


def is_running(module: Any) -> bool:
    """Whether a run of `module` is active in this context."""
    return any(module is running for running in _MODULES.get())


def running_module(what: str) -> Any:
    """Return the module of the active run.

    Args:
        what: Call that needs it, for the error.

    Raises:
        LoggingError: If no run is active.
    """
    modules = _MODULES.get()
    if not modules:
        raise LoggingError(f"{what} was called outside of a run; call it inside of a hook while a Trainer is running.")
    return modules[-1]

"""`breakpoint()` and `pdb.set_trace()` during a run: bars make room for the prompt; Ctrl-C is the debugger's there."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.progress.timed_progress import TimedProgressBar
from fulmen.trainer.signals import SignalGuard

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

_PROMPT = "interaction"  # Pdb's method that asks for commands until one of them lets the program go on


def watch_prompts(trainer: Trainer) -> None:
    """From now on the Trainer's bar makes room for debuggers; `unwatch_prompts` is its contrary."""
    _WATCH.trainers.append(trainer)
    if len(_WATCH.trainers) == 1:
        _WATCH.install()


def unwatch_prompts(trainer: Trainer) -> None:
    """Undo one `watch_prompts`."""
    _WATCH.trainers.remove(trainer)
    if not _WATCH.trainers:
        _WATCH.uninstall()


class _Watch:
    """What is put in the place of Python's hook and of Pdb's prompt, as long as any run lasts.

    Runs need not end in the order in which they began (streams of predictions), so all share this one.
    """

    def __init__(self) -> None:
        self.trainers: list[Trainer] = []
        self.hook: _Hook | None = None
        self.interaction: Callable[..., Any] | None = None
        self.former: Callable[..., Any] | None = None

    def install(self) -> None:
        """Take the places."""
        import pdb

        self.hook = sys.breakpointhook = _Hook(sys.breakpointhook)
        self.former = former = pdb.Pdb.interaction

        def interaction(debugger: Any, *args: Any, **kwargs: Any) -> Any:
            with _prompt(debugger):
                return former(debugger, *args, **kwargs)

        self.interaction = interaction
        setattr(pdb.Pdb, _PROMPT, interaction)

    def uninstall(self) -> None:
        """Give them back, unless somebody else has taken them."""
        import pdb

        if self.hook is not None and sys.breakpointhook is self.hook:
            sys.breakpointhook = self.hook.former
        if self.former is not None and pdb.Pdb.interaction is self.interaction:
            setattr(pdb.Pdb, _PROMPT, self.former)
        self.hook = self.interaction = self.former = None

    def bars(self) -> Iterator[TimedProgressBar]:
        """Bars of all runs."""
        for trainer in self.trainers:
            bar = trainer.progress_bar_callback
            if isinstance(bar, TimedProgressBar):
                yield bar

    def pause(self) -> None:
        """Take all bars off the screen."""
        for bar in self.bars():
            bar.pause()


class _Hook:
    """Stands for `sys.breakpointhook`.

    `__call__` is a property: it runs before the call and has left the stack when the debugger, whichever
    ``PYTHONBREAKPOINT`` names, looks for the frame that called it.
    """

    def __init__(self, former: Callable[..., Any]) -> None:
        self.former = former

    @property
    def __call__(self) -> Callable[..., Any]:
        if os.environ.get("PYTHONBREAKPOINT") != "0":
            _WATCH.pause()
        return self.former


@contextmanager
def _prompt(debugger: Any) -> Iterator[None]:
    """While Pdb, or a debugger derived from it, waits for commands."""
    shown = sys.stdout
    _WATCH.pause()
    if getattr(debugger, "stdout", None) is shown:  # a bar's stand-in, which would keep the prompt back
        debugger.stdout = sys.stdout
    handler = signal.getsignal(signal.SIGINT)
    ours = isinstance(getattr(handler, "__self__", None), SignalGuard)
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        ours = False
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        for bar in _WATCH.bars():
            bar.resume()


_WATCH = _Watch()

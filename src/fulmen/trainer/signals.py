"""Ctrl-C, SIGTERM and SIGUSR1: noted in the handler, acted on at the next batch boundary."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from fulmen.engine.loops.control import RunControl
from fulmen.errors import SIGTERMException
from fulmen.utilities.rank_zero import rank_zero_info


class SignalGuard:
    """Handlers for the time that loops run; put back afterwards. Only in the main thread.

    Args:
        control: Gets the exception to raise at the next batch boundary.
        gentle_interrupt: Whether the first Ctrl-C waits for the batch boundary (the second never does).
    """

    def __init__(self, control: RunControl, *, gentle_interrupt: bool) -> None:
        self.control = control
        self.gentle = gentle_interrupt
        self.former: dict[int, Any] = {}
        self.pid = os.getpid()

    def __enter__(self) -> SignalGuard:
        if threading.current_thread() is not threading.main_thread():
            return self
        if self.gentle and _is_free(signal.SIGINT, signal.default_int_handler):
            self.former[signal.SIGINT] = signal.signal(signal.SIGINT, self.interrupt)
        for name in ("SIGTERM", "SIGUSR1"):  # Windows has not all
            number = getattr(signal, name, None)
            if number is not None and _is_free(number, signal.SIG_DFL):
                self.former[number] = signal.signal(number, self.terminate)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self.former.items():
            if getattr(signal.getsignal(number), "__self__", None) is self:  # else user code set one of its own
                signal.signal(number, handler)
        self.former = {}

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """First Ctrl-C: at the next batch boundary; second: now. A forked loader worker leaves it to its parent."""
        if os.getpid() != self.pid:
            return
        if self.control.interrupt is not None:
            raise KeyboardInterrupt
        self.control.interrupt = KeyboardInterrupt()
        rank_zero_info("Ctrl-C: finishing this batch; press it again to stop at once.")

    def terminate(self, number: int, frame: FrameType | None) -> None:
        """Save and leave at the next batch boundary; after SIGUSR1 the job is requeued, where it is one of Slurm's.

        A forked loader worker ends at once, as without a handler.
        """
        if os.getpid() != self.pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.control.interrupt = SIGTERMException(128 + number)
        self.control.sigterm = True
        self.control.requeue = number != signal.SIGTERM


def _is_free(number: int, default: Any) -> bool:
    """Whether nobody handles a signal, or the guard of a run around this one does."""
    handler = signal.getsignal(number)
    return handler is default or isinstance(getattr(handler, "__self__", None), SignalGuard)

"""A forked loader worker that inherits the handlers does not act for its parent."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from fulmen.engine.loops.control import RunControl
from fulmen.errors import SIGTERMException
from fulmen.trainer.signals import SignalGuard

pytestmark = pytest.mark.feature("T-07")


def test_ctrl_c_in_a_worker_is_left_to_the_parent() -> None:
    guard = SignalGuard(RunControl(), gentle_interrupt=True)
    guard.pid = os.getpid() + 1  # as if this were a fork
    guard.interrupt(signal.SIGINT, None)
    guard.interrupt(signal.SIGINT, None)
    assert guard.control.interrupt is None


def test_sigterm_ends_a_worker_as_without_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *args: calls.append(("kill", *args)))
    monkeypatch.setattr(signal, "signal", lambda *args: calls.append(("signal", *args)))
    guard = SignalGuard(RunControl(), gentle_interrupt=True)
    guard.pid = os.getpid() + 1
    guard.terminate(signal.SIGTERM, None)
    assert calls == [("signal", signal.SIGTERM, signal.SIG_DFL), ("kill", os.getpid(), signal.SIGTERM)]
    assert guard.control.interrupt is None


def test_in_the_process_itself_both_wait_for_the_batch() -> None:
    guard = SignalGuard(RunControl(), gentle_interrupt=True)
    guard.interrupt(signal.SIGINT, None)
    assert isinstance(guard.control.interrupt, KeyboardInterrupt)
    guard.terminate(signal.SIGTERM, None)
    assert isinstance(guard.control.interrupt, SIGTERMException)

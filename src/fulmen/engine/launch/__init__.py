"""Start the processes of a run, and let them agree on what happens next."""

from __future__ import annotations

from fulmen.engine.launch.exchange import ControlExchange, Decision
from fulmen.engine.launch.launcher import Launcher

__all__ = ["ControlExchange", "Decision", "Launcher"]

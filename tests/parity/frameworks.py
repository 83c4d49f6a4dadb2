"""Both frameworks side by side: the installed Lightning as the peer, and Fulmen in either policy."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PEER_VERSION = "2.6.6"

LIGHTNING = "lightning"
"""The peer."""
STRICT = "fulmen-lightning"
"""Fulmen under `Policy.lightning`."""
RIGHT = "fulmen-right"
"""Fulmen as it comes (`Policy.right`)."""


def peer() -> ModuleType:
    """The installed Lightning; without it the test is skipped. Imported on first use: it takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its import warns of is not the subject here
        pytest.importorskip("lightning.pytorch.callbacks", reason="the peer is a development dependency")
        return importlib.import_module("lightning.pytorch")


class Framework:
    """A framework in one setting: its module as `L`, and Trainers with nothing switched on that a test did not ask for.

    Args:
        name: `LIGHTNING`, `STRICT` or `RIGHT`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.extra: dict[str, Any] = {}
        if name == LIGHTNING:
            self.L: Any = peer()
        else:
            import fulmen
            from fulmen.engine.runtime.policy import Policy

            self.L = fulmen
            self.extra = {"policy": Policy.lightning if name == STRICT else Policy.right}
        self.callbacks: Any = importlib.import_module(f"{self.L.__name__}.callbacks")
        self.loggers: Any = importlib.import_module(f"{self.L.__name__}.loggers")

    def __repr__(self) -> str:
        return self.name

    def trainer(self, root: Path, **kwargs: Any) -> Any:
        """A quiet Trainer on one CPU that writes below `root` only."""
        quiet = {
            "accelerator": "cpu",
            "devices": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": str(root),
        }
        return self.L.Trainer(**{**quiet, **self.extra, **kwargs})


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings and log lines of either framework (advice about workers and the like)."""
    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.pytorch", "lightning.fabric", "fulmen")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

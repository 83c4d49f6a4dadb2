"""Fulmen under Lightning's longer path: `fulmen.pytorch.Trainer` is `fulmen.Trainer`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fulmen.version import __version__

if TYPE_CHECKING:
    from fulmen.callbacks.callback import Callback
    from fulmen.core.datamodule import LightningDataModule
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer
    from fulmen.utilities.seed import seed_everything

_HOME = {
    "Callback": "fulmen.callbacks.callback",
    "LightningDataModule": "fulmen.core.datamodule",
    "LightningModule": "fulmen.core.module",
    "Trainer": "fulmen.trainer.trainer",
    "seed_everything": "fulmen.utilities.seed",
}
_ROOMS = ("accelerators", "callbacks", "core", "loggers", "plugins", "strategies", "trainer", "utilities")

__all__ = ["Callback", "LightningDataModule", "LightningModule", "Trainer", "__version__", "seed_everything"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})

"""Fulmen: a training framework for PyTorch.

`import fulmen as L` gives `L.Trainer`, `L.LightningModule`, `L.LightningDataModule`, `L.Callback`, `L.Policy`,
`L.seed_everything`. All names are looked up on first use, so that the import costs little more than torch's.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

from fulmen.version import __version__

if TYPE_CHECKING:
    from fulmen.callbacks.callback import Callback
    from fulmen.core.datamodule import LightningDataModule
    from fulmen.core.module import LightningModule
    from fulmen.engine.runtime.policy import Policy
    from fulmen.engine.storage import add_safe_types
    from fulmen.trainer.trainer import Trainer
    from fulmen.utilities.retry import RetryPolicy
    from fulmen.utilities.seed import seed_everything

_HOME = {
    "Callback": "fulmen.callbacks.callback",
    "LightningDataModule": "fulmen.core.datamodule",
    "LightningModule": "fulmen.core.module",
    "Policy": "fulmen.engine.runtime.policy",
    "RetryPolicy": "fulmen.utilities.retry",
    "Trainer": "fulmen.trainer.trainer",
    "add_safe_types": "fulmen.engine.storage",
    "seed_everything": "fulmen.utilities.seed",
}
_ROOMS = (
    "accelerators",
    "callbacks",
    "compat",
    "core",
    "demos",
    "errors",
    "loggers",
    "plugins",
    "pytorch",
    "strategies",
    "trainer",
    "utilities",
)

__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningModule",
    "Policy",
    "RetryPolicy",
    "Trainer",
    "__version__",
    "add_safe_types",
    "seed_everything",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = globals()[name] = getattr(_imported(_HOME[name]), name)
        return value
    if name in _ROOMS:
        return importlib.import_module(f"fulmen.{name}")
    raise AttributeError(f"module 'fulmen' has no attribute {name!r}")


def _imported(module: str) -> Any:
    """Import without a garbage collection in between: one over all of torch's objects takes 0.1 s."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})

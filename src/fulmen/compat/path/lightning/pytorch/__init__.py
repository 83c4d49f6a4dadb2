"""lightning.pytorch, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.install import ensure_installed
from fulmen.compat.modules import lazy

ensure_installed()
__version__ = "2.6.6"
__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningModule",
    "Trainer",
    "disable_possible_user_warnings",
    "seed_everything",
    "__version__",
]
_NAMES = {
    "fulmen.callbacks.callback": "Callback",
    "fulmen.core.datamodule": "LightningDataModule",
    "fulmen.core.module": "LightningModule",
    "fulmen.trainer.trainer": "Trainer",
    "fulmen.utilities.seed": "seed_everything",
    "fulmen.utilities.warnings": "disable_possible_user_warnings",
}
_MODULES = "accelerators callbacks core demos loggers plugins strategies trainer tuner utilities"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

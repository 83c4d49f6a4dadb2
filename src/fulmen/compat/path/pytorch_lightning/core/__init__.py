"""pytorch_lightning.core, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["LightningDataModule", "LightningModule"]
_NAMES = {
    "fulmen.core.datamodule": "LightningDataModule",
    "fulmen.core.module": "LightningModule",
}
_MODULES = "datamodule hooks mixins module optimizer saving"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

"""pytorch_lightning.core.datamodule, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.datahooks import DataHooks
from fulmen.core.datamodule import LightningDataModule
from fulmen.core.hparams import HyperparametersMixin
from fulmen.utilities.collections import apply_to_collection

__all__ = ["DataHooks", "HyperparametersMixin", "LightningDataModule", "apply_to_collection"]
__getattr__ = absent(__name__, __all__)

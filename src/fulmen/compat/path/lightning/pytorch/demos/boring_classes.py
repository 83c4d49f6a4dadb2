"""lightning.pytorch.demos.boring_classes, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.datamodule import LightningDataModule
from fulmen.core.module import LightningModule
from fulmen.core.optimizer import LightningOptimizer
from fulmen.demos.boring_classes import (
    BoringDataModule,
    BoringDataModuleNoLen,
    BoringModel,
    DemoModel,
    IterableBoringDataModule,
    ManualOptimBoringModel,
    Net,
    RandomDataset,
    RandomDictDataset,
    RandomIterableDataset,
    RandomIterableDatasetWithLen,
)
from fulmen.utilities.collections import apply_to_collection
from fulmen.utilities.types import STEP_OUTPUT

__all__ = [
    "BoringDataModule",
    "BoringDataModuleNoLen",
    "BoringModel",
    "DemoModel",
    "IterableBoringDataModule",
    "LightningDataModule",
    "LightningModule",
    "LightningOptimizer",
    "ManualOptimBoringModel",
    "Net",
    "RandomDataset",
    "RandomDictDataset",
    "RandomIterableDataset",
    "RandomIterableDatasetWithLen",
    "STEP_OUTPUT",
    "apply_to_collection",
]
__getattr__ = absent(__name__, __all__)

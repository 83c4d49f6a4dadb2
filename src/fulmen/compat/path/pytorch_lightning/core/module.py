"""pytorch_lightning.core.module, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.compat.modules import absent
from fulmen.core.datahooks import DataHooks
from fulmen.core.hparams import HyperparametersMixin
from fulmen.core.module import LightningModule
from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.storage.filesystem import get_filesystem
from fulmen.errors import MisconfigurationException
from fulmen.loggers.logger import Logger
from fulmen.utilities.collections import apply_to_collection
from fulmen.utilities.enums import GradClipAlgorithmType
from fulmen.utilities.rank_zero import WarningCache, rank_zero_deprecation, rank_zero_warn
from fulmen.utilities.types import STEP_OUTPUT

__all__ = [
    "Callback",
    "DataHooks",
    "GradClipAlgorithmType",
    "HyperparametersMixin",
    "LightningModule",
    "LightningOptimizer",
    "Logger",
    "MisconfigurationException",
    "STEP_OUTPUT",
    "WarningCache",
    "apply_to_collection",
    "get_filesystem",
    "rank_zero_deprecation",
    "rank_zero_warn",
]
__getattr__ = absent(__name__, __all__)

"""lightning.pytorch.utilities.types, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.utilities.types import (
    STEP_OUTPUT,
    _EVALUATE_OUTPUT,
    _METRIC,
    _PREDICT_OUTPUT,
    LRSchedulerConfigType,
    LRSchedulerPLType,
    LRSchedulerType,
    LRSchedulerTypeTuple,
    LRSchedulerTypeUnion,
    OptimizerConfig,
    OptimizerLRScheduler,
    OptimizerLRSchedulerConfig,
)

__all__ = [
    "LRSchedulerConfig",
    "LRSchedulerConfigType",
    "LRSchedulerPLType",
    "LRSchedulerType",
    "LRSchedulerTypeTuple",
    "LRSchedulerTypeUnion",
    "OptimizerConfig",
    "OptimizerLRScheduler",
    "OptimizerLRSchedulerConfig",
    "STEP_OUTPUT",
    "_EVALUATE_OUTPUT",
    "_METRIC",
    "_PREDICT_OUTPUT",
]
__getattr__ = absent(__name__, __all__)

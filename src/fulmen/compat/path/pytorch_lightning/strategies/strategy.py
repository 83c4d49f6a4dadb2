"""pytorch_lightning.strategies.strategy, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.precision.base import Precision
from fulmen.engine.storage.checkpoint_io import CheckpointIO, TorchCheckpointIO
from fulmen.strategies.strategy import Strategy
from fulmen.trainer.states import TrainerFn
from fulmen.utilities.collections import move_data_to_device
from fulmen.utilities.types import STEP_OUTPUT

__all__ = [
    "CheckpointIO",
    "LRSchedulerConfig",
    "LightningOptimizer",
    "Precision",
    "STEP_OUTPUT",
    "Strategy",
    "TorchCheckpointIO",
    "TrainerFn",
    "move_data_to_device",
]
__getattr__ = absent(__name__, __all__)

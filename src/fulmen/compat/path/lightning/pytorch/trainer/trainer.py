"""lightning.pytorch.trainer.trainer, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.accelerators.accelerator import Accelerator
from fulmen.callbacks.callback import Callback
from fulmen.callbacks.checkpoint import Checkpoint
from fulmen.callbacks.early_stopping import EarlyStopping
from fulmen.callbacks.progress.progress_bar import ProgressBar
from fulmen.compat.modules import absent
from fulmen.core.datamodule import LightningDataModule
from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.engine.precision.base import Precision
from fulmen.errors import MisconfigurationException, PossibleUserWarning
from fulmen.loggers.csv_logs import CSVLogger
from fulmen.loggers.logger import Logger
from fulmen.loggers.tensorboard import TensorBoardLogger
from fulmen.strategies.strategy import Strategy
from fulmen.trainer.states import RunningStage, TrainerFn, TrainerState, TrainerStatus
from fulmen.trainer.trainer import Trainer
from fulmen.utilities.enums import GradClipAlgorithmType
from fulmen.utilities.model_helpers import is_overridden
from fulmen.utilities.rank_zero import rank_zero_info, rank_zero_warn
from fulmen.utilities.seed import isolate_rng

__all__ = [
    "Accelerator",
    "CSVLogger",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "GradClipAlgorithmType",
    "LRSchedulerConfig",
    "LightningDataModule",
    "Logger",
    "MisconfigurationException",
    "PossibleUserWarning",
    "Precision",
    "ProgressBar",
    "RunningStage",
    "Strategy",
    "TensorBoardLogger",
    "Trainer",
    "TrainerFn",
    "TrainerState",
    "TrainerStatus",
    "is_overridden",
    "isolate_rng",
    "rank_zero_info",
    "rank_zero_warn",
]
__getattr__ = absent(__name__, __all__)

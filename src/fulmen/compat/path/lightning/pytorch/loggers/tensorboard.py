"""lightning.pytorch.loggers.tensorboard, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.model_checkpoint import ModelCheckpoint
from fulmen.compat.modules import absent
from fulmen.core.hparams_files import save_hparams_to_yaml
from fulmen.loggers.logger import Logger
from fulmen.loggers.tensorboard import TensorBoardLogger
from fulmen.utilities.rank_zero import rank_zero_only, rank_zero_warn

__all__ = ["Logger", "ModelCheckpoint", "TensorBoardLogger", "rank_zero_only", "rank_zero_warn", "save_hparams_to_yaml"]
__getattr__ = absent(__name__, __all__)

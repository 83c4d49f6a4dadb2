"""lightning.pytorch.loggers.logger, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.model_checkpoint import ModelCheckpoint
from fulmen.compat.modules import absent
from fulmen.loggers.logger import DummyLogger, Logger, rank_zero_experiment

__all__ = ["DummyLogger", "Logger", "ModelCheckpoint", "rank_zero_experiment"]
__getattr__ = absent(__name__, __all__)

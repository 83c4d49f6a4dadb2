"""lightning.pytorch.loggers, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["CSVLogger", "Logger", "TensorBoardLogger"]
_NAMES = {
    "fulmen.loggers.csv_logs": "CSVLogger",
    "fulmen.loggers.logger": "Logger",
    "fulmen.loggers.tensorboard": "TensorBoardLogger",
}
_MODULES = "csv_logs logger tensorboard"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

"""pytorch_lightning.loggers.csv_logs, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.hparams_files import save_hparams_to_yaml
from fulmen.loggers.csv_logs import CSVLogger, ExperimentWriter
from fulmen.loggers.logger import Logger, rank_zero_experiment
from fulmen.utilities.rank_zero import rank_zero_only

__all__ = ["CSVLogger", "ExperimentWriter", "Logger", "rank_zero_experiment", "rank_zero_only", "save_hparams_to_yaml"]
__getattr__ = absent(__name__, __all__)

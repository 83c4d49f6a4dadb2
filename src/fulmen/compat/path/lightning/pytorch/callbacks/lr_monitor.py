"""lightning.pytorch.callbacks.lr_monitor, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.lr_monitor import LearningRateMonitor
from fulmen.compat.modules import absent
from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.errors import MisconfigurationException
from fulmen.utilities.rank_zero import rank_zero_warn

__all__ = ["Callback", "LRSchedulerConfig", "LearningRateMonitor", "MisconfigurationException", "rank_zero_warn"]
__getattr__ = absent(__name__, __all__)

"""pytorch_lightning.tuner.lr_finder, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.compat.modules import absent
from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.errors import MisconfigurationException
from fulmen.utilities.rank_zero import rank_zero_warn
from fulmen.utilities.types import STEP_OUTPUT

__all__ = ["Callback", "LRSchedulerConfig", "MisconfigurationException", "STEP_OUTPUT", "rank_zero_warn"]
__getattr__ = absent(__name__, __all__)

"""pytorch_lightning.core.optimizer, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.optim_config import LRSchedulerConfig
from fulmen.core.optimizer import LightningOptimizer
from fulmen.errors import MisconfigurationException
from fulmen.utilities.model_helpers import is_overridden
from fulmen.utilities.rank_zero import rank_zero_warn

__all__ = ["LRSchedulerConfig", "LightningOptimizer", "MisconfigurationException", "is_overridden", "rank_zero_warn"]
__getattr__ = absent(__name__, __all__)

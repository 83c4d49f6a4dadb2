"""lightning.pytorch.callbacks.gradient_accumulation_scheduler, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.gradient_accumulation_scheduler import GradientAccumulationScheduler
from fulmen.compat.modules import absent
from fulmen.errors import MisconfigurationException
from fulmen.utilities.model_helpers import is_overridden
from fulmen.utilities.rank_zero import rank_zero_warn

__all__ = ["Callback", "GradientAccumulationScheduler", "MisconfigurationException", "is_overridden", "rank_zero_warn"]
__getattr__ = absent(__name__, __all__)

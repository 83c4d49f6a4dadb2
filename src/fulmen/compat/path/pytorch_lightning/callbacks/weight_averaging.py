"""pytorch_lightning.callbacks.weight_averaging, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.compat.modules import absent
from fulmen.utilities.model_helpers import is_overridden
from fulmen.utilities.rank_zero import rank_zero_info, rank_zero_warn
from fulmen.utilities.types import STEP_OUTPUT

__all__ = ["Callback", "STEP_OUTPUT", "is_overridden", "rank_zero_info", "rank_zero_warn"]
__getattr__ = absent(__name__, __all__)

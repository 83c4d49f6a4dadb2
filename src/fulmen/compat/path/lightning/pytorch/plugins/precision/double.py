"""lightning.pytorch.plugins.precision.double, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.precision.base import Precision
from fulmen.engine.precision.true import DoublePrecision
from fulmen.utilities.collections import apply_to_collection
from fulmen.utilities.rank_zero import rank_zero_deprecation

__all__ = ["DoublePrecision", "Precision", "apply_to_collection", "rank_zero_deprecation"]
__getattr__ = absent(__name__, __all__)

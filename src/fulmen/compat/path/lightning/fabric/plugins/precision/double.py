"""lightning.fabric.plugins.precision.double, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.precision.base import Precision
from fulmen.engine.precision.true import DoublePrecision
from fulmen.utilities.collections import apply_to_collection

__all__ = ["DoublePrecision", "Precision", "apply_to_collection"]
__getattr__ = absent(__name__, __all__)

"""lightning_fabric.plugins.precision.amp, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.precision.base import Precision
from fulmen.engine.precision.mixed import MixedPrecision
from fulmen.utilities.collections import apply_to_collection

__all__ = ["MixedPrecision", "Precision", "apply_to_collection"]
__getattr__ = absent(__name__, __all__)

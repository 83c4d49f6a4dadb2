"""pytorch_lightning.plugins.precision.amp, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.precision.base import Precision
from fulmen.engine.precision.mixed import MixedPrecision
from fulmen.errors import MisconfigurationException
from fulmen.utilities.enums import GradClipAlgorithmType

__all__ = ["GradClipAlgorithmType", "MisconfigurationException", "MixedPrecision", "Precision"]
__getattr__ = absent(__name__, __all__)

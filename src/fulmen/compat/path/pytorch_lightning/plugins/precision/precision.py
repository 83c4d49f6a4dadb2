"""pytorch_lightning.plugins.precision.precision, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.precision.base import Precision
from fulmen.utilities.enums import GradClipAlgorithmType

__all__ = ["GradClipAlgorithmType", "Precision"]
__getattr__ = absent(__name__, __all__)

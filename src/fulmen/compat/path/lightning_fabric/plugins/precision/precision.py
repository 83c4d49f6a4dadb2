"""lightning_fabric.plugins.precision.precision, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.precision.base import Precision

__all__ = ["Precision"]
__getattr__ = absent(__name__, __all__)

"""lightning_fabric.utilities.enums, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.enums import LightningEnum

__all__ = ["LightningEnum"]
__getattr__ = absent(__name__, __all__)

"""lightning_fabric.utilities.exceptions, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.errors import MisconfigurationException

__all__ = ["MisconfigurationException"]
__getattr__ = absent(__name__, __all__)

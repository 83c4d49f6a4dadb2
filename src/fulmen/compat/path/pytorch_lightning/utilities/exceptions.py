"""pytorch_lightning.utilities.exceptions, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.errors import MisconfigurationException, SIGTERMException

__all__ = ["MisconfigurationException", "SIGTERMException"]
__getattr__ = absent(__name__, __all__)

"""pytorch_lightning.utilities.warnings, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.errors import PossibleUserWarning

__all__ = ["PossibleUserWarning"]
__getattr__ = absent(__name__, __all__)

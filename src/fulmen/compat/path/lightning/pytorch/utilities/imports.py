"""lightning.pytorch.utilities.imports, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.rank_zero import rank_zero_warn

__all__ = ["rank_zero_warn"]
__getattr__ = absent(__name__, __all__)

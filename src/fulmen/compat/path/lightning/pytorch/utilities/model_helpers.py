"""lightning.pytorch.utilities.model_helpers, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.model_helpers import is_overridden

__all__ = ["is_overridden"]
__getattr__ = absent(__name__, __all__)

"""pytorch_lightning.utilities.combined_loader, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.combined_loader import CombinedLoader

__all__ = ["CombinedLoader"]
__getattr__ = absent(__name__, __all__)

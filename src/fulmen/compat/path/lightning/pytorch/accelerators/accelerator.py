"""lightning.pytorch.accelerators.accelerator, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.accelerators.accelerator import Accelerator
from fulmen.compat.modules import absent

__all__ = ["Accelerator"]
__getattr__ = absent(__name__, __all__)

"""lightning_fabric.accelerators.mps, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.mps import MPSAccelerator
from fulmen.compat.modules import absent

__all__ = ["Accelerator", "MPSAccelerator"]
__getattr__ = absent(__name__, __all__)

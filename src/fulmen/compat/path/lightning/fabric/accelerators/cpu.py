"""lightning.fabric.accelerators.cpu, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.cpu import CPUAccelerator
from fulmen.compat.modules import absent

__all__ = ["Accelerator", "CPUAccelerator"]
__getattr__ = absent(__name__, __all__)

"""pytorch_lightning.accelerators.mps, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.mps import MPSAccelerator
from fulmen.compat.modules import absent
from fulmen.errors import MisconfigurationException

__all__ = ["Accelerator", "MPSAccelerator", "MisconfigurationException"]
__getattr__ = absent(__name__, __all__)

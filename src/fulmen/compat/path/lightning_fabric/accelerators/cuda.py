"""lightning_fabric.accelerators.cuda, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.cuda import CUDAAccelerator, find_usable_cuda_devices
from fulmen.compat.modules import absent
from fulmen.utilities.rank_zero import rank_zero_info

__all__ = ["Accelerator", "CUDAAccelerator", "find_usable_cuda_devices", "rank_zero_info"]
__getattr__ = absent(__name__, __all__)

"""pytorch_lightning.accelerators, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = [
    "Accelerator",
    "AcceleratorRegistry",
    "CPUAccelerator",
    "CUDAAccelerator",
    "MPSAccelerator",
    "find_usable_cuda_devices",
]
_NAMES = {
    "fulmen.accelerators.accelerator": "Accelerator",
    "fulmen.accelerators.cpu": "CPUAccelerator",
    "fulmen.accelerators.cuda": "CUDAAccelerator find_usable_cuda_devices",
    "fulmen.accelerators.mps": "MPSAccelerator",
    "fulmen.accelerators.registry": "ACCELERATOR_REGISTRY@AcceleratorRegistry",
}
_MODULES = "accelerator cpu cuda mps"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

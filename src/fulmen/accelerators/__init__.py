"""Kinds of hardware: what is there, and which devices an argument means."""

from __future__ import annotations

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.cpu import CPUAccelerator
from fulmen.accelerators.cuda import CUDAAccelerator, find_usable_cuda_devices
from fulmen.accelerators.mps import MPSAccelerator
from fulmen.accelerators.registry import (
    ACCELERATOR_REGISTRY,
    AcceleratorRegistry,
    accelerator_for,
    resolve_accelerator,
)

__all__ = [
    "ACCELERATOR_REGISTRY",
    "Accelerator",
    "AcceleratorRegistry",
    "CPUAccelerator",
    "CUDAAccelerator",
    "MPSAccelerator",
    "accelerator_for",
    "find_usable_cuda_devices",
    "resolve_accelerator",
]

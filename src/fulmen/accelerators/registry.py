"""Accelerators by name, and from the arguments `accelerator` and `devices` to hardware."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.cpu import CPUAccelerator
from fulmen.accelerators.cuda import CUDAAccelerator
from fulmen.accelerators.mps import MPSAccelerator
from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest
from fulmen.utilities.registry import Registry


class AcceleratorRegistry(Registry):
    """Names of accelerators; `get` makes the object."""

    def __init__(self) -> None:
        super().__init__("accelerator")

    def available_accelerators(self) -> set[str]:
        """Return the names of those whose hardware is here."""
        return {name for name, entry in self.entries.items() if _class_of(entry.factory).is_available()}


def _class_of(factory: Any) -> type[Accelerator]:
    return factory if isinstance(factory, type) else type(factory())


ACCELERATOR_REGISTRY = AcceleratorRegistry()
for _known in (CPUAccelerator, CUDAAccelerator, MPSAccelerator):
    _known.register_accelerators(ACCELERATOR_REGISTRY)

_UNKNOWN_HERE = ("tpu", "xla", "hpu", "xpu", "ipu", "npu")


class Hardware(NamedTuple):
    """What a run uses on this machine."""

    accelerator: Accelerator
    devices: list[torch.device]


def resolve_accelerator(value: Any = "auto", devices: Any = "auto") -> Hardware:
    """Return the accelerator and the devices that two arguments mean here.

    Args:
        value: ``"auto"`` (the first of CUDA, MPS and CPU that is there), ``"gpu"`` (CUDA or MPS), a registered name
            or an `Accelerator` object.
        devices: As the accelerator's `parse_devices` takes it; ``"auto"`` is its `auto_device_count`.

    Raises:
        ArgumentTypeError: One of them is of the wrong kind.
        ArgumentValueError: The name is not known, the hardware is not there, or the devices are not.
    """
    accelerator = _accelerator(value)
    name = accelerator.name()
    if not accelerator.is_available():
        raise ArgumentValueError(
            f"accelerator={value!r} was asked for, but {accelerator.missing()}."
            f" Here {_there()} is available; use accelerator='auto' or 'cpu'."
        )
    if devices is None:
        raise ArgumentTypeError(f"devices=None: give a number, a list of indices or 'auto' for accelerator={name!r}.")
    if isinstance(devices, str) and devices.strip() == "auto":
        devices = accelerator.auto_device_count()
    parsed = accelerator.parse_devices(devices)
    return Hardware(accelerator, accelerator.get_parallel_devices(parsed))


def accelerator_for(device: torch.device) -> Accelerator:
    """Return the accelerator of a device.

    Raises:
        ArgumentValueError: None of that name is registered.
    """
    if device.type not in ACCELERATOR_REGISTRY:
        raise ArgumentValueError(
            f"device {str(device)!r}: no accelerator {device.type!r} is registered; register one with"
            f" ACCELERATOR_REGISTRY.register, or use {', '.join(ACCELERATOR_REGISTRY.names())}."
        )
    accelerator: Accelerator = ACCELERATOR_REGISTRY.get(device.type)
    return accelerator


def _there() -> str:
    return ", ".join(repr(name) for name in sorted(ACCELERATOR_REGISTRY.available_accelerators()))


def _accelerator(value: Any) -> Accelerator:
    if isinstance(value, Accelerator):
        return value
    if not isinstance(value, str):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise ArgumentTypeError(
            f"accelerator={value!r}: give a name ('auto', 'gpu', {', '.join(map(repr, ACCELERATOR_REGISTRY.names()))})"
            f" or an Accelerator object, not {kind}."
        )
    name = value.strip().lower()
    if name == "auto":
        return next((a for a in (CUDAAccelerator(), MPSAccelerator()) if a.is_available()), CPUAccelerator())
    if name == "gpu":
        for candidate in (CUDAAccelerator(), MPSAccelerator()):
            if candidate.is_available():
                return candidate
        raise ArgumentValueError(
            f"accelerator={value!r} was asked for, but {CUDAAccelerator.missing()} and {MPSAccelerator.missing()}."
            " Use accelerator='auto' or 'cpu'."
        )
    if name not in ACCELERATOR_REGISTRY:
        names = [*ACCELERATOR_REGISTRY.names(), "auto", "gpu"]
        why = "has no built-in support" if name in _UNKNOWN_HERE else "is not known"
        raise ArgumentValueError(
            f"accelerator={value!r} {why}; there are {', '.join(map(repr, names))}, and your own ones once they are"
            f" registered in ACCELERATOR_REGISTRY.{suggest(name, names)}"
        )
    accelerator: Accelerator = ACCELERATOR_REGISTRY.get(name)
    return accelerator

"""GPUs of Apple silicon."""

from __future__ import annotations

from typing import Any

import torch

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.cpu import cpu_stats
from fulmen.accelerators.devices import parse_indices
from fulmen.errors import ArgumentValueError


class MPSAccelerator(Accelerator):
    """The GPU under ``torch.backends.mps``; there is one."""

    def setup_device(self, device: torch.device) -> None:
        """Check that the device is of this kind."""
        if device.type != "mps":
            raise ArgumentValueError(f"MPSAccelerator cannot set up {str(device)!r}; use accelerator={device.type!r}.")

    @staticmethod
    def parse_devices(devices: Any) -> list[int]:
        """Return the index, ``[0]``."""
        return parse_indices(devices, range(MPSAccelerator.auto_device_count()), "mps")

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return the device."""
        return [torch.device("mps", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """Return 1 if the device is there."""
        return int(MPSAccelerator.is_available())

    @staticmethod
    def is_available() -> bool:
        """Return whether torch can use Metal here."""
        return torch.backends.mps.is_available()

    @staticmethod
    def name() -> str:
        """Return ``"mps"``."""
        return "mps"

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, float]:
        """Return use of CPU and (shared) memory in percent."""
        return cpu_stats()

    @classmethod
    def missing(cls) -> str:
        """Return why the device cannot be used."""
        return "torch.backends.mps.is_available() is False (it needs macOS on Apple silicon)"

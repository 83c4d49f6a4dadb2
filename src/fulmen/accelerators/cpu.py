"""The CPU."""

from __future__ import annotations

from typing import Any

import torch

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.devices import parse_process_count
from fulmen.errors import ArgumentValueError


class CPUAccelerator(Accelerator):
    """The CPU; each process is one device."""

    def setup_device(self, device: torch.device) -> None:
        """Check that the device is the CPU."""
        if device.type != "cpu":
            raise ArgumentValueError(f"CPUAccelerator cannot set up {str(device)!r}; use accelerator={device.type!r}.")

    @staticmethod
    def parse_devices(devices: Any) -> int:
        """Return the number of processes."""
        return parse_process_count(devices, "cpu")

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return the CPU once per process."""
        return [torch.device("cpu")] * parse_process_count(devices, "cpu")

    @staticmethod
    def auto_device_count() -> int:
        """Return 1."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Return `True`."""
        return True

    @staticmethod
    def name() -> str:
        """Return ``"cpu"``."""
        return "cpu"

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, float]:
        """Return use of CPU, memory and swap in percent.

        Raises:
            ModuleNotFoundError: The package psutil is not installed.
        """
        return cpu_stats()


def cpu_stats() -> dict[str, float]:
    """Return use of CPU, memory and swap in percent, measured by psutil."""
    try:
        import psutil
    except ModuleNotFoundError:
        raise ModuleNotFoundError("CPU statistics need the package psutil: pip install psutil") from None
    return {
        "cpu_percent": psutil.cpu_percent(),
        "cpu_vm_percent": psutil.virtual_memory().percent,
        "cpu_swap_percent": psutil.swap_memory().percent,
    }

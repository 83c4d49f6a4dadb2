"""NVIDIA (and, through ROCm, AMD) GPUs."""

from __future__ import annotations

import os
from typing import Any

import torch

from fulmen.accelerators.accelerator import Accelerator
from fulmen.accelerators.devices import parse_indices
from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.utilities.rank_zero import rank_zero_debug


class CUDAAccelerator(Accelerator):
    """GPUs under ``torch.cuda``."""

    def setup_device(self, device: torch.device) -> None:
        """Make the GPU the current one."""
        if device.type != "cuda":
            raise ArgumentValueError(f"CUDAAccelerator cannot set up {str(device)!r}; use accelerator={device.type!r}.")
        torch.cuda.set_device(device)

    @staticmethod
    def set_nvidia_flags(local_rank: int) -> None:
        """Number GPUs as the bus does, as `nvidia-smi` shows them, and say which this process may see.

        Args:
            local_rank: Rank of this process on its machine.
        """
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
        rank_zero_debug(f"Local rank {local_rank}: visible GPUs {visible}.")

    def teardown(self) -> None:
        """Give cached memory back."""
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    @staticmethod
    def parse_devices(devices: Any) -> list[int]:
        """Return indices of GPUs."""
        return parse_indices(devices, range(torch.cuda.device_count()), "cuda")

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return the GPUs of these indices."""
        return [torch.device("cuda", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """Return the number of GPUs."""
        return torch.cuda.device_count()

    @staticmethod
    def is_available() -> bool:
        """Return whether there is a GPU that torch can use."""
        return torch.cuda.is_available() and torch.cuda.device_count() > 0

    @staticmethod
    def name() -> str:
        """Return ``"cuda"``."""
        return "cuda"

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Return the allocator's statistics of a GPU."""
        return torch.cuda.memory_stats(device)

    @classmethod
    def missing(cls) -> str:
        """Return why GPUs cannot be used."""
        if torch.version.cuda is None and torch.version.hip is None:
            return "torch.cuda.is_available() is False (this torch was built without CUDA)"
        return "torch.cuda.is_available() is False (no GPU, or no driver that fits)"


def find_usable_cuda_devices(num_devices: int = -1) -> list[int]:
    """Return indices of GPUs on which memory can be allocated now.

    Args:
        num_devices: How many are wanted; -1 for all.

    Raises:
        ArgumentTypeError: `num_devices` is not a whole number.
        ArgumentValueError: Fewer GPUs are there, or usable.
    """
    if isinstance(num_devices, bool) or not isinstance(num_devices, int):
        raise ArgumentTypeError(f"find_usable_cuda_devices({num_devices!r}): give a whole number.")
    if num_devices < -1:
        raise ArgumentValueError(f"find_usable_cuda_devices({num_devices!r}): give -1 for all, or 0 and more.")
    if num_devices == 0:
        return []
    there = torch.cuda.device_count()
    if num_devices > there or there == 0:
        raise ArgumentValueError(f"find_usable_cuda_devices({num_devices}): this machine has {there} CUDA devices.")
    usable = []
    for index in range(there):
        try:
            torch.empty(1, device=torch.device("cuda", index))
        except RuntimeError:  # in exclusive use by somebody else, or out of memory
            continue
        usable.append(index)
        if len(usable) == num_devices:
            break
    if len(usable) < num_devices:
        raise ArgumentValueError(
            f"find_usable_cuda_devices({num_devices}): only {usable} can be used now, the others are busy."
        )
    return usable

"""One process, one device."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from fulmen.engine.precision import Precision
from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.strategies.strategy import Strategy

T = TypeVar("T")


class SingleDeviceStrategy(Strategy):
    """Train in this process on one device.

    Args:
        device: The device, as torch knows it.
        accelerator: The kind of hardware; by default the one of the device.
        checkpoint_io: Reads and writes checkpoint files.
        precision_plugin: Number format.

    Raises:
        ArgumentTypeError: The device (or another argument) is of the wrong kind.
        ArgumentValueError: There is no such device type.
    """

    strategy_name = "single_device"

    def __init__(
        self,
        device: torch.device | str | int = "cpu",
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Precision | None = None,
    ) -> None:
        super().__init__(accelerator=accelerator, checkpoint_io=checkpoint_io, precision_plugin=precision_plugin)
        if isinstance(device, bool) or not isinstance(device, torch.device | str | int):
            raise ArgumentTypeError(f"SingleDeviceStrategy(device={device!r}): give a torch.device or its name.")
        try:
            found = torch.device(device)
        except RuntimeError as error:
            raise ArgumentValueError(f"SingleDeviceStrategy(device={device!r}): {error}") from None
        if found.type == "cuda" and found.index is None:
            # Tensors say "cuda:0"; without the index every comparison with their device would fail.
            found = torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_initialized() else 0)
        elif found.type == "mps" and found.index is None:
            found = torch.device("mps", 0)
        self._root_device = found

    @property
    def root_device(self) -> torch.device:
        """The device."""
        return self._root_device

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the value: there is one process."""
        return tensor

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Return the tensor as it is, without a dimension for ranks, as Lightning does for one process."""
        return tensor

    def broadcast(self, obj: T, src: int = 0) -> T:
        """Return the object."""
        return obj

    def barrier(self, name: str | None = None) -> None:
        """Return at once."""

"""A batch's way to the device: the precision's conversion and the three hooks, of which only real ones are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from fulmen.errors import ArgumentTypeError, DataError
from fulmen.utilities.collections import move_data_to_device

Hook: TypeAlias = Callable[..., Any]


class BatchTransfer:
    """Callable ``transfer(batch, dataloader_idx=0) -> batch`` that brings a batch to the device.

    Order: `convert_input`, `before`, `transfer` (by default `move_data_to_device`), `after`. Tensors that are on the
    device already are not touched: with no hooks, a flat batch costs two Python calls.

    Args:
        before: Bound ``on_before_batch_transfer(batch, dataloader_idx)``, or `None` if not overridden.
        transfer: Bound ``transfer_batch_to_device(batch, device, dataloader_idx)``, or `None`.
        after: Bound ``on_after_batch_transfer(batch, dataloader_idx)``, or `None`.
        device: Where the batch goes; a string is accepted.
        convert_input: The precision's ``convert_input(batch)``, or `None` if it changes nothing.

    Raises:
        ArgumentTypeError: If a hook is not callable, or `device` is no device.
    """

    __slots__ = ("_after", "_before", "_convert", "_plain", "_transfer", "device")

    def __init__(
        self,
        before: Hook | None = None,
        transfer: Hook | None = None,
        after: Hook | None = None,
        *,
        device: torch.device | str,
        convert_input: Callable[[Any], Any] | None = None,
    ) -> None:
        hooks = {"before": before, "transfer": transfer, "after": after, "convert_input": convert_input}
        for name, hook in hooks.items():
            if hook is not None and not callable(hook):
                raise ArgumentTypeError(
                    f"BatchTransfer: {name}={hook!r} is a {type(hook).__name__}; give a bound method or None."
                )
        if not isinstance(device, (torch.device, str)):
            raise ArgumentTypeError(
                f"BatchTransfer: device={device!r} is a {type(device).__name__}; give a torch.device or its name."
            )
        self.device = torch.device(device)
        self._before = before
        self._transfer = transfer
        self._after = after
        self._convert = convert_input
        self._plain = not any(hook is not None for hook in hooks.values())

    def __call__(self, batch: Any, dataloader_idx: int = 0) -> Any:
        """Return the batch on the device."""
        if self._plain:
            return move_data_to_device(batch, self.device)
        return self._with_hooks(batch, dataloader_idx)

    def _with_hooks(self, batch: Any, dataloader_idx: int) -> Any:
        if self._convert is not None:
            batch = self._convert(batch)
        if self._before is not None:
            batch = _returned(self._before(batch, dataloader_idx), batch, self._before)
        if self._transfer is not None:
            batch = _returned(self._transfer(batch, self.device, dataloader_idx), batch, self._transfer)
        else:
            batch = move_data_to_device(batch, self.device)
        if self._after is not None:
            batch = _returned(self._after(batch, dataloader_idx), batch, self._after)
        return batch


def _returned(result: Any, batch: Any, hook: Hook) -> Any:
    if result is None and batch is not None:
        name = getattr(hook, "__qualname__", repr(hook))
        raise DataError(f"{name} returned None, so there is no batch to go on with. Add `return batch` to it.")
    return result

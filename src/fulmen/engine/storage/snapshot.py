"""A copy of a checkpoint's tensors in host memory, so that training may change its own; buffers are used again.

A fresh clone of 1 GB takes seven times as long as a copy into memory that was touched before (page faults), so the
buffers of a finished write serve the next one of the same sizes.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Sizes: TypeAlias = tuple[int, ...]
Buffers: TypeAlias = list[Tensor]

_METADATA = "_metadata"
"""What torch keeps on a module's state_dict: versions of its submodules."""


class Snapshot:
    """A tree whose tensors live in buffers of the pool.

    Attributes:
        tree: The copied values.
    """

    def __init__(self, tree: Any, pool: BufferPool, sizes: Sizes, buffers: Buffers) -> None:
        self.tree = tree
        self._pool = pool
        self._sizes = sizes
        self._buffers = buffers

    def release(self) -> None:
        """Give the buffers back; `tree` must not be used any more."""
        self.tree = None
        self._pool.give_back(self._sizes, self._buffers)


class BufferPool:
    """Host buffers by the sizes that a checkpoint needs.

    Args:
        keep: Sets of buffers to keep for the next snapshots.
    """

    def __init__(self, keep: int = 2) -> None:
        self.keep = keep
        self._lock = threading.Lock()
        self._free: list[tuple[Sizes, Buffers]] = []

    def take(self, tree: Any) -> Snapshot:
        """Copy a tree of dicts, lists, tuples, tensors and other values.

        Tensors that share memory share it in the copy too. Other values are deep-copied where that is possible.
        """
        storages = _Storages()
        storages.collect(tree)
        sizes = tuple(storage.nbytes() for storage in storages.found.values())
        buffers = self._buffers(sizes, pinned=storages.on_device)
        copies: dict[Any, torch.UntypedStorage] = {}
        for (key, storage), buffer in zip(storages.found.items(), buffers, strict=True):
            target = buffer.untyped_storage()
            target.copy_(storage, non_blocking=storages.on_device)
            copies[key] = target
        if storages.on_device:
            torch.accelerator.synchronize()  # one wait for all copies from the device
        return Snapshot(_Copier(copies).value(tree), self, sizes, buffers)

    def _buffers(self, sizes: Sizes, *, pinned: bool) -> Buffers:
        with self._lock:
            for index, (have, buffers) in enumerate(self._free):
                if have == sizes:
                    del self._free[index]
                    return buffers
        return [torch.empty(size, dtype=torch.uint8, pin_memory=pinned) for size in sizes]

    def give_back(self, sizes: Sizes, buffers: Buffers) -> None:
        """Keep buffers for the next snapshot; those of other sizes are freed. May be called in another thread."""
        with self._lock:
            same = [item for item in self._free if item[0] == sizes]
            self._free = [*same[: self.keep - 1], (sizes, buffers)]

    def clear(self) -> None:
        """Free all buffers."""
        with self._lock:
            self._free.clear()


def _plain(tensor: Tensor) -> bool:
    """Whether a tensor is one block of memory that can be copied as bytes."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _key(tensor: Tensor) -> tuple[str, int, int]:
    storage = tensor.untyped_storage()
    return str(storage.device), storage.data_ptr(), storage.nbytes()


class _Storages:
    def __init__(self) -> None:
        self.found: dict[Any, torch.UntypedStorage] = {}
        self.on_device = False

    def collect(self, value: Any) -> None:
        if isinstance(value, Tensor):
            if _plain(value):
                self.found.setdefault(_key(value), value.untyped_storage())
                self.on_device = self.on_device or value.device.type != "cpu"
        elif isinstance(value, dict):
            for item in value.values():
                self.collect(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.collect(item)


class _Copier:
    def __init__(self, copies: dict[Any, torch.UntypedStorage]) -> None:
        self.copies = copies

    def value(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.tensor(value)
        kind = type(value)
        if kind is dict or kind is OrderedDict:
            copied = kind((key, self.value(item)) for key, item in value.items())
            if _METADATA in getattr(value, "__dict__", {}):
                setattr(copied, _METADATA, value.__dict__[_METADATA])
            return copied
        if kind is list or kind is tuple:
            return kind(self.value(item) for item in value)
        if value is None or kind in (int, float, str, bool, bytes, complex):
            return value
        try:
            return copy.deepcopy(value)
        except Exception:  # whatever a user's object does: it is written as it is then
            return value

    def tensor(self, tensor: Tensor) -> Tensor:
        if not _plain(tensor):
            return tensor.detach().clone().cpu() if tensor.device.type != "meta" else tensor
        made = torch.empty(0, dtype=tensor.dtype)
        made.set_(self.copies[_key(tensor)], tensor.storage_offset(), tensor.shape, tensor.stride())
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad) if tensor.requires_grad else made

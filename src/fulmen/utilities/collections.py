"""Walk nested batches: apply a function to leaves, move tensors to a device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import torch
from torch import Tensor

# Copies to these devices are done by the CPU itself; asking for non-blocking ones gives wrong data on MPS
# (https://github.com/pytorch/pytorch/issues/83015) and nothing on the CPU.
_BLOCKING_DEVICES = ("cpu", "mps")
_PLAIN_LEAVES = frozenset((str, int, float, bool, bytes, complex, range, type(None), torch.Size))


def apply_to_collection(
    data: Any,
    dtype: type | tuple[type, ...],
    function: Callable[..., Any],
    *args: Any,
    wrong_dtype: type | tuple[type, ...] | None = None,
    include_none: bool = True,
    **kwargs: Any,
) -> Any:
    """Return `data` with `function` applied to each leaf that is an instance of `dtype`.

    Mappings, sequences, named tuples and dataclass objects (frozen ones too) are walked and copied; their type,
    attributes and default factories are kept. Everything else is returned as it is.

    Args:
        data: Any nesting of collections.
        dtype: Type or types of the leaves.
        function: Called as ``function(leaf, *args, **kwargs)``.
        *args: Passed on to `function`.
        wrong_dtype: Leaves of this type are left alone even if they are instances of `dtype`.
        include_none: Whether entries that became `None` are kept in collections.
        **kwargs: Passed on to `function`.
    """

    def leaf(value: Any) -> tuple[bool, Any]:
        if isinstance(value, dtype) and not (wrong_dtype is not None and isinstance(value, wrong_dtype)):
            return True, function(value, *args, **kwargs)
        return False, None

    return _walk(data, leaf, include_none)


def _walk(data: Any, leaf: Callable[[Any], tuple[bool, Any]], include_none: bool = True) -> Any:
    done, value = leaf(data)
    if done:
        return value
    if type(data) in _PLAIN_LEAVES or isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        items = {key: _walk(item, leaf, include_none) for key, item in data.items()}
        return _like_mapping(
            data,
            items if include_none else {k: v for k, v in items.items() if v is not None},
        )
    if isinstance(data, Sequence):
        values = [_walk(item, leaf, include_none) for item in data]
        if isinstance(data, tuple) and hasattr(data, "_fields"):
            return type(data)(*values)
        return _like_sequence(data, values if include_none else [v for v in values if v is not None])
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        result = copy.copy(data)
        for field in dataclasses.fields(data):
            if hasattr(data, field.name):
                new = _walk(getattr(data, field.name), leaf, include_none)
                if include_none or new is not None:
                    object.__setattr__(result, field.name, new)  # works for frozen ones, too
        return result
    return data


def _like_mapping(original: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(original) is dict:
        return items
    if isinstance(original, MutableMapping):
        # A copy keeps default factories and attributes whatever the constructor of the class looks like.
        result = copy.copy(original)
        for key in list(result):
            if key not in items:
                del result[key]
        for key, item in items.items():
            result[key] = item
        return result
    return type(original)(items)  # type: ignore[call-arg]  # a read-only mapping of the user's own


def _like_sequence(original: Sequence[Any], values: list[Any]) -> Any:
    if type(original) is list:
        return values
    if isinstance(original, MutableSequence):
        result = copy.copy(original)
        result.clear()
        result.extend(values)
        return result
    return type(original)(values)  # type: ignore[call-arg]  # a read-only sequence of the user's own


def move_data_to_device(batch: Any, device: torch.device | str | int) -> Any:
    """Return `batch` with every tensor on `device`.

    Tensors, objects with a method ``to(device)``, mappings, sequences, named tuples and dataclass objects are moved;
    all other values are left as they are. A plain list, tuple or dict of tensors that are there already is returned
    itself. Copies to accelerators do not wait for the device (``non_blocking=True``).

    Args:
        batch: Any nesting of collections, as a data loader gives it.
        device: Where to move the tensors.
    """
    if type(device) is not torch.device:
        device = torch.device(device)
    kind = type(batch)
    if kind is list or kind is tuple:
        values: Any = batch
    elif kind is dict:
        values = batch.values()
    elif isinstance(batch, Tensor):
        return batch if batch.device == device else _to(batch, device)
    else:
        return _move(batch, device)
    for value in values:
        if type(value) is Tensor:
            if value.device != device:
                break
        elif type(value) not in _PLAIN_LEAVES:
            break
    else:
        return batch
    return _move(batch, device)


def _move(batch: Any, device: torch.device) -> Any:
    def leaf(value: Any) -> tuple[bool, Any]:
        if isinstance(value, Tensor):
            return True, _to(value, device)
        # Asked of the type: a class or module object in a batch is not data.
        if callable(getattr(type(value), "to", None)):
            moved = value.to(device)
            return (
                True,
                value if moved is None else moved,
            )  # a `to` that works in place may forget `return self`
        return False, None

    return _walk(batch, leaf)


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device) if device.type in _BLOCKING_DEVICES else tensor.to(device, non_blocking=True)

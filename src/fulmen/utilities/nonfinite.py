"""Find NaN and Inf in nested values: which tensor, and how many entries of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def named_tensors(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Give each tensor in `value` with its place, written as one would index it: ``[1]``, ``['x'][0]``, ``.label``."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_tensors(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from named_tensors(item, f"{path}[{index}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from named_tensors(getattr(value, field.name, None), f"{path}.{field.name}")


def has_nan(value: Any) -> bool:
    """Whether a tensor in `value` holds a NaN; waits for the device."""
    return any(_is_float(t) and bool(torch.isnan(t.detach()).any()) for _, t in named_tensors(value))


def has_inf(value: Any) -> bool:
    """Whether a tensor in `value` holds an Inf; waits for the device."""
    return any(_is_float(t) and bool(torch.isinf(t.detach()).any()) for _, t in named_tensors(value))


def describe_nonfinite(value: Any, name: str = "batch", most: int = 4) -> str | None:
    """Say which tensors of `value` hold NaN or Inf; waits for the device.

    Args:
        value: A tensor, or any nesting of mappings, sequences and dataclass objects.
        name: What `value` is called in the text.
        most: Most tensors to name.

    Returns:
        Such as ``batch[1] (3 NaN in 8 entries)``; `None` if everything is finite.
    """
    found = []
    for path, tensor in named_tensors(value):
        if not _is_float(tensor):
            continue
        tensor = tensor.detach()
        counts = {"NaN": int(torch.isnan(tensor).sum()), "Inf": int(torch.isinf(tensor).sum())}
        text = " and ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        if text:
            found.append(f"{name}{path} ({text} in {tensor.numel()} entries)")
    if not found:
        return None
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def _is_float(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_meta

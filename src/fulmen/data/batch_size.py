"""The size of a batch, read off its tensors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from fulmen.errors import DataError

_NO_DATA = (str, bytes, bool, int, float, complex, type(None))
_LONG = 64


def batch_size_of(batch: Any) -> int | None:
    """Return the common first dimension of the tensors in `batch`.

    Mappings, lists, tuples (named ones too) and dataclass objects are walked; text, numbers and other objects (graphs,
    for example) say nothing. Tensors without dimensions count only if there are no others: then the size is 1.

    Returns:
        The size; `None` if the tensors disagree or there are none.
    """
    if isinstance(batch, Tensor):
        return batch.size(0) if batch.dim() else 1
    size: int | None = None
    kind = type(batch)
    if kind is tuple or kind is list or kind is dict:
        # The usual batch: a few plain tensors of one size. Anything else is looked at in full below.
        for value in batch.values() if kind is dict else batch:
            if type(value) is not Tensor or not value.dim():
                break
            length = value.size(0)
            if size is None:
                size = length
            elif size != length:
                return None
        else:
            if size is not None:
                return size
        size = None
    scalars = False
    for leaf in _leaves(batch):
        if leaf.ndim == 0:
            scalars = True
            continue
        length = leaf.shape[0] if not _is_nested(leaf) else leaf.size(0)
        if size is None:
            size = length
        elif size != length:
            return None
    return 1 if size is None and scalars else size


def no_rows(batch_idx: int, stage: str | None) -> DataError:
    """Return the error about a batch whose size is 0."""
    return DataError(
        f"batch {batch_idx} of the {stage} loader has no rows: its tensors have a first dimension of 0, so that means "
        "over it are NaN. Leave it out in the loader or its collate function, or return from the step before anything "
        "is computed or logged."
    )


def _is_nested(leaf: Any) -> bool:
    return bool(getattr(leaf, "is_nested", False))


def _leaves(batch: Any) -> Iterator[Any]:
    """Give every tensor and NumPy array in `batch`."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, _NO_DATA):
        return
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _leaves(value)
    elif isinstance(batch, (list, tuple)):
        # A long list that begins with a number or a text is one of those throughout: do not walk a million of them.
        if len(batch) > _LONG and isinstance(batch[0], _NO_DATA):
            return
        for value in batch:
            if isinstance(value, Tensor):
                yield value
            else:
                yield from _leaves(value)
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for field in dataclasses.fields(batch):
            yield from _leaves(getattr(batch, field.name, None))
    elif _is_array(batch):
        yield batch


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def explain(batch: Any) -> str:
    """Say, for a message, why `batch_size_of` gave `None`: which sizes the tensors have, or that there are none."""
    counts: dict[int, int] = {}
    for leaf in _leaves(batch):
        if leaf.ndim:
            length = leaf.size(0) if isinstance(leaf, Tensor) else leaf.shape[0]
            counts[length] = counts.get(length, 0) + 1
    if not counts:
        return f"no tensors were found in the batch ({type(batch).__name__})"
    parts = [f"{size} ({count} tensor{'s' if count > 1 else ''})" for size, count in list(counts.items())[:8]]
    more = f" and {len(counts) - 8} other sizes" if len(counts) > 8 else ""
    return f"first dimensions in the batch: {', '.join(parts)}{more}"

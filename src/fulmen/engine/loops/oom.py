"""`Trainer(on_oom="split")`: batches cut along their first dimension, and what a step returned for the parts joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fulmen.data.batch_size import batch_size_of, explain
from fulmen.errors import DataError, MisconfigurationException, warn
from fulmen.utilities.collections import apply_to_collection

_SAVED_PART = "Trainer(on_oom='split')"


def refuse_batch_norm(module: nn.Module) -> None:
    """Modules whose result for a sample depends on the others of its batch cannot be run in parts.

    Raises:
        MisconfigurationException: If there is one.
    """
    names = [
        f"{name} ({type(sub).__name__})" for name, sub in module.named_modules() if "BatchNorm" in _bases(type(sub))
    ]
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        raise MisconfigurationException(
            f"{_SAVED_PART} does not go with batch norm, whose statistics are those of the whole batch; "
            f"{type(module).__name__} has {', '.join(names[:4])}{more}. Leave on_oom out, or use "
            "GroupNorm or LayerNorm."
        )


def _bases(kind: type) -> str:
    return " ".join(base.__name__ for base in kind.__mro__)


class Splitter:
    """Cuts batches that were too large, and remembers how small the parts must be.

    Args:
        owner: Name of the user's class.

    Attributes:
        fits: Batch size to the size of its parts.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.fits: dict[int, int] = {}

    def size(self, batch: Any) -> int:
        """Number of samples of a batch.

        Raises:
            DataError: If its tensors do not share their first dimension.
        """
        size = batch_size_of(batch)
        if size is None:
            raise DataError(
                f"{_SAVED_PART}: the batch did not fit and cannot be cut, since its tensors do not share their first "
                f"dimension: {explain(batch)}. Give smaller batches, or leave on_oom out."
            )
        return size

    def smaller(self, size: int, part: int) -> int | None:
        """The next size of parts after one that did not fit, `None` if there is none."""
        if part <= 1:
            return None
        self.fits[size] = (part + 1) // 2
        return self.fits[size]

    def tell(self, size: int, part: int) -> None:
        """Say once per batch size that it runs in parts."""
        warn(
            "W614",
            f"{self.owner}: a batch of {size} samples did not fit into memory; it is run in parts of at most {part}, "
            "with the same gradients, and so are all further batches of that size.",
            key=f"{self.owner}{size}",
        )

    def state_dict(self) -> dict[int, int]:
        """Sizes that were found."""
        return dict(self.fits)

    def load_state_dict(self, state_dict: Mapping[int, int]) -> None:
        """Take them back."""
        self.fits = {int(size): int(part) for size, part in state_dict.items()}


def parts_of(batch: Any, size: int, part: int) -> Iterator[tuple[Any, int]]:
    """Cut a batch.

    Args:
        batch: The batch.
        size: Its number of samples.
        part: Most samples of a part.

    Yields:
        Parts of nearly the same size, and their numbers of samples.
    """
    count = -(-size // part)
    start = 0
    for index in range(count):
        stop = size * (index + 1) // count
        yield _cut(batch, start, stop, size), stop - start
        start = stop


def _cut(batch: Any, start: int, stop: int, size: int) -> Any:
    def tensor(value: Tensor) -> Tensor:
        return value[start:stop] if value.dim() else value

    if isinstance(batch, Tensor):
        return tensor(batch)
    if type(batch) is dict:
        return {key: _cut(value, start, stop, size) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        if len(batch) == size and not any(isinstance(value, Tensor) for value in batch):
            return batch[start:stop]  # texts and the like, one a sample
        return type(batch)(_cut(value, start, stop, size) for value in batch)
    return apply_to_collection(batch, Tensor, tensor)


def join_outputs(outputs: list[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
    """One output of a step from those of the parts: rows are put together, single numbers averaged by samples."""
    last, total = outputs[-1][0], sum(size for _, size in outputs)
    joined: dict[str, Any] = {}
    for key, value in last.items():
        values: list[Any] = [output.get(key) for output, _ in outputs]
        sized = zip(values, outputs, strict=True)
        rows = all(isinstance(v, Tensor) and v.dim() > 0 and len(v) == n for v, (_, n) in sized)
        if rows:
            joined[key] = torch.cat(values)
        elif all(isinstance(v, Tensor) and v.numel() == 1 and v.is_floating_point() for v in values):
            joined[key] = sum(v * n for v, (_, n) in zip(values, outputs, strict=True)) / total
        else:
            joined[key] = value
    return joined

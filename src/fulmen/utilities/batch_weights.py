"""How much a batch counts: the number of labels that its mean loss is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fulmen.errors import ArgumentTypeError, DataError

_NAMES = ("labels", "label", "targets", "target")


@dataclass(frozen=True)
class TokenCount:
    """Counts the labels of a batch that its loss is over: `Trainer(accumulate_normalize=TokenCount(...))`.

    Args:
        ignore_index: Labels of this value are left out, as the losses of torch do.
        key: Where the labels are: a key, index or attribute of the batch. If not given it is `labels`, `label`,
            `targets` or `target`, else the second element of a tuple or list.
        shift: Labels at the beginning of each row that are left out, counted along the second dimension: 1 for models
            that predict the next token and shift the labels themselves.

    Raises:
        ArgumentTypeError: If `ignore_index` or `shift` are no whole numbers.
    """

    ignore_index: int = -100
    key: Any = None
    shift: int = 0

    def __post_init__(self) -> None:
        for name in ("ignore_index", "shift"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentTypeError(f"TokenCount({name}={value!r}): must be an int.")

    def __call__(self, batch: Any) -> Tensor:
        """Return the number of labels, a 0-dim tensor on their device.

        Raises:
            DataError: If there are no labels where they are looked for.
        """
        labels = self._labels(batch)
        if self.shift:
            labels = labels[:, self.shift :]
        return (labels != self.ignore_index).sum()

    def _labels(self, batch: Any) -> Tensor:
        keys = [*_NAMES] if self.key is None else [self.key]
        found = None
        if isinstance(batch, Mapping):
            found = next((batch[key] for key in keys if key in batch), None)
        elif isinstance(batch, Sequence) and not isinstance(batch, str):
            index = 1 if self.key is None else self.key
            if isinstance(index, int) and -len(batch) <= index < len(batch):
                found = batch[index]
        if found is None:
            found = next((value for key in keys if (value := getattr(batch, str(key), None)) is not None), None)
        if isinstance(found, Tensor):
            return found
        what = "is no tensor" if found is not None else "is not there"
        looked = f"key {self.key!r}" if self.key is not None else f"one of the keys {', '.join(_NAMES)}"
        raise DataError(
            f"Trainer(accumulate_normalize=...) counts labels, but {looked} {what} in the batch ({_shape(batch)}). "
            "Give the place, `TokenCount(key=...)`, or a function of the batch that returns the number."
        )


def _shape(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"{type(batch).__name__} with the keys {sorted(map(str, batch))}"
    if isinstance(batch, Sequence):
        return f"{type(batch).__name__} of {len(batch)}"
    return type(batch).__name__

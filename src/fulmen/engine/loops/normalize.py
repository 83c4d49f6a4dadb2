"""`Trainer(accumulate_normalize=...)`: gradients of a window as those of one big batch's mean loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fulmen.data.batch_size import batch_size_of, explain
from fulmen.errors import ArgumentTypeError, ArgumentValueError, DataError
from fulmen.utilities.batch_weights import TokenCount

Count = Callable[[Any], Any]


def resolve_count(value: Any) -> Count | None:
    """What counts a batch, from the Trainer's argument."""
    if value == "tokens":
        return TokenCount()
    return count_samples if value == "samples" else value


def count_samples(batch: Any) -> int:
    """The batch size.

    Raises:
        DataError: If it cannot be told.
    """
    size = batch_size_of(batch)
    if size is None:
        raise DataError(
            f"Trainer(accumulate_normalize='samples'): the batch size cannot be told: {explain(batch)}. Give a "
            "function of the batch that returns the number."
        )
    return size


class Normalizer:
    """Weighs each loss by the count of its batch, and tells the factor that makes the window's sum its mean.

    The total of a window is known at its end only. So each loss is multiplied by its count over that of the window's
    first batch (near 1, which keeps 16-bit gradients in range), and gradients are multiplied once at the end.

    Args:
        count: Given a batch, its count.
        reduce: Adds the total of a window over ranks.
    """

    def __init__(self, count: Count, reduce: Callable[..., Any]) -> None:
        self.count = count
        self.reduce = reduce
        self.unit = 0.0  # the first batch's count
        self.total = 0.0  # of the batches that are over
        self.current = 0.0  # of the batch at hand
        self._coming: Any = None

    def look(self, batch: Any) -> None:
        """Count a batch; on an accelerator the number comes while the training step is queued."""
        value = self.count(batch)
        if not isinstance(value, Tensor) or not value.is_cuda:
            self._coming = value
            return
        host = torch.empty((), dtype=value.dtype, pin_memory=True)
        host.copy_(value.detach().reshape(()), non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        self._coming = (host, done)

    def take(self) -> float:
        """The number that `look` asked for.

        Raises:
            ArgumentTypeError: If it is no number.
            ArgumentValueError: If it is negative or not finite.
        """
        value = self._coming
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], torch.cuda.Event):
            value[1].synchronize()
            value = value[0]
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        where = f"Trainer(accumulate_normalize={self.count!r})"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ArgumentTypeError(f"{where} returned {value!r}; it must return a number for a batch.")
        if not 0 <= value < math.inf:
            raise ArgumentValueError(f"{where} returned {value!r}; it must return a finite number of at least 0.")
        return float(value)

    def weigh(self, loss: Tensor) -> Tensor | None:
        """The loss times its weight; `None` for a batch that counts nothing, whose mean is over no label."""
        count = self.take()
        if not count:
            return None
        self.current += count
        self.unit = self.unit or count
        return loss if count == self.unit else loss * (count / self.unit)

    def begin(self, *, first: bool) -> None:
        """A batch begins: the first of a window, or a further one."""
        self.unit, self.total = (0.0, 0.0) if first else (self.unit, self.total + self.current)
        self.current = 0.0

    def again(self) -> None:
        """The batch at hand is run once more."""
        self.current = 0.0
        if not self.total:
            self.unit = 0.0

    def factor(self, divisor: int) -> float:
        """By what the window's gradients are multiplied, whose losses were divided by `divisor`."""
        total = float(self.reduce(self.total + self.current, reduce_op="sum"))
        return self.unit * divisor / total

    def shown(self, loss: Tensor) -> Tensor:
        """The loss as the step gave it, from the weighted one."""
        return loss * (self.unit / self.current) if self.current not in (0.0, self.unit) else loss

    def state_dict(self) -> dict[str, float]:
        """The open window's counts."""
        return {"unit": self.unit, "total": self.total + self.current}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Take them back."""
        self.unit, self.total, self.current = float(state_dict["unit"]), float(state_dict["total"]), 0.0

"""One logged key: its frozen flags, its last value and what is needed for the value of the epoch.

Tensors are copied at once into a preallocated block (an alias would change with a later ``loss *= w``), and folded
block by block into float64 sums, so that memory does not grow with steps. Reading never changes the state.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.results.flags import Flags
from fulmen.errors import LoggingError

BLOCK = 64
_EXACT = (torch.float32, torch.float64)  # types whose numbers a 0-dim tensor gives back as they are

Reduce = Callable[[Tensor], Tensor]


def wide(device: torch.device) -> torch.dtype:
    """The widest float type that `device` has."""
    return torch.float32 if device.type == "mps" else torch.float64


def float_dtype() -> torch.dtype:
    """The default float type, but at least float32."""
    dtype = torch.get_default_dtype()
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


class Entry:
    """Values of one key since the last reset; tensors and Python numbers may alternate.

    Args:
        flags: The key's checked flags.
        keep_integers: Whether Python integers stay integers.
    """

    __slots__ = (
        "_block",
        "_count",
        "_dtype",
        "_kept",
        "_number",
        "_sum",
        "_views",
        "_weight",
        "_weights",
        "by_number",
        "flags",
        "keep",
        "set",
        "weighted",
    )

    def __init__(self, flags: Flags, *, keep_integers: bool) -> None:
        self.flags = flags
        self.keep = keep_integers
        self.by_number = not callable(flags.reduce)  # a function gets a tensor of all values
        self.weighted = flags.on_epoch and flags.reduce == "mean"
        self._block: Tensor | None = None
        self._views: Sequence[Tensor] = ()
        self.reset()

    def reset(self) -> None:
        """Forget all values; the block is kept for reuse."""
        self.set = False
        self._count = 0
        self._number: float | int | None = None
        self._dtype: torch.dtype | None = None  # of the tensor that the number came from
        self._sum: Any = None
        self._weight: float = 0
        self._weights: list[float] = []
        self._kept: list[Tensor] = []

    def put(self, value: Any, weight: float) -> None:
        """Take a value.

        Args:
            value: 0-dim tensor, or Python number.
            weight: Batch size, used by the mean.
        """
        if not isinstance(value, Tensor):
            self.put_number(value, weight)
        elif self.by_number and value.is_cpu and value.is_floating_point():
            self.put_number(value.item(), weight, value.dtype)
        else:
            self.set = True
            self._put_tensor(value.detach() if value.requires_grad else value, weight)

    def _put_tensor(self, value: Tensor, weight: float) -> None:
        block = self._block
        if block is None or block.dtype is not value.dtype or block.device != value.device:
            if value.is_complex():
                raise LoggingError(
                    f"self.log({self.flags.name!r}, ...) in `{self.flags.hook}`: a tensor of {value.dtype} cannot be "
                    "logged; log its parts, for example `.abs()`."
                )
            self._fold()
            block = self._block = torch.empty(
                BLOCK if self.flags.on_epoch else 1, dtype=value.dtype, device=value.device
            )
            self._views = block.unbind()
        if not self.flags.on_epoch:
            self._views[0].copy_(value)
            self._count = 1
            self._number = None
            return
        if self._count == BLOCK:
            self._fold()
        self._views[self._count].copy_(value)
        self._count += 1
        self._weights.append(weight)
        self._number = None

    def put_number(self, value: float | int, weight: float, dtype: torch.dtype | None = None) -> None:
        """Take a number.

        Args:
            value: The number.
            weight: Batch size, used by the mean.
            dtype: Type of the tensor that it was read from, `None` for a Python number.
        """
        self.set = True
        self._dtype = dtype
        self._number = value
        if not self.flags.on_epoch:
            return
        reduce = self.flags.reduce
        total = self._sum
        if reduce == "mean":
            self._sum = value * weight if total is None else total + value * weight
            self._weight += weight
        elif reduce == "sum":
            self._sum = value if total is None else total + value
        elif reduce in ("min", "max"):
            self._sum = self._join(total, value)
        else:
            self._fold()  # a function gets the values in the order in which they were logged
            self._kept.append(torch.tensor([float(value)], dtype=torch.float64))

    def _join(self, first: Any, second: Any) -> Any:
        if first is None:
            return second
        if isinstance(first, Tensor) or isinstance(second, Tensor):
            device = first.device if isinstance(first, Tensor) else second.device
            # Both give NaN if one of the two is; asking whether one is would wait for the device.
            both = [torch.as_tensor(v, dtype=wide(device), device=device) for v in (first, second)]
            return torch.minimum(*both) if self.flags.reduce == "min" else torch.maximum(*both)
        if first != first or second != second:
            return float("nan")
        return min(first, second) if self.flags.reduce == "min" else max(first, second)

    def _partial(self) -> Any:
        """Sum (or minimum, maximum) of the filled part of the block joined with what was folded before."""
        count = self._count
        if not count or self._block is None or not self.flags.on_epoch:
            return self._sum
        values = self._block[:count].to(wide(self._block.device))
        reduce = self.flags.reduce
        if reduce == "mean":
            weights = torch.tensor(self._weights, dtype=values.dtype, device=values.device)
            part = torch.dot(values, weights)
        elif reduce == "sum":
            part = values.sum()
        elif reduce in ("min", "max"):
            return self._join(self._sum, values.min() if reduce == "min" else values.max())
        else:
            return None
        return part if self._sum is None else part + self._sum

    def _fold(self) -> None:
        if self._count and self.flags.on_epoch:
            if callable(self.flags.reduce):
                if self._block is not None:
                    # A copy also where the type stays: the block is filled anew.
                    self._kept.append(self._block[: self._count].to(wide(self._block.device), copy=True))
            else:
                self._sum = self._partial()
                self._weight += sum(self._weights)
        self._count = 0
        self._weights = []

    @property
    def step_value(self) -> Tensor:
        """The last value as a 0-dim tensor of its own."""
        if self._number is not None:
            if self._dtype is torch.float64 or self._dtype is torch.float32:
                return torch.tensor(self._number, dtype=self._dtype)
            return self._as_tensor(self._number)
        index = self._count - 1 if self.flags.on_epoch else 0
        value = self._views[index].clone()
        return value if value.dtype in (torch.float32, torch.float64) else value.to(float_dtype())

    @property
    def step_number(self) -> Any:
        """The last value for a logger: its number where that is at hand, else `step_value`."""
        return self._number if self._dtype in _EXACT and self._number is not None else self.step_value

    def sums(self) -> tuple[Any, float]:
        """What ranks add up for this key: the sum (or extreme) and the weight."""
        return self._partial(), self._weight + sum(self._weights)

    def epoch_value(self, sums: tuple[Any, float] | None = None) -> Tensor:
        """The epoch's value as a 0-dim tensor.

        Args:
            sums: Sum and weight over all ranks; this rank's own if not given.
        """
        reduce = self.flags.reduce
        if callable(reduce):
            return self.as_result(reduce(self.values()))
        total, weight = sums if sums is not None else self.sums()
        if reduce == "mean":
            return self._as_tensor(total / weight if weight else float("nan"), as_float=True)
        return self._as_tensor(total)

    def values(self) -> Tensor:
        """All values of the epoch in their order, for a function of the user's."""
        parts = list(self._kept)
        if self._count and self._block is not None:
            parts.append(self._block[: self._count].to(wide(self._block.device)))
        device = parts[-1].device if self._block is None else self._block.device
        return torch.cat([part.to(device) for part in parts])

    def as_result(self, value: Any) -> Tensor:
        """What a function of the user's returned, as a 0-dim tensor.

        Raises:
            LoggingError: If it is not one number.
        """
        if isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1):
            return torch.as_tensor(value).to(float_dtype()).reshape(())
        shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        raise LoggingError(
            f"self.log({self.flags.name!r}, ..., reduce_fx=...) in `{self.flags.hook}`: the function must make one "
            f"number of a 1-D tensor of all values, but returned {type(value).__name__}{shape}."
        )

    def _as_tensor(self, value: Any, *, as_float: bool = False) -> Tensor:
        if isinstance(value, Tensor):
            return value.to(float_dtype())
        if self.keep and not as_float and isinstance(value, int) and -(2**63) <= value < 2**63:
            return torch.tensor(int(value), dtype=torch.int64)
        return torch.tensor(float(value), dtype=float_dtype())

    def state_dict(self) -> dict[str, Any]:
        """Values since the last reset, without folding the partly filled block."""
        block = self._block[: self._count].clone() if self._block is not None and self._count else None
        return {
            "flags": self.flags.state_dict(),
            "reduced": self._reduced(),
            "block": block,
            "weights": list(self._weights),
            "number": self._number,
            "double": self._dtype is torch.float64,
            "sum": self._sum,
            "weight": self._weight,
            "kept": list(self._kept),
            "set": self.set,
        }

    def _reduced(self) -> Tensor | None:
        """What a function of the user's makes of the values so far; `None` if it cannot do with a part of an epoch."""
        if not (self.set and self.flags.on_epoch and callable(self.flags.reduce)):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.epoch_value()
            except Exception:  # whatever: saving must not fail, and the epoch's end will show it
                return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self.reset()
        block = state["block"]
        if block is not None:
            self._block = torch.empty(BLOCK if self.flags.on_epoch else 1, dtype=block.dtype, device=block.device)
            self._block[: len(block)].copy_(block)
            self._views = self._block.unbind()
            self._count = len(block)
        self._weights = list(state["weights"])
        self._number = state["number"]
        self._dtype = torch.float64 if state.get("double") else None
        self._sum = state["sum"]
        self._weight = state["weight"]
        self._kept = list(state["kept"])
        self.set = state["set"]

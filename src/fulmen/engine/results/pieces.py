"""Values that a step logs are held back until it is known that the step counts, and joined if it ran in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.hooks.spec import HookSpec
from fulmen.engine.results.flags import FLAG_NAMES
from fulmen.engine.results.store import Results

_REDUCE = FLAG_NAMES.index("reduce_fx")
_JOINS: dict[Any, Callable[..., Any]] = {"sum": sum, sum: sum, torch.sum: sum}
_JOINS |= {"min": torch.minimum, min: torch.minimum, torch.min: torch.minimum}
_JOINS |= {"max": torch.maximum, max: torch.maximum, torch.max: torch.maximum}


class HeldResults:
    """Stands in for a store while a step runs; all but `log` is the store's own.

    Args:
        results: The store that gets the values.
        size: The number of samples that the step works on at the moment.
    """

    def __init__(self, results: Results, size: Callable[[], float]) -> None:
        self.results = results
        self.samples = size
        self.values: dict[tuple[HookSpec | None, str], list[tuple[Any, tuple[Any, ...], int | None, float]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["results"], name)

    def log(self, name: str, value: Any, given: tuple[Any, ...], batch_size: int | None) -> None:
        """Hold a value back; a tensor is copied at once."""
        if isinstance(value, Tensor):
            value = value.detach().clone()
        held = self.values.setdefault((self.results.cursor.hook, name), [])
        held.append((value, given, batch_size, self.samples() if batch_size is None else batch_size))

    def drop(self) -> None:
        """Forget what is held."""
        self.values.clear()

    def release(self, *, joined: bool) -> None:
        """Give the values to the store.

        Args:
            joined: Make one of the values of each key: the mean by number of samples, or what its reduction says.
        """
        cursor = self.results.cursor
        outer = cursor.hook
        for (hook, name), held in self.values.items():
            cursor.hook = hook
            if not joined or len(held) == 1:
                for value, given, batch_size, _ in held:
                    self.results.log(name, value, given, batch_size)
                continue
            value, given, batch_size, _ = held[-1]
            total = None if batch_size is None else int(sum(weight for *_, weight in held))
            self.results.log(name, _join(held, given, value), given, total)
        cursor.hook = outer
        self.values.clear()


def _join(held: list[Any], given: tuple[Any, ...], last: Any) -> Any:
    values = [value for value, *_ in held]
    if not all(
        isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1) for value in values
    ):
        return last  # a metric object, which joins by itself; anything else is refused by the store
    try:
        join = _JOINS.get(given[_REDUCE])
    except TypeError:
        join = None
    if join is sum:
        return sum(values[1:], values[0])
    if join is not None:
        value = torch.as_tensor(values[0])
        for other in values[1:]:
            value = join(value, torch.as_tensor(other, device=value.device))
        return value if isinstance(last, Tensor) else value.item()
    weights = [weight for *_, weight in held]
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / (sum(weights) or 1)

"""One value over several loaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.results.entry import Entry, wide
from fulmen.engine.results.metrics import MetricEntry


def over_loaders(entries: Sequence[Entry | MetricEntry]) -> Tensor:
    """The value of one key over the loaders that logged it.

    Args:
        entries: One per loader; metric entries share one object.

    Returns:
        For the mean, that of all batches weighted by their sizes; else what the reduction makes of all values.
    """
    last = entries[-1]
    if isinstance(last, MetricEntry):
        return last.epoch_value()
    plain = [entry for entry in entries if isinstance(entry, Entry)]
    reduce = last.flags.reduce
    if callable(reduce):
        parts = [entry.values() for entry in plain]
        return last.as_result(reduce(torch.cat([part.to(parts[-1].device) for part in parts])))
    total: Any = None
    weight = 0.0
    for entry in plain:
        part, count = entry.sums()
        weight += count
        if total is None:
            total = part
        elif reduce in ("min", "max"):
            total = _extreme(total, part, reduce)
        else:
            total = total + part
    return last.epoch_value((total, weight))


def _extreme(first: Any, second: Any, reduce: str) -> Any:
    device = next((v.device for v in (first, second) if isinstance(v, Tensor)), torch.device("cpu"))
    both = [torch.as_tensor(v, dtype=wide(device), device=device) for v in (first, second)]
    return torch.minimum(*both) if reduce == "min" else torch.maximum(*both)

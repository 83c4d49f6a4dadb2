"""Loaders that give the same batches each epoch, for `Trainer(overfit_batches=...)`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from fulmen.data.taps import make_twin
from fulmen.errors import warn
from fulmen.utilities.combined_loader import map_loaders

__all__ = ["in_order"]


class RepeatedBatches:
    """Gives the lists of indices again that a batch sampler gave at first.

    Args:
        batches: The batch sampler; asked as far as it is read, once.
    """

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self._kept: list[list[int]] = []
        self._rest: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[list[int]]:
        yield from list(self._kept)
        if self._rest is None:
            self._rest = iter(self.batches)
        for indices in self._rest:
            self._kept.append(list(indices))
            yield list(indices)

    def __len__(self) -> int:
        return len(self.batches)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rest": None, "_kept": []}


def in_order(value: Any, stage: str, *, own_batches: bool = True) -> Any:
    """Return loaders like `value` that do not shuffle; gives warning W118 if some did.

    Data loaders with another sampler than torch's `SequentialSampler` are replaced by shallow copies that read their
    data set in its order, in batches of the same size. A batch sampler of the user's own is copied with a sequential
    `sampler`, or repeats its first batches if it has no such attribute. Other iterables and iterable data sets have
    their own order and stay.

    Args:
        value: A loader or a collection of loaders; not changed.
        stage: Whose they are, for the warning.
        own_batches: Whether batch samplers that were given as such are replaced, too.
    """
    return map_loaders(value, partial(_in_order, stage=stage, own_batches=own_batches))


def _in_order(loader: Any, stage: str, *, own_batches: bool) -> Any:
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    if not own_batches and isinstance(loader.sampler, SequentialSampler):
        return loader
    batches = loader.batch_sampler
    sampler = loader.sampler if batches is None else getattr(batches, "sampler", None)
    if isinstance(sampler, SequentialSampler):
        return loader
    warn(
        "W118",
        f"Trainer(overfit_batches=...): the {stage} loader draws its samples in another order each epoch; they are "
        "read in the data set's order instead, so that the batches stay the same.",
        key=stage,
    )
    order: SequentialSampler = SequentialSampler(loader.dataset)  # type: ignore[arg-type]  # map-style: it has a length
    if batches is None:
        return make_twin(loader, sampler=order)
    if type(batches) is BatchSampler:
        return make_twin(
            loader, sampler=order, batch_sampler=BatchSampler(order, batches.batch_size, batches.drop_last)
        )
    if sampler is None:
        return make_twin(loader, batch_sampler=RepeatedBatches(batches))
    own: Any = copy.copy(batches)
    own.sampler = order
    return make_twin(loader, batch_sampler=own)

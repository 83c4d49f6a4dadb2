"""The iterator of steps that fetch their batches themselves, `training_step(self, dataloader_iter)`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

Item = tuple[Any, int, int]


class BatchFeed(Iterator[Item]):
    """Gives `(batch, batch_idx, dataloader_idx)`: first the batch that the loop fetched, then further ones.

    Args:
        fetch: Fetches a further batch of the loader and counts it; raises `StopIteration` after the last.
    """

    def __init__(self, fetch: Callable[[], Item]) -> None:
        self._fetch = fetch
        self._ready: deque[Item] = deque()

    def offer(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> BatchFeed:
        """Lay a batch ready and return the iterator."""
        self._ready.append((batch, batch_idx, dataloader_idx))
        return self

    def __next__(self) -> Item:
        return self._ready.popleft() if self._ready else self._fetch()

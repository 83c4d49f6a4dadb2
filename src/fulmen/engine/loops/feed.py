"""The iterator of steps that fetch their batches themselves, `training_step(self, dataloader_iter)`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

Item = tuple[Any, int, int]


class BatchFeed(Iterator[Item]):
    """Gives `(batch, batch_idx, dataloader_idx)`: first the batch that the loop fetched, then further ones.

    Args:
        fetch: Fetches a further batch of the loader and counts it; raises `StopIteration` after the last.
        run: The pass over the loader, which knows its last batch.
        batches: How many batches it has, `math.inf` if unknown.

    Attributes:
        fetched: Batches of this epoch that were given so far.
        length: How many there are, `None` if unknown.
        ended: More were asked for than there are.
    """

    def __init__(self, fetch: Callable[[], Item], run: Any = None, batches: int | float = math.inf) -> None:
        self._fetch = fetch
        self._run = run
        self._ready: deque[Item] = deque()
        self.fetched = 0
        self.length = None if batches == math.inf else int(batches)
        self.ended = False

    @property
    def done(self) -> bool:
        """Whether the batch last given was the last one."""
        return self.ended or (not self._ready and bool(getattr(self._run, "is_last", False)))

    def offer(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> BatchFeed:
        """Lay a batch ready and return the iterator."""
        self._ready.append((batch, batch_idx, dataloader_idx))
        return self

    def __next__(self) -> Item:
        if self._ready:
            item = self._ready.popleft()
        else:
            try:
                item = self._fetch()
            except StopIteration:
                self.ended = True
                raise
        self.fetched = item[1] + 1
        return item

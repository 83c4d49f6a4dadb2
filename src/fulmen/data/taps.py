"""What stands between a `DataLoader` and its parts when indices are counted or skipped, or workers are tracked.

A *twin* is a shallow copy of the user's loader: same class, same objects in its ``__dict__``, some of them replaced by
the taps below. The constructor of the user's class is never called, the user's own loader is never changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from time import monotonic
from typing import Any

import torch.utils.data
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from fulmen.data.rng import RngState, apply_snapshot, pack_main_state, set_main_state, unpack_state
from fulmen.data.skipping import indices_after
from fulmen.data.trouble import explain_samples


def reads_by_index(loader: Any) -> bool:
    """Tell whether `loader` is a map-style `DataLoader` whose iteration is torch's own (not overridden)."""
    cls = type(loader)
    return (
        isinstance(loader, DataLoader)
        and not isinstance(loader.dataset, IterableDataset)
        and cls.__iter__ is DataLoader.__iter__
        and getattr(cls, "_get_iterator", None) is getattr(DataLoader, "_get_iterator", None)
    )


def make_twin(loader: DataLoader[Any], **changes: Any) -> DataLoader[Any]:
    """Return a shallow copy of `loader` with `changes` put in its ``__dict__`` and no iterator of its own yet."""
    twin: DataLoader[Any] = object.__new__(type(loader))
    twin.__dict__.update(loader.__dict__, _iterator=None, **changes)
    return twin


def index_source(loader: DataLoader[Any]) -> tuple[str, Any]:
    """Return the attribute's name and the object that decides which samples make a batch."""
    if loader.batch_sampler is not None:
        return "batch_sampler", loader.batch_sampler
    return "sampler", loader.sampler


class _Begun:
    """A sampler whose iteration is under way already."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def __iter__(self) -> Iterator[Any]:
        return self.iterator


def skip_lists(sampler: Any, source: Iterator[Any], count: int) -> Iterator[Any]:
    """Drop the first `count` index lists of `source`, which is a fresh ``iter(sampler)``, and return the rest.

    A plain `BatchSampler` draws nothing before its first `next`: its indices are dropped without making lists of them.
    """
    if type(sampler) is BatchSampler:
        indices = indices_after(sampler.sampler, count * sampler.batch_size)
        return iter(BatchSampler(_Begun(indices), sampler.batch_size, sampler.drop_last))
    deque(islice(source, count), maxlen=0)
    return source


class IndexTap:
    """Stands in for a batch sampler (or a sampler if there is no batching) and passes its index lists through.

    It can drop the first lists, set random states at the two moments at which a sampler may draw (its ``__iter__``,
    its first ``next``), and remembers the last lists. `iter` on it calls `iter` on the user's object at
    the same moment as `DataLoader` would.

    Args:
        inner: The user's sampler or batch sampler.
        window: How many lists to remember.
    """

    def __init__(self, inner: Any, window: int) -> None:
        self.inner = inner
        self.current: TapIterator | None = None
        self.lists: deque[Any] = deque(maxlen=window)
        self.drawn = 0
        self.pending: Callable[[Iterator[Any]], Iterator[Any]] | None = None
        self._iters = 0
        self._at_second_iter: Callable[[], None] | None = None

    def __iter__(self) -> TapIterator:
        self._iters += 1
        if self._iters == 2 and self._at_second_iter is not None:
            self._at_second_iter()
            self._at_second_iter = None
        self.lists.clear()
        self.drawn = 0
        self.current = TapIterator(self, iter(self.inner))
        return self.current

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def arm(
        self,
        generators: dict[str, Any],
        *,
        skip: int = 0,
        before_first: dict[str, Any] | None = None,
        before_second_iter: dict[str, Any] | None = None,
    ) -> None:
        """Prepare a resume.

        Args:
            generators: What `find_generators` found; their states are part of the snapshots.
            skip: Number of index lists to draw and drop before the first one is given away.
            before_first: Snapshot to set right before the first list is drawn.
            before_second_iter: Snapshot to set right before the second `iter` on this tap: loaders with persistent
                workers call it twice when they are started, once when an epoch follows.
        """

        def catch_up(source: Iterator[Any]) -> Iterator[Any]:
            if before_first is not None:
                apply_snapshot(generators, before_first)
            self.drawn = skip
            return skip_lists(self.inner, source, skip)

        if skip:
            self.pending = catch_up
        if before_second_iter is not None:
            self._at_second_iter = lambda: apply_snapshot(generators, before_second_iter)

    def size_of(self, batch_idx: int) -> int | None:
        """Return how many indices batch `batch_idx` was made of, if that is still remembered."""
        indices = self.indices_of(batch_idx)
        return len(indices) if hasattr(indices, "__len__") else None

    def indices_of(self, batch_idx: int) -> Any:
        """Return the index list of batch `batch_idx`, if it is still remembered."""
        position = len(self.lists) - (self.drawn - batch_idx)
        return self.lists[position] if 0 <= position < len(self.lists) else None


class TapIterator:
    """One pass over an `IndexTap`."""

    __slots__ = ("_source", "_tap")

    def __init__(self, tap: IndexTap, source: Iterator[Any]) -> None:
        self._tap = tap
        self._source = source

    def __iter__(self) -> TapIterator:
        return self

    def catch_up(self) -> None:
        """Do the armed skip now instead of at the first `next`."""
        tap = self._tap
        if tap.pending is not None:
            catch_up, tap.pending = tap.pending, None
            self._source = catch_up(self._source)

    def __next__(self) -> Any:
        tap = self._tap
        if tap.pending is not None:
            self.catch_up()
        indices = next(self._source)
        tap.drawn += 1
        tap.lists.append(indices)
        return indices


class CollateTap:
    """Runs in the worker: returns each batch together with the worker's number and its random state afterwards."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: Any) -> tuple[Any, int, bytes]:
        """Collate `samples` as the user's function does, and add worker and state."""
        try:
            batch = self.collate_fn(samples)
        except Exception as error:
            error.add_note(explain_samples(samples))  # shown in the traceback that torch brings to the main process
            raise
        info = torch.utils.data.get_worker_info()
        return batch, info.id if info is not None else -1, pack_main_state()


class WorkerStart:
    """Runs when a worker starts: the user's `worker_init_fn` first, then the random state kept for this worker.

    Args:
        init_fn: The user's.
        states: Worker number to state.
        ready: Shared memory in which each worker notes when it was ready; `None` for none.
    """

    def __init__(
        self, init_fn: Callable[[int], None] | None, states: Mapping[int, RngState], ready: Tensor | None = None
    ) -> None:
        self.init_fn = init_fn
        self.states = states
        self.ready = ready

    def __call__(self, worker_id: int) -> None:
        """Initialise the worker."""
        if self.init_fn is not None:
            self.init_fn(worker_id)
        state = self.states.get(worker_id)
        if state is not None:
            set_main_state(state)
        if self.ready is not None:
            self.ready[worker_id] = monotonic()


class WorkerStates:
    """The random states of the workers as of the last batch that each of them delivered, and as of the one before."""

    def __init__(self) -> None:
        self._packed: dict[int, tuple[bytes | None, bytes]] = {}
        self._kept: dict[int, list[RngState | None]] = {}

    def take(self, item: Any) -> Any:
        """Note what `CollateTap` sent along and return the batch."""
        batch, worker, packed = item
        previous = self._packed.get(worker)
        self._packed[worker] = (previous[1] if previous is not None else None, packed)
        return batch

    def forget(self) -> None:
        """New workers were started that go on from nothing."""
        self._packed.clear()
        self._kept.clear()

    def state(self) -> dict[int, list[RngState | None]]:
        """Return worker number to ``[state before its last batch, state after it]``."""
        result = dict(self._kept)
        for worker, (before, after) in self._packed.items():
            kept = self._kept.get(worker)
            older = kept[1] if kept is not None else None
            result[worker] = [unpack_state(before) if before is not None else older, unpack_state(after)]
        return result

    def load(self, kept: Mapping[int, list[RngState | None]]) -> None:
        """Go on from `kept`, which `state` returned in another process."""
        self._packed.clear()
        self._kept = dict(kept)

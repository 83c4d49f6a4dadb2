"""One pass over a loader. The loop's hot path: `LoaderRun.__next__` is one Python call around the loader's own."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from fulmen.data.rng import generator_states, snapshot
from fulmen.data.trouble import Trouble, has_dead_worker

if TYPE_CHECKING:
    from fulmen.data.taps import IndexTap, WorkerStates

StreamState: TypeAlias = "dict[str, Any]"

_END = object()


@dataclass
class Moments:
    """Random states (see `fulmen.data.rng.snapshot`) at the moments at which a loader draws on its own account.

    Attributes:
        start: Before ``iter(loader)``.
        first: Before the first `next`, once known; only without workers.
        base: Before persistent workers were started, if that was in an earlier epoch.
    """

    start: dict[str, Any] = field(default_factory=dict)
    first: dict[str, Any] | None = None
    base: dict[str, Any] | None = None

    @classmethod
    def of(cls, stream: StreamState) -> Moments:
        """Read them from what `LoaderRun.stream_state` returned."""
        return cls(stream["start"], stream["first"], stream["base"])


@dataclass
class RunSetup:
    """What a run needs to know; made by `LoaderPlan.start`.

    Attributes:
        iterator: The loader's iterator.
        skipped: Batches of this epoch that are over already.
        stop: Number of batches of the epoch (`math.inf` if unknown).
        moments: Random states that a resume goes back to.
        generators: The loader's own generators by path.
        num_workers: Of the loader.
        tap: Counts index lists, if the loader is read through a twin.
        workers: Worker states, if they are tracked.
        keep_ahead: Keep the random states from before each look-ahead.
        size_rule: Batch index to number of indices, where a plain batch sampler tells it.
        finish: Lets the sampler run to its end after the last batch, as a ``for`` loop would.
        short: Called if the data ended before the length that the loader had told.
        fetch: Gives the next batch instead of the iterator, if not `None`.
        trouble: Explains exceptions of the loader.
        whole: The epoch has all batches of the loader.
    """

    iterator: Iterator[Any]
    skipped: int = 0
    stop: int | float = math.inf
    moments: Moments = field(default_factory=Moments)
    generators: dict[str, Any] = field(default_factory=dict)
    num_workers: int = 0
    tap: IndexTap | None = None
    workers: WorkerStates | None = None
    keep_ahead: bool = False
    size_rule: Callable[[int], int | None] | None = None
    finish: Callable[[], None] | None = field(default=None, init=False)
    short: Callable[[int], None] | None = field(default=None, init=False)
    fetch: Callable[[], Any] | None = field(default=None, init=False)
    trouble: Trouble | None = field(default=None, init=False)
    whole: bool = field(default=False, init=False)


def _ended() -> Any:
    raise StopIteration


def end_workers(iterator: Any, *, persistent: bool = False) -> None:
    """End the workers of a `DataLoader`'s iterator now; those that persist only if asked to."""
    shutdown = getattr(iterator, "_shutdown_workers", None)
    if shutdown is not None and (persistent or not getattr(iterator, "_persistent_workers", False)):
        try:
            shutdown()
        except RuntimeError as error:  # torch's signal handler: one of them is gone already
            if not has_dead_worker(error):
                raise


class LoaderRun:
    """Iterator over one epoch of a loader.

    Attributes:
        batch_idx: Index of the batch last returned; -1 before the first.
        is_last: The batch last returned is the final one of the epoch (by count).
        exhausted: The loader itself has ended: it gave fewer batches than its length says, or it was asked for one
            more after the last and had none.
    """

    # No reference cycles: torch's iterators must go by reference count. If the garbage collector finds one, the queues
    # of its workers are closed first, and ending each worker takes five seconds.
    __slots__ = (
        "__weakref__",
        "_ahead_state",
        "_fetch",
        "_last",
        "_setup",
        "_stop",
        "_unbegun",
        "batch_idx",
        "exhausted",
        "is_last",
    )

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._unbegun = setup.num_workers == 0 and setup.moments.first is None and setup.skipped == 0
        self._stop = 0 if self._unbegun else setup.stop
        self._last = setup.stop - 1
        self._ahead_state: dict[str, Any] | None = None
        self.batch_idx = setup.skipped - 1
        self.is_last = 0 < setup.skipped >= setup.stop
        self.exhausted = False
        self._fetch: Callable[[], Any] = setup.fetch or setup.iterator.__next__

    def __iter__(self) -> LoaderRun:
        return self

    def __next__(self) -> Any:
        index = self.batch_idx + 1
        if index >= self._stop:
            self._turn(index)
        try:
            batch = self._fetch()
        except StopIteration as end:
            self._data_ended(end)
            raise
        except Exception as error:
            self._explain(error)
            raise
        self.batch_idx = index
        if index == self._last:
            self.is_last = True
        return batch

    def stop_at(self, stop: int | float) -> None:
        """Let the epoch have another number of batches; what was returned already stays."""
        self._setup.stop, self._last = stop, stop - 1
        if not self._unbegun and not self.exhausted:
            self._stop = stop
        self.is_last = self.batch_idx >= 0 and self.batch_idx >= self._last

    def _turn(self, index: int) -> None:
        """The first batch is due, at which most samplers draw: keep the random states. Or the last one was returned."""
        setup = self._setup
        if self._unbegun:
            self._unbegun, self._stop = False, setup.stop
            setup.moments.first = snapshot(setup.generators)
            if index < self._stop:
                return
        if setup.finish is not None and not self.exhausted:
            setup.finish()
            self.exhausted = True
        self._release()
        raise StopIteration

    def _release(self) -> None:
        """Drop the iterator: workers that do not persist end now, not when the plan goes."""
        self._unbegun, self._stop, self._fetch = False, 0, _ended
        setup = self._setup
        iterator, setup.iterator, setup.fetch, setup.finish = setup.iterator, iter(()), None, None
        end_workers(iterator)

    def _explain(self, error: Exception) -> None:
        if self._setup.trouble is not None:
            self._setup.trouble.explain(error, self.batch_idx + 1)

    def _data_ended(self, end: StopIteration) -> None:
        if not self.exhausted and self._setup.trouble is not None:
            mistake = self._setup.trouble.ended_by_mistake(end, self.batch_idx + 1)
            if mistake is not None:
                raise mistake from end
        if not self.exhausted and self._setup.short is not None and self.batch_idx + 1 < self._setup.stop:
            self._setup.short(self.batch_idx + 1)
        self.exhausted = True

    def fetch_by(self, fetch: Callable[[], Any]) -> None:
        """Get batches by calling `fetch` from now on."""
        self._fetch = fetch

    def watch(self, make: Callable[[Callable[[], Any], Callable[[Callable[[], Any]], None]], Any]) -> None:
        """Put an observer around every fetch: ``make(fetch, put_back)`` returns what is called instead."""

        def put_back(fetch: Callable[[], Any]) -> None:
            run = this()
            if run is not None:
                run.fetch_by(fetch)

        this = weakref.ref(self)
        self._fetch = make(self._fetch, put_back)

    def indices_count(self) -> int | None:
        """Return how many samples the batch last returned has, as the batch sampler gave it; `None` if unknown."""
        setup = self._setup
        if self.batch_idx < 0:
            return None
        if setup.size_rule is not None:
            return setup.size_rule(self.batch_idx)
        return setup.tap.size_of(self.batch_idx) if setup.tap is not None else None

    def stream_state(self) -> StreamState:
        """Return what a checkpoint keeps to go on after the batch last returned.

        The random states of this process *now* are not part of it: the trainer keeps them.

        Returns:
            A dictionary of plain values and byte tensors: ``batches`` returned so far, ``complete`` (the last batch was
            among them), ``finished`` (the sampler ran to its end), ``num_workers``, the snapshots ``start``, ``first``,
            ``base`` (see `Moments`) and ``ahead`` (before the look-ahead), the loader's ``generators`` now, and
            ``workers``: number to ``[state before its last batch, state after it]``.
        """
        setup = self._setup
        return {
            "version": 1,
            "batches": self.batch_idx + 1,
            "complete": self.is_last or self.exhausted,
            "finished": self.exhausted,
            "num_workers": setup.num_workers,
            "start": setup.moments.start,
            "first": setup.moments.first,
            "base": setup.moments.base,
            "ahead": self._ahead_state,
            "generators": generator_states(setup.generators),
            "workers": setup.workers.state() if setup.workers is not None else {},
        }

    def close(self, *, finish: bool = True) -> None:
        """Let go of the iterator (workers that do not persist end); the state can still be read.

        Args:
            finish: After the last batch let the sampler first run to its end, as it would in a ``for`` loop.
        """
        setup = self._setup
        if finish and self.is_last and setup.finish is not None and not self.exhausted:
            setup.finish()
            self.exhausted = True
        self._release()

    def end_workers(self) -> None:
        """Let workers that do not persist end, if all that they have was returned; the state can still be read."""
        if self.is_last and self._setup.num_workers and (self._setup.whole or self.exhausted):
            self._release()

    def __reduce__(self) -> tuple[Any, ...]:
        # A run holds an iterator, which cannot travel: the copy is a closed run at the same place.
        return (closed_run, (self.batch_idx, self.is_last))


class TrackedRun(LoaderRun):
    """A run whose workers send their random state along with each batch."""

    __slots__ = ("_take",)

    def __init__(self, setup: RunSetup) -> None:
        super().__init__(setup)
        assert setup.workers is not None
        self._take = setup.workers.take

    def __next__(self) -> Any:
        return self._take(super().__next__())


class LookaheadRun(LoaderRun):
    """A run over a loader whose number of batches is not known for sure: it is one batch ahead of the loop.

    The first batch is read when the run is made.
    """

    __slots__ = ("_ahead",)

    def __init__(self, setup: RunSetup) -> None:
        super().__init__(setup)
        self._unbegun, self._stop = False, setup.stop
        self._ahead: Any = _END
        if setup.skipped < setup.stop:
            self._look_ahead()

    def _look_ahead(self) -> None:
        setup = self._setup
        self._ahead_state = snapshot(setup.generators) if setup.keep_ahead else None
        try:
            self._ahead = self._fetch()
        except StopIteration as end:
            self._ahead = _END
            self._data_ended(end)
        except Exception as error:
            self._explain(error)
            raise

    def __next__(self) -> Any:
        batch = self._ahead
        if batch is _END:
            raise StopIteration
        self.batch_idx += 1
        if self._setup.workers is not None:
            batch = self._setup.workers.take(batch)
        if self.batch_idx == self._last:
            self._ahead = _END
            self.is_last = True
        else:
            self._look_ahead()
            self.is_last = self._ahead is _END
        return batch

    def stop_at(self, stop: int | float) -> None:
        """As in `LoaderRun`; the batch read ahead is dropped if the epoch ends before it."""
        super().stop_at(stop)
        if self.is_last:
            self._ahead = _END
        self.is_last = self._ahead is _END and self.batch_idx >= 0

    def close(self, *, finish: bool = True) -> None:
        """Let go of the iterator and of the batch read ahead."""
        super().close(finish=finish)
        self._ahead = _END


def closed_run(batch_idx: int, is_last: bool) -> LoaderRun:
    """Return a run that gives nothing any more."""
    run = LoaderRun(RunSetup(iterator=iter(()), stop=0, num_workers=-1))
    run.batch_idx, run.is_last = batch_idx, is_last
    return run

"""One plan per loader: how many batches it gives, and how an epoch over it starts, anew or in the middle."""

from __future__ import annotations

import logging
import math
from collections import deque
from functools import partial
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from fulmen.data.indexed import IndexedSource
from fulmen.data.limits import check_limit, length_of, limited
from fulmen.data.rng import apply_snapshot, find_generators, set_generator_states, snapshot
from fulmen.data.runs import LoaderRun, LookaheadRun, Moments, RunSetup, StreamState, TrackedRun
from fulmen.data.taps import reads_by_index
from fulmen.data.trouble import Trouble
from fulmen.data.waiting import WaitWatch
from fulmen.errors import ArgumentTypeError, ArgumentValueError, DataError, warn

__all__ = ["LoaderPlan", "LoaderRun", "StreamState"]

log = logging.getLogger(__name__)


class LoaderPlan:
    """What the loops know of one loader.

    In the plain case the user's own loader is iterated, so that every random number is drawn as in a ``for`` loop over
    it. A shallow copy of it takes its place where indices must be skipped or counted (a batch sampler of the user's
    own) or worker states tracked.

    Args:
        loader: Any iterable of batches.
        limit: Number (int) or share (float) of its batches per epoch; `None` for all.
        name: What messages call the loader.
        limit_name: What messages call the limit.
        by_count: Go by counts alone, as Lightning does: believe the length of an `IterableDataset` (no look-ahead),
            do not ask the sampler for more after the last batch, and take any `StopIteration` for the end.
        track_workers: Keep what a bit-exact resume in the middle of an epoch needs and costs time per batch: the
            workers' random states, and the process's before each look-ahead.
        watch_wait: Measure the first batches of the first epoch and warn if workers would help.
        look_ahead: Read one batch ahead where the length is not sure; `False` leaves that to who reads several loaders.

    Attributes:
        loader: The user's own object.
        num_batches: Batches per epoch after the limit; `math.inf` if unknown.
        has_length: Whether the loader itself knows its length.

    Raises:
        ArgumentTypeError: If `limit` has a wrong type.
        ArgumentValueError: If `limit` is out of range.
        DataError: If `limit` cannot be applied to this loader's length.
    """

    def __init__(
        self,
        loader: Any,
        *,
        limit: int | float | None = None,
        name: str = "dataloader",
        limit_name: str = "limit",
        by_count: bool = False,
        track_workers: bool = False,
        watch_wait: bool = False,
        look_ahead: bool = True,
    ) -> None:
        self.loader = loader
        self.name = name
        self.limit_name = limit_name
        self.limit = check_limit(limit, limit_name)
        length = length_of(loader, name)
        self.has_length = length is not None
        self.num_batches: int | float = limited(length, self.limit, name=name, limit_name=limit_name)
        self.by_count = by_count
        self.track_workers = track_workers
        self._length = length
        self._watch = watch_wait
        self._workers: int = loader.num_workers if isinstance(loader, DataLoader) else 0
        self._may_look_ahead = look_ahead
        self._look_ahead = look_ahead and not self._is_sure()
        self._indexed: IndexedSource | None = None
        self._run: LoaderRun | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Runs, twins and worker handles stay in this process.
        return {**self.__dict__, "_indexed": None, "_run": None}

    def __repr__(self) -> str:
        return f"LoaderPlan({self.name}: {type(self.loader).__name__}, num_batches={self.num_batches})"

    def _is_sure(self) -> bool:
        """Whether counting alone tells which batch is the last."""
        iterable = isinstance(getattr(self.loader, "dataset", None), IterableDataset)
        return self.num_batches != math.inf and (self.by_count or (self.has_length and not iterable))

    def relimit(self, limit: int | float | None) -> None:
        """Take another limit; the epoch under way ends there too, or after the batch at hand if that is later.

        Args:
            limit: As in the constructor.

        Raises:
            ArgumentTypeError: If `limit` has a wrong type.
            ArgumentValueError: If `limit` is out of range.
            DataError: If `limit` cannot be applied to this loader's length.
        """
        limit = check_limit(limit, self.limit_name)
        self.num_batches = limited(self._length, limit, name=self.name, limit_name=self.limit_name)
        self.limit = limit
        self._look_ahead = self._may_look_ahead and not self._is_sure()
        if self._run is not None:
            self._run.stop_at(self.num_batches)

    def start(self, skip: int = 0, stream: StreamState | None = None) -> LoaderRun:
        """Start an epoch; calls ``iter(loader)`` exactly once.

        With `stream` it goes on where that state was taken. Afterwards, before the next batch is asked for, the caller
        must set the process's random states of the checkpoint: what is drawn here is drawn again, not anew.

        Args:
            skip: Batches of this epoch that are over. Map-style data loaders skip on indices without reading samples
                (up to ``num_workers - 1`` batches are read again, so that each worker gets its own batches); other
                iterables are read and dropped.
            stream: What `LoaderRun.stream_state` returned after batch ``skip - 1``.

        Raises:
            ArgumentTypeError: If `skip` is no int.
            ArgumentValueError: If `skip` is negative, or is not the number of batches in `stream`.
            DataError: If `stream` is of several loaders.
        """
        if isinstance(skip, bool) or not isinstance(skip, int):
            raise ArgumentTypeError(f"LoaderPlan.start: skip={skip!r} is a {type(skip).__name__}; give an int.")
        if skip < 0 or (stream is not None and skip != stream["batches"]):
            expected = f"the stream's own number, {stream['batches']}" if stream is not None else "at least 0"
            raise ArgumentValueError(f"LoaderPlan.start: skip={skip!r}; give {expected}.")
        if stream is not None and "parts" in stream:
            raise DataError(
                f"{self.name}: the checkpoint was written within an epoch over {len(stream['parts'])} loaders that "
                "were read together, and now there is one. Give the loaders of then, or go on from a checkpoint of an "
                "epoch's end."
            )
        self.close_run()
        indexed = self._by_index()
        if stream is not None and stream["complete"]:
            run = self._over(stream)
        else:
            setup = indexed.open(skip, stream) if indexed is not None else self._read_on(skip, stream)
            run = self._make_run(setup, stream)
        if self._watch:
            self._watch = False
            if isinstance(self.loader, DataLoader) and not isinstance(run, LookaheadRun):
                run.watch(partial(WaitWatch, loader=self.loader, name=self.name))
        self._run = run
        return run

    def skip_epoch(self, stream: StreamState) -> None:
        """Go on after an epoch that was over when `stream` was taken: the next `start` begins the one that follows it.

        Sets the loader's own generators; persistent workers will be started as if they had gone on. The caller sets
        the process's random states afterwards.
        """
        generators = find_generators(self.loader)
        indexed = self._by_index()
        if indexed is not None and generators and self._finishes and not stream["finished"]:
            indexed.run_to_end(stream, generators)
        else:
            set_generator_states(generators, stream["generators"])
        if indexed is not None:
            indexed.carry(stream)

    def stream_state(self) -> StreamState | None:
        """Return the state of the epoch last started, also after it is over; `None` before the first."""
        return self._run.stream_state() if self._run is not None else None

    def close_run(self) -> None:
        """Close the epoch last started, if there is one."""
        if self._run is not None:
            self._run.close()

    def close(self) -> None:
        """Close everything; persistent workers of a twin end (those of the user's own loader belong to the user)."""
        self.close_run()
        if self._indexed is not None:
            self._indexed.close()
        self._indexed = self._run = None

    def _by_index(self) -> IndexedSource | None:
        if self._indexed is None and reads_by_index(self.loader):
            self._indexed = IndexedSource(self.loader, self.name, track=self.track_workers)
        return self._indexed

    @property
    def _finishes(self) -> bool:
        """A sampler that draws from a generator of its own may draw once more after its last index.

        With workers it has been asked long before, as indices are drawn ahead.
        """
        return not self.by_count and self._workers == 0 and self.num_batches == self._length

    def _over(self, stream: StreamState) -> LoaderRun:
        """A run that has returned its last batch."""
        self.skip_epoch(stream)
        setup = RunSetup(
            iterator=iter(()),
            stop=stream["batches"],
            skipped=stream["batches"],
            moments=Moments.of(stream),
            generators=find_generators(self.loader),
            num_workers=stream["num_workers"],
            workers=self._indexed.worker_states(stream) if self._indexed is not None else None,
        )
        run = LoaderRun(setup)
        run.is_last = run.exhausted = True
        return run

    def _read_on(self, skip: int, stream: StreamState | None) -> RunSetup:
        """Start an iterable that has no indices to skip."""
        generators = find_generators(self.loader)
        moments = Moments.of(stream) if stream is not None else Moments(snapshot(generators))
        if stream is not None:
            apply_snapshot(generators, moments.start)
        iterator = iter(self.loader)
        if skip:
            log.info("%s cannot skip by index: reading and dropping the first %d batches.", self.name, skip)
            if moments.first is not None:
                apply_snapshot(generators, moments.first)
            deque(islice(iterator, skip), maxlen=0)
        if stream is not None:
            set_generator_states(generators, stream["generators"])
        return RunSetup(iterator, skipped=skip, moments=moments, generators=generators, num_workers=self._workers)

    def _make_run(self, setup: RunSetup, stream: StreamState | None) -> LoaderRun:
        setup.stop = self.num_batches
        setup.whole = self.num_batches == self._length
        if self._indexed is not None and self._finishes:
            setup.finish = partial(_run_out, setup.iterator)
        setup.trouble = Trouble(
            self.loader,
            self.name,
            indices=setup.tap.indices_of if setup.tap is not None else None,
            by_count=self.by_count,
        )
        setup.keep_ahead = self.track_workers and self._workers == 0
        if self._length is not None:
            setup.short = partial(_say_short, self.name, self._length)
        elif self._run is None:  # a later epoch without data was announced by W103, or is an error
            setup.short = partial(_say_empty, self.name)
        if self._look_ahead:
            if stream is not None and stream["ahead"] is not None:
                apply_snapshot(setup.generators, stream["ahead"])
                run: LoaderRun = LookaheadRun(setup)
                set_generator_states(setup.generators, stream["generators"])
                return run
            return LookaheadRun(setup)
        return TrackedRun(setup) if setup.workers is not None else LoaderRun(setup)


def _say_empty(name: str, batches: int) -> None:
    if not batches:
        warn("W109", f"{name}: the data ended before the first batch. Is the data set empty?", key=name)


def _say_short(name: str, length: int, batches: int) -> None:
    warn(
        "W107",
        f"{name}: the data ended after {batches} batches although len() of the loader says {length}. The epoch ends "
        "here. Let __len__ tell the real number, or leave it out.",
        key=name,
    )


def _run_out(iterator: Any) -> None:
    """Ask the sampler for one more list, which it does not have: `for` loops do, and some samplers draw at that."""
    indices = getattr(iterator, "_sampler_iter", None)
    if indices is not None:
        next(indices, None)

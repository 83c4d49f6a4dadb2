"""One plan per loader: how many batches it gives, and how an epoch over it starts, anew or in the middle."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from fulmen.data.limits import check_limit, length_of, limited
from fulmen.data.rng import apply_snapshot, find_generators, set_generator_states, snapshot
from fulmen.data.runs import LoaderRun, LookaheadRun, RunSetup, StreamState, TrackedRun
from fulmen.data.taps import (
    CollateTap,
    IndexTap,
    WorkerStart,
    WorkerStates,
    index_source,
    make_twin,
    reads_by_index,
    skip_lists,
)
from fulmen.data.waiting import WaitWatch
from fulmen.errors import ArgumentTypeError, ArgumentValueError, warn

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
            and do not ask the sampler for more after the last batch.
        track_workers: Keep what a bit-exact resume in the middle of an epoch needs and costs time per batch: the
            workers' random states, and the process's before each look-ahead.
        watch_wait: Measure the first batches of the first epoch and warn if workers would help.

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
    ) -> None:
        self.loader = loader
        self.name = name
        self.limit = check_limit(limit, limit_name)
        length = length_of(loader, name)
        self.has_length = length is not None
        self.num_batches: int | float = limited(length, self.limit, name=name, limit_name=limit_name)
        self.by_count = by_count
        self.track_workers = track_workers
        self._length = length
        self._watch = watch_wait
        self._by_index = reads_by_index(loader)
        self._workers: int = getattr(loader, "num_workers", 0) if isinstance(loader, DataLoader) else 0
        self._persistent = bool(self._workers and getattr(loader, "persistent_workers", False))
        iterable = isinstance(getattr(loader, "dataset", None), IterableDataset)
        sure = self.num_batches != float("inf") and (by_count or (self.has_length and not iterable))
        self._look_ahead = not sure
        self._drop_run_state()

    def _drop_run_state(self) -> None:
        self._twin: DataLoader[Any] | None = None
        self._tap: IndexTap | None = None
        self._states: WorkerStates | None = None
        self._base: dict[str, Any] | None = None
        self._carry: StreamState | None = None
        self._run: LoaderRun | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Runs, twins and worker handles stay in this process.
        gone = dict.fromkeys(("_twin", "_tap", "_states", "_base", "_carry", "_run"))
        return {**self.__dict__, **gone}

    def __repr__(self) -> str:
        return f"LoaderPlan({self.name}: {type(self.loader).__name__}, num_batches={self.num_batches})"

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
        """
        if isinstance(skip, bool) or not isinstance(skip, int):
            raise ArgumentTypeError(f"LoaderPlan.start: skip={skip!r} is a {type(skip).__name__}; give an int.")
        if skip < 0 or (stream is not None and skip != stream["batches"]):
            expected = f"the stream's own number, {stream['batches']}" if stream is not None else "at least 0"
            raise ArgumentValueError(f"LoaderPlan.start: skip={skip!r}; give {expected}.")
        self.close_run()
        if stream is not None and stream["complete"]:
            run = self._over(stream)
        elif self._by_index:
            run = self._start_by_index(skip, stream)
        else:
            run = self._start_reading(skip, stream)
        if self._watch:
            self._watch = False
            if not isinstance(run, LookaheadRun):
                run.watch(partial(WaitWatch, loader=self.loader, name=self.name))
        self._run = run
        return run

    def skip_epoch(self, stream: StreamState) -> None:
        """Go on after an epoch that was over when `stream` was taken: the next `start` begins the one that follows it.

        Sets the loader's own generators; persistent workers will be started as if they had gone on. The caller sets
        the process's random states afterwards.
        """
        generators = find_generators(self.loader)
        if self._by_index and generators and not stream["finished"] and self._finishes:
            self._run_to_end(stream, generators)
        else:
            set_generator_states(generators, stream["generators"])
        self._carry = stream if self._persistent else None

    def stream_state(self) -> StreamState | None:
        """Return the state of the epoch last started, also after it is over; `None` before the first."""
        return self._run.stream_state() if self._run is not None else self._carry

    def close_run(self) -> None:
        """Close the epoch last started, if there is one."""
        if self._run is not None:
            self._run.close()

    def close(self) -> None:
        """Close everything; persistent workers of a twin end (those of the user's own loader belong to the user)."""
        self.close_run()
        self._drop_run_state()

    @property
    def _finishes(self) -> bool:
        """A sampler that draws from a generator of its own may draw once more after its last index."""
        return not self.by_count and self._workers == 0 and self.num_batches == self._length

    def _over(self, stream: StreamState) -> LoaderRun:
        self.skip_epoch(stream)
        setup = RunSetup(
            iterator=iter(()),
            stop=stream["batches"],
            skipped=stream["batches"],
            start=stream["start"],
            first=stream["first"],
            base=stream["base"],
            generators=find_generators(self.loader),
            num_workers=stream["num_workers"],
            workers=self._load_workers(stream),
        )
        run = LoaderRun(setup)
        run.is_last = run.exhausted = True
        return run

    def _load_workers(self, stream: StreamState | None) -> WorkerStates | None:
        if not (self.track_workers and self._workers and self._by_index):
            return None
        states = WorkerStates()
        if stream is not None and stream["num_workers"] == self._workers:
            states.load(stream["workers"])
        return states

    def _start_reading(self, skip: int, stream: StreamState | None) -> LoaderRun:
        generators = find_generators(self.loader)
        if stream is not None:
            apply_snapshot(generators, stream["start"])
        start = stream["start"] if stream is not None else snapshot(generators)
        iterator = iter(self.loader)
        first = stream["first"] if stream is not None else None
        if skip:
            log.info("%s cannot skip by index: reading and dropping the first %d batches.", self.name, skip)
            if first is not None:
                apply_snapshot(generators, first)
            deque(islice(iterator, skip), maxlen=0)
        if stream is not None:
            set_generator_states(generators, stream["generators"])
        return self._make_run(
            RunSetup(iterator, self.num_batches, skip, start, first, generators=generators, num_workers=self._workers),
            stream,
        )

    def _start_by_index(self, skip: int, stream: StreamState | None) -> LoaderRun:
        generators = find_generators(self.loader)
        tracked = self.track_workers and self._workers > 0
        fresh = snapshot(generators)
        start = fresh if stream is None else stream["start"]
        carry, self._carry = self._carry, None
        resumed = stream if stream is not None else carry
        own_batches = self.loader.batch_sampler is not None and type(self.loader.batch_sampler) is not BatchSampler
        alive = self._persistent and self._twin is not None and resumed is None and not skip
        if not alive:
            self._twin = self._tap = None
            self._states = self._load_workers(resumed) if tracked else None
        if not alive and (tracked or own_batches or skip or resumed is not None):
            self._prepare_twin(tracked)
        reread = self._arm(skip, stream, carry, generators, fresh)
        if self._persistent and resumed is None and not alive and self._is_new():
            self._base = fresh
        if self._states is not None and not self._persistent and resumed is None:
            self._states.forget()
        target = self._twin if self._twin is not None else self.loader
        iterator = iter(target)
        self._disarm(skip, iterator, reread)
        if stream is not None:
            set_generator_states(generators, stream["generators"])
        setup = RunSetup(
            iterator=iterator,
            stop=self.num_batches,
            skipped=skip,
            start=start,
            first=stream["first"] if stream is not None else None,
            base=self._base if self._base is not start else None,
            generators=generators,
            num_workers=self._workers,
            tap=self._tap,
            workers=self._states,
            size_rule=self._size_rule(),
            finish=partial(_run_out, iterator) if self._finishes else None,
        )
        return self._make_run(setup, stream)

    def _is_new(self) -> bool:
        target = self._twin if self._twin is not None else self.loader
        return getattr(target, "_iterator", None) is None

    def _prepare_twin(self, tracked: bool) -> None:
        name, source = index_source(self.loader)
        self._tap = IndexTap(source, window=(self.loader.prefetch_factor or 0) * self._workers + 2)
        changes: dict[str, Any] = {name: self._tap}
        if tracked:
            changes["collate_fn"] = CollateTap(self.loader.collate_fn)
        self._twin = make_twin(self.loader, **changes)

    def _arm(
        self,
        skip: int,
        stream: StreamState | None,
        carry: StreamState | None,
        generators: dict[str, Any],
        fresh: dict[str, Any],
    ) -> int:
        """Set the random states for `iter` and arm the tap; return how many batches workers read again."""
        resumed = stream if stream is not None else carry
        if resumed is None:
            if skip and self._tap is not None:
                self._tap.arm(generators, skip=skip)
            return 0
        assert self._tap is not None and self._twin is not None
        same = resumed["num_workers"] == self._workers
        known = resumed["workers"] if same else {}
        if self._workers and (not same or (not known and resumed["batches"])):
            self._say_inexact(resumed)
        reread = skip % self._workers if known and stream is not None else 0
        states = {
            worker: state
            for worker, (before, after) in known.items()
            if (state := before if worker < reread else after) is not None
        }
        if states:
            self._twin.__dict__["worker_init_fn"] = WorkerStart(self.loader.worker_init_fn, states)
        self._base = resumed["base"] if same and self._persistent else None
        if carry is not None and stream is None and same:
            self._base = self._base or carry["start"]
        follow = fresh if stream is None else stream["start"]
        if self._base is None:
            apply_snapshot(generators, follow)
            self._base = follow if self._persistent else None
            follow_at_second = None
        else:
            apply_snapshot(generators, self._base)
            follow_at_second = follow
        self._tap.arm(
            generators,
            skip=skip - reread,
            before_first=stream["first"] if stream is not None else None,
            before_second_iter=follow_at_second,
        )
        return reread

    def _disarm(self, skip: int, iterator: Any, reread: int) -> None:
        """After `iter`: skip now rather than at the first batch, and take one-time changes off the twin."""
        if self._tap is None or self._twin is None:
            return
        if self._workers == 0 and skip and self._tap.current is not None:
            self._tap.current.catch_up()
        for _ in range(reread):
            next(iterator)
        if self._workers:
            self._twin.__dict__["worker_init_fn"] = self.loader.worker_init_fn

    def _say_inexact(self, stream: StreamState) -> None:
        if stream["num_workers"] != self._workers:
            reason = f"the checkpoint was written with num_workers={stream['num_workers']}, now it is {self._workers}"
        else:
            reason = "the checkpoint holds no states of the loader's workers"
        warn(
            "W106",
            f"{self.name}: the order of samples goes on exactly, random numbers drawn in workers (augmentation) do "
            f"not: {reason}.",
            key=self.name,
        )

    def _make_run(self, setup: RunSetup, stream: StreamState | None) -> LoaderRun:
        setup.keep_ahead = self.track_workers and self._workers == 0
        if self.has_length:
            setup.short = self._say_short
        if self._look_ahead:
            if stream is not None and stream["ahead"] is not None:
                apply_snapshot(setup.generators, stream["ahead"])
                run: LoaderRun = LookaheadRun(setup)
                set_generator_states(setup.generators, stream["generators"])
                return run
            return LookaheadRun(setup)
        return TrackedRun(setup) if setup.workers is not None else LoaderRun(setup)

    def _say_short(self, batches: int) -> None:
        warn(
            "W107",
            f"{self.name}: the data ended after {batches} batches although len() of the loader says {self._length}. "
            "The epoch ends here. Let __len__ tell the real number, or leave it out.",
            key=self.name,
        )

    def _size_rule(self) -> Any:
        sampler = self.loader.batch_sampler
        if self._tap is not None or type(sampler) is not BatchSampler:
            return None
        if sampler.drop_last:
            return partial(_full_batch, sampler.batch_size)
        try:
            return partial(_rest_batch, sampler.batch_size, len(sampler.sampler))  # type: ignore[arg-type]  # no length: TypeError, below
        except (TypeError, NotImplementedError):
            return None

    def _run_to_end(self, stream: StreamState, generators: dict[str, Any]) -> None:
        """Replay what the sampler draws at the end of its epoch; no sample is read."""
        _, source = index_source(self.loader)
        apply_snapshot(generators, stream["start"])
        rest = iter(source)
        if stream["first"] is not None:
            apply_snapshot(generators, stream["first"])
        rest = skip_lists(source, rest, stream["batches"])
        set_generator_states(generators, stream["generators"])
        next(rest, None)


def _run_out(iterator: Any) -> None:
    """Ask the sampler for one more list, which it does not have: `for` loops do, and some samplers draw at that."""
    indices = getattr(iterator, "_sampler_iter", None)
    if indices is not None:
        next(indices, None)


def _full_batch(batch_size: int, batch_idx: int) -> int:
    return batch_size


def _rest_batch(batch_size: int, samples: int, batch_idx: int) -> int:
    return max(0, min(batch_size, samples - batch_idx * batch_size))

"""How a map-style `DataLoader` is opened, epoch after epoch, so that it can go on where a checkpoint left it."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from fulmen.data.fetch import read_batchwise
from fulmen.data.kept import KeptCollate, KeptData, KeptLists, can_keep, start_kept
from fulmen.data.rng import apply_snapshot, find_generators, set_generator_states, snapshot
from fulmen.data.runs import Moments, RunSetup, StreamState, end_workers
from fulmen.data.taps import CollateTap, IndexTap, WorkerStart, WorkerStates, index_source, make_twin, skip_lists
from fulmen.data.waiting import StartClock
from fulmen.errors import warn


class IndexedSource:
    """Opens the user's loader, or a twin of it where indices are skipped or counted or workers tracked.

    Workers that do not persist are started at each `iter` from a seed that is drawn then; their states begin anew.
    Persistent ones are started once and go on: their loader stays open, draws no second seed, and a process that
    resumes must start them from the first epoch's states and then hand them their own.

    Args:
        loader: A loader for which `fulmen.data.taps.reads_by_index` holds.
        name: What messages call it.
        track: Let workers send their random states with each batch.
    """

    def __init__(self, loader: DataLoader[Any], name: str, *, track: bool) -> None:
        self.loader = loader
        self.name = name
        self.num_workers = loader.num_workers
        self.persistent = bool(loader.num_workers and loader.persistent_workers)
        self.tracked = track and loader.num_workers > 0
        batches = loader.batch_sampler
        self._own_batches = batches is not None and type(batches) is not BatchSampler
        self._twin: DataLoader[Any] | None = None
        self._tap: IndexTap | None = None
        self._workers: WorkerStates | None = None
        self._base: dict[str, Any] | None = None
        self._carried: StreamState | None = None
        self._clock = StartClock(self.num_workers, name) if self.num_workers and not self.persistent else None
        self._keeps = False
        self._lists: KeptLists | None = None
        self._kept_as: dict[str, Any] = {}

    def open(self, skip: int, stream: StreamState | None) -> RunSetup:
        """Start an epoch, or go on in the middle of the one of `stream`; fills what a run needs except its length.

        Args:
            skip: Batches of this epoch that are over.
            stream: State to go on from, taken after `skip` batches.
        """
        if self._clock is not None and self._clock.took_long() is not None:
            self._keeps = bool(self._clock.took_long()) and can_keep(self.loader)
            self._clock.tell(kept=self._keeps)
            self._clock = None
        generators = find_generators(self.loader)
        fresh = snapshot(generators)
        carried, self._carried = self._carried, None
        goes_on = self._twin is not None and stream is carried is None and not skip and self._can_go_on()
        if not goes_on:
            self._renew(stream or carried, needs_tap=bool(skip))
        if stream is not None or carried is not None:
            iterator = self._resume(skip, stream, carried, generators, fresh)
        else:
            iterator = self._begin(skip, generators, fresh, goes_on)
        start = fresh if stream is None else stream["start"]
        setup = RunSetup(
            iterator=iterator,
            skipped=skip,
            moments=Moments(
                start=start,
                first=stream["first"] if stream is not None else None,
                base=self._base if self._base is not start else None,
            ),
            generators=generators,
            num_workers=self.num_workers,
            tap=self._tap,
            workers=self._workers,
            size_rule=self._size_rule(),
        )
        setup.fetch = read_batchwise(iterator)
        return setup

    def carry(self, stream: StreamState) -> None:
        """The epoch of `stream` is over: let persistent workers, when they are started, go on from it."""
        self._carried = stream if self.persistent else None

    def close(self) -> None:
        """End the workers of the twin."""
        if self._twin is not None:
            end_workers(self._twin.__dict__["_iterator"], persistent=True)
        self._twin = self._tap = self._lists = None

    def run_to_end(self, stream: StreamState, generators: dict[str, Any]) -> None:
        """Replay what the sampler draws from its generators after its last index; no sample is read."""
        _, sampler = index_source(self.loader)
        apply_snapshot(generators, stream["start"])
        indices = iter(sampler)
        if stream["first"] is not None:
            apply_snapshot(generators, stream["first"])
        indices = skip_lists(sampler, indices, stream["batches"])
        set_generator_states(generators, stream["generators"])
        next(indices, None)

    def worker_states(self, stream: StreamState | None) -> WorkerStates | None:
        """Return a fresh keeper of worker states, filled from `stream`; `None` if they are not tracked."""
        if not self.tracked:
            return None
        states = WorkerStates()
        if stream is not None and stream["num_workers"] == self.num_workers:
            states.load(stream["workers"])
        return states

    def _can_go_on(self) -> bool:
        """Workers that outlive the epoch are there; those that begin anew get what is new."""
        if self._lists is None:
            return self.persistent
        now, then = vars(self.loader), self._kept_as
        if now.keys() != then.keys() or any(now[key] is not then[key] for key in now) or not self._lists.renew():
            return False
        self._workers = self.worker_states(None)
        return True

    def _keep_workers(self, changes: dict[str, Any], name: str) -> None:
        loader = self.loader
        self._kept_as = dict(vars(loader))
        self._lists = changes[name] = KeptLists(self._tap, loader)
        collate = changes.setdefault("collate_fn", KeptCollate(loader.collate_fn))
        changes["dataset"] = KeptData(loader.dataset, loader.worker_init_fn, collate)
        changes.update(worker_init_fn=start_kept, persistent_workers=True)

    def _renew(self, resumed: StreamState | None, *, needs_tap: bool) -> None:
        self.close()
        self._workers = self.worker_states(resumed)
        keeps = self._keeps and resumed is None and not needs_tap
        if not (self.tracked or self._own_batches or needs_tap or resumed is not None or self._clock or keeps):
            return
        name, sampler = index_source(self.loader)
        self._tap = IndexTap(sampler, window=(self.loader.prefetch_factor or 0) * self.num_workers + 2)
        changes: dict[str, Any] = {name: self._tap}
        if self.tracked:
            changes["collate_fn"] = CollateTap(self.loader.collate_fn)
        if self._clock is not None:
            changes["worker_init_fn"] = WorkerStart(self.loader.worker_init_fn, {}, self._clock.ready)
        if keeps:
            self._keep_workers(changes, name)
        self._twin = make_twin(self.loader, **changes)

    def _begin(self, skip: int, generators: dict[str, Any], fresh: dict[str, Any], goes_on: bool) -> Any:
        target = self._twin if self._twin is not None else self.loader
        if not self.persistent:
            self._base = None
        elif not goes_on and getattr(target, "_iterator", None) is None:
            self._base = fresh
        if self._tap is not None:
            self._tap.arm(generators, skip=skip)
        if self._clock is not None:
            self._clock.begin()
        iterator = iter(target)
        self._catch_up()
        return iterator

    def _resume(
        self,
        skip: int,
        stream: StreamState | None,
        carried: StreamState | None,
        generators: dict[str, Any],
        fresh: dict[str, Any],
    ) -> Any:
        resumed = stream if stream is not None else carried
        assert resumed is not None and self._tap is not None and self._twin is not None
        same = resumed["num_workers"] == self.num_workers
        known = resumed["workers"] if same else {}
        if self.num_workers and (not same or (not known and resumed["batches"])):
            self._say_inexact(resumed)
        # Batch k is made by worker k % num_workers, and a new iterator begins with worker 0: workers before the one
        # whose turn it is make their last batch once more.
        again = skip % self.num_workers if known and stream is not None else 0
        states = {worker: pair[0] if worker < again else pair[1] for worker, pair in known.items()}
        self._twin.__dict__["worker_init_fn"] = WorkerStart(self.loader.worker_init_fn, states)
        here = stream["start"] if stream is not None else fresh
        before = None
        if self.persistent and same:
            before = resumed["base"] or (carried["start"] if carried is not None else None)
        self._base = (before or here) if self.persistent else None
        apply_snapshot(generators, before or here)
        self._tap.arm(
            generators,
            skip=skip - again,
            before_first=stream["first"] if stream is not None else None,
            before_second_iter=here if before is not None else None,
        )
        iterator = iter(self._twin)
        self._catch_up()
        for _ in range(again):
            next(iterator)
        # Workers of later epochs, if these persist not, start as the user's do.
        self._twin.__dict__["worker_init_fn"] = self.loader.worker_init_fn
        if stream is not None:
            set_generator_states(generators, stream["generators"])
        return iterator

    def _catch_up(self) -> None:
        """Without workers skip now: the caller sets the random states that hold afterwards before the next batch."""
        if self.num_workers == 0 and self._tap is not None and self._tap.current is not None:
            self._tap.current.catch_up()

    def _say_inexact(self, stream: StreamState) -> None:
        if stream["num_workers"] != self.num_workers:
            reason = f"the checkpoint was written with num_workers={stream['num_workers']}, not {self.num_workers}"
        else:
            reason = "the checkpoint holds no states of the loader's workers"
        warn(
            "W106",
            f"{self.name}: the order of samples goes on exactly, random numbers drawn in workers (augmentation) do "
            f"not: {reason}.",
            key=self.name,
        )

    def _size_rule(self) -> Any:
        sampler = self.loader.batch_sampler
        if self._tap is not None or type(sampler) is not BatchSampler:
            return None
        if sampler.drop_last:
            return partial(_full_batch, sampler.batch_size)
        try:
            samples = len(sampler.sampler)  # type: ignore[arg-type]  # without a length: TypeError, handled below
        except (TypeError, NotImplementedError):
            return None
        return partial(_rest_batch, sampler.batch_size, samples)


def _full_batch(batch_size: int, batch_idx: int) -> int:
    return batch_size


def _rest_batch(batch_size: int, samples: int, batch_idx: int) -> int:
    return max(0, min(batch_size, samples - batch_idx * batch_size))

"""Several loaders read together: one plan over the plans of each, and one pass over their passes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from torch.utils.data import IterableDataset

from fulmen.data.limits import check_limit, limited
from fulmen.data.plan import LoaderPlan, LoaderRun, StreamState
from fulmen.data.rng import main_state, set_main_state
from fulmen.data.runs import closed_run
from fulmen.errors import ArgumentValueError, DataError
from fulmen.utilities.combined_loader import CombinedLoader, combined_length

__all__ = ["AnyPlan", "CombinedPlan", "CombinedRun"]

_END = object()


class CombinedPlan:
    """What the loops know of several loaders that are read together; stands in for a `LoaderPlan`.

    Each loader keeps a plan and a stream of its own, so that order, random numbers and a resume are those that it has
    alone. Loaders that begin again within an epoch (``max_size_cycle``) begin a further pass of their plan.

    Args:
        loader: The loaders and their mode, any but ``sequential``.
        plans: Their plans, without a limit and without look-ahead.
        limit: Number (int) or share (float) of each loader's batches that count.
        name: What messages call them together.
        limit_name: What messages call the limit.
        by_count: As in `LoaderPlan`.
        track: Keep what an exact resume needs of each look-ahead.

    Attributes:
        num_batches: Batches per epoch, `math.inf` if unknown.
        has_length: Whether that is known from the loaders' own lengths.

    Raises:
        DataError: If `limit` cannot be applied to a loader.
    """

    def __init__(
        self,
        loader: CombinedLoader,
        plans: Sequence[LoaderPlan],
        *,
        limit: int | float | None = None,
        name: str = "dataloader",
        limit_name: str = "limit",
        by_count: bool = False,
        track: bool = False,
    ) -> None:
        self.loader = loader
        self.plans = list(plans)
        self.name = name
        self.limit_name = limit_name
        self.by_count = by_count
        self.track = track
        self.has_length = all(plan.has_length for plan in plans)
        self.limit: int | float = 1.0
        self.num_batches: int | float = 0
        self.look_ahead = False
        self._run: CombinedRun | None = None
        self.relimit(limit)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}

    def __repr__(self) -> str:
        return f"CombinedPlan({self.name}: {len(self.plans)} loaders, num_batches={self.num_batches})"

    def relimit(self, limit: int | float | None) -> None:
        """Take another limit; the epoch under way ends there too, or after the batch at hand if that is later."""
        limit = check_limit(limit, self.limit_name)
        counts = [limited(_length(plan), limit, name=plan.name, limit_name=self.limit_name) for plan in self.plans]
        self.limit = limit
        self.num_batches = combined_length(self.loader.mode, counts)
        self.look_ahead = self.num_batches == math.inf or not (self.by_count or all(map(_is_known, self.plans)))
        if self._run is not None:
            self._run.stop_at(self.num_batches)

    def start(self, skip: int = 0, stream: StreamState | None = None) -> CombinedRun:
        """Start an epoch, or go on where `stream` was taken; as `LoaderPlan.start`.

        Args:
            skip: Batches of this epoch that are over.
            stream: What `CombinedRun.stream_state` returned after batch ``skip - 1``.

        Raises:
            ArgumentValueError: If `skip` is negative or not the number of batches in `stream`.
            DataError: If `stream` is not of as many loaders.
        """
        if skip < 0 or (stream is not None and skip != stream["batches"]):
            raise ArgumentValueError(f"{self.name}: skip={skip!r} is not the number of batches in the stream.")
        self.close_run()
        if stream is not None:
            parts = self._parts(stream)
            run = self._make_run(
                [plan.start(part["batches"], part) for plan, part in zip(self.plans, parts, strict=True)], skip
            )
            run.go_on(stream)
        elif skip and all(map(_is_known, self.plans)):
            run = self._make_run([plan.start(self._skip_of(plan, skip)) for plan in self.plans], skip)
            run.ended = [skip > plan.num_batches for plan in self.plans]
            run.begin()
        else:
            run = self._make_run([plan.start() for plan in self.plans], 0)
            run.begin()
            deque(islice(run, skip), maxlen=0)
        self._run = run
        return run

    def _make_run(self, runs: list[LoaderRun], skip: int) -> CombinedRun:
        kind = CombinedLookahead if self.look_ahead else CombinedRun
        return kind(self, runs, skip)

    def _skip_of(self, plan: LoaderPlan, skip: int) -> int:
        length = int(plan.num_batches)
        if self.loader.mode == "max_size_cycle" and length:
            # A loader whose pass has just ended begins again with the next batch.
            return skip if skip <= length else (skip - 1) % length + 1
        return min(skip, length)

    def _parts(self, stream: StreamState) -> list[StreamState]:
        parts = stream.get("parts")
        if parts is None or len(parts) != len(self.plans):
            count = "one loader" if parts is None else f"{len(parts)} loaders"
            raise DataError(
                f"{self.name}: the checkpoint was written within an epoch over {count}, and now there are "
                f"{len(self.plans)}, read together. Give the loaders of then, or go on from a checkpoint of an epoch's "
                "end."
            )
        return list(parts)

    def skip_epoch(self, stream: StreamState) -> None:
        """Go on after the epoch of `stream`; as `LoaderPlan.skip_epoch`."""
        for plan, part in zip(self.plans, self._parts(stream), strict=True):
            # Loaders that were left before their end, or ended by count, were not asked for more.
            over = part["complete"] and not self.by_count and not stream.get("finished")
            plan.skip_epoch(part if over else {**part, "finished": True})

    def stream_state(self) -> StreamState | None:
        """Return the state of the epoch last started, also after it is over; `None` before the first."""
        return self._run.stream_state() if self._run is not None else None

    def close_run(self) -> None:
        """Close the epoch last started, if there is one."""
        if self._run is not None:
            self._run.close()

    def close(self) -> None:
        """Close everything, as `LoaderPlan.close`."""
        self.close_run()
        for plan in self.plans:
            plan.close()
        self._run = None


def _length(plan: LoaderPlan) -> int | None:
    return int(plan.num_batches) if plan.has_length else None


def _is_known(plan: LoaderPlan) -> bool:
    """Whether the loader's length is there and sure; that of an iterable data set may be wrong."""
    return plan.has_length and not isinstance(getattr(plan.loader, "dataset", None), IterableDataset)


AnyPlan: TypeAlias = LoaderPlan | CombinedPlan


class CombinedRun:
    """Iterator over one epoch of several loaders; has the attributes and methods of a `LoaderRun`.

    Args:
        plan: Whose epoch it is.
        runs: The passes over each loader.
        skipped: Batches of the epoch that are over.
    """

    def __init__(self, plan: CombinedPlan, runs: list[LoaderRun], skipped: int) -> None:
        self.plans = plan.plans
        self.runs = runs
        self.ended = [False] * len(runs)
        self.finishes = not plan.by_count
        self.keep = plan.track
        self._put: Callable[[Sequence[Any]], Any] = plan.loader.nesting.put
        # Not bound: a reference cycle would keep workers until the garbage collector comes (see `LoaderRun`).
        self._draw: Callable[[Any], Any] = getattr(type(self), f"draw_{plan.loader.mode}")
        self._stop = plan.num_batches
        self._last = plan.num_batches - 1
        self.batch_idx = skipped - 1
        self.is_last = 0 < skipped >= self._stop
        self.exhausted = False

    def __iter__(self) -> CombinedRun:
        return self

    def __next__(self) -> Any:
        index = self.batch_idx + 1
        if index >= self._stop:
            self.close()
            raise StopIteration
        try:
            batch = self._put(self._draw(self))
        except StopIteration:
            self.exhausted = True
            raise
        self.batch_idx = index
        if index == self._last:
            self.is_last = True
        return batch

    def begin(self) -> None:
        """Called once when the epoch starts anew."""

    def go_on(self, stream: StreamState) -> None:
        """Take back what `stream_state` returned; the loaders' passes have theirs already."""
        self.ended = list(stream["ended"])
        self.is_last = self.is_last or bool(stream["complete"])
        if stream["complete"]:
            self._stop = self.batch_idx + 1

    def draw_min_size(self) -> list[Any]:
        """A batch of each; ends with the shortest loader."""
        return [next(run) for run in self.runs]

    def draw_max_size(self) -> list[Any]:
        """A batch of each, `None` of those that have ended; ends with the longest loader."""
        values = []
        for index, run in enumerate(self.runs):
            value = None if self.ended[index] else next(run, _END)
            if value is _END:
                self.ended[index], value = True, None
            values.append(value)
        if all(self.ended):
            raise StopIteration
        return values

    def draw_max_size_cycle(self) -> list[Any]:
        """A batch of each, those that have ended begin again; ends when all have ended once."""
        values = []
        for index, plan in enumerate(self.plans):
            value = next(self.runs[index], _END)
            if value is _END:
                self.ended[index] = True
                if all(self.ended):
                    raise StopIteration
                self.runs[index] = plan.start()
                value = next(self.runs[index])
            values.append(value)
        return values

    def stop_at(self, stop: int | float) -> None:
        """Let the epoch have another number of batches; what was returned already stays."""
        self._stop, self._last = stop, stop - 1
        self.is_last = self.batch_idx >= 0 and self.batch_idx >= self._last

    def indices_count(self) -> int | None:
        """Return how many samples the batch of each loader has if all have the same number, else `None`."""
        counts = {run.indices_count() for run, ended in zip(self.runs, self.ended, strict=True) if not ended}
        return counts.pop() if len(counts) == 1 else None

    def stream_state(self) -> StreamState:
        """Return what a checkpoint keeps to go on after the batch last returned.

        Returns:
            ``batches``, ``complete``, ``finished`` and ``ahead`` as in `LoaderRun.stream_state`; ``parts``, such a
            state of each loader; ``ended``, which loaders have ended in this epoch.
        """
        return {
            "version": 1,
            "batches": self.batch_idx + 1,
            "complete": self.is_last or self.exhausted,
            "finished": False,
            "ahead": None,
            "parts": [run.stream_state() for run in self.runs],
            "ended": list(self.ended),
        }

    def end_workers(self) -> None:
        """Let workers end of loaders that have nothing left."""
        if self.is_last:
            for run in self.runs:
                run.end_workers()

    def close(self) -> None:
        """Let go of the loaders' iterators; the state can still be read."""
        self._stop = 0
        for run in self.runs:
            run.close(finish=self.finishes)

    def __reduce__(self) -> tuple[Any, ...]:
        return (closed_run, (self.batch_idx, self.is_last))  # as a `LoaderRun`


class CombinedLookahead(CombinedRun):
    """A run over loaders whose number of batches is not known for sure: it is one batch ahead of the loop."""

    def __init__(self, plan: CombinedPlan, runs: list[LoaderRun], skipped: int) -> None:
        super().__init__(plan, runs, skipped)
        self._ahead: Any = _END
        self._state: StreamState | None = None

    def begin(self) -> None:
        """Read the first batch."""
        if self.batch_idx + 1 < self._stop:
            self._look()

    def go_on(self, stream: StreamState) -> None:
        """As in `CombinedRun`; the batch that had been read ahead is read again."""
        super().go_on(stream)
        if stream["complete"]:
            return
        if stream["ahead"] is not None:
            set_main_state(stream["ahead"])
        self._look()

    def _look(self) -> None:
        self._state = {**super().stream_state(), "ahead": main_state()} if self.keep else None
        try:
            self._ahead = self._put(self._draw(self))
        except StopIteration:
            self._ahead, self._state = _END, None
            self.exhausted = True

    def __next__(self) -> Any:
        batch = self._ahead
        if batch is _END:
            raise StopIteration
        self.batch_idx += 1
        if self.batch_idx == self._last:
            self._ahead, self.is_last, self._state = _END, True, None
        else:
            self._look()
            self.is_last = self._ahead is _END
        return batch

    def stop_at(self, stop: int | float) -> None:
        """As in `CombinedRun`; the batch read ahead is dropped if the epoch ends before it."""
        super().stop_at(stop)
        if self.is_last:
            self._ahead = _END
        self.is_last = self._ahead is _END and self.batch_idx >= 0

    def stream_state(self) -> StreamState:
        """As in `CombinedRun`, as of before the look-ahead."""
        state = self._state if self._state is not None else super().stream_state()
        return {**state, "batches": self.batch_idx + 1, "complete": self.is_last}

    def close(self) -> None:
        """Let go of the loaders and of the batch read ahead."""
        super().close()
        self._ahead = _END

"""What to say when a batch could not be read: which loader, batch and samples, and what they looked like."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from torch.utils.data import IterableDataset

from fulmen.errors import DataError

_MOST = 8
_FETCHER = "torch.utils.data._utils.fetch"
_UNTIL_TOLD_S = 0.5
_RECEIVE = "_try_get_data"
_DIED = "A worker process of the loader ended"
_WORKER_DIED = "DataLoader worker (pid"


class Trouble:
    """Explains exceptions that come out of one loader.

    Args:
        loader: The user's loader.
        name: What messages call it.
        indices: Batch index to the indices of its samples, where they are known.
        by_count: Any `StopIteration` is the end, as in Lightning.
    """

    def __init__(
        self, loader: Any, name: str, *, indices: Callable[[int], Any] | None = None, by_count: bool = False
    ) -> None:
        self.name = name
        self.indices = indices
        self.iterable = isinstance(getattr(loader, "dataset", None), IterableDataset)
        self.any_end = by_count or self.iterable
        self.workers = getattr(loader, "num_workers", 0)

    def explain(self, error: BaseException, batch_idx: int) -> None:
        """Add a note to `error`: loader, batch, samples; for a failed collate what differs; for a dead worker why."""
        note = f"{self.name}: batch {batch_idx} could not be read."
        with suppress(Exception):  # odd samples or indices must not hide the error itself
            note = self._in_full(error, batch_idx)
        error.add_note(note)
        note_dead_worker(error, self.workers)

    def _in_full(self, error: BaseException, batch_idx: int) -> str:
        frame = _fetching(error)
        known = dict(frame.f_locals) if frame is not None else {}
        indices = known.get("possibly_batched_index")
        if self.iterable:
            indices = None  # such a loader's sampler gives nothing but `None`
            if not known.get("data") or not _in_collate(error, known["self"].collate_fn):
                known.pop("data", None)
        if indices is None and self.indices is not None:
            indices = self.indices(batch_idx)
        note = f"{self.name}: batch {batch_idx}{_of_samples(indices)} could not be read."
        if isinstance(indices, Sequence) and not len(indices):
            note += " Its batch sampler gave an empty list of indices; a batch has at least one sample."
        elif "data" in known:
            note += f" {explain_samples(known['data'], indices)}"
        elif frame is not None and (sample := _sample_at_fault(error)) is not None:
            note += f" The data set failed at sample {sample}."
        return note

    def ended_by_mistake(self, end: StopIteration, batch_idx: int) -> DataError | None:
        """Return the error to raise if `end` is not the loader's end but comes from the user's code.

        For a map-style data loader only its sampler says that the data ended.
        """
        if self.any_end:
            return None
        if _fetching(end) is None and not any(f.name == "reraise" for f in traceback.extract_tb(end.__traceback__)):
            return None
        self.explain(end, batch_idx)
        return DataError(
            f"{self.name}: a StopIteration was raised while batch {batch_idx} was read. In a data set's __getitem__ or "
            "a collate function it would end the epoch without a word. Is a `next(...)` in it at its end? Raise "
            "IndexError, or give `next` a default."
        )


def explain_empty(loader: Any, name: str) -> str:
    """Say that a loader has no batches, why if that can be seen, and what to do."""
    said = f"{name}: this {type(loader).__name__} has no batches"
    size = batch_size = None
    with suppress(Exception):
        size, batch_size = len(loader.dataset), loader.batch_size
    if size == 0:
        return f"{said}: its data set ({type(loader.dataset).__name__}) is empty. Was it filtered or split to nothing?"
    if size is not None and batch_size is not None and size < batch_size and getattr(loader, "drop_last", False):
        return (
            f"{said}: its data set has {size} samples, fewer than batch_size={batch_size}, and drop_last=True leaves "
            f"an incomplete batch out. Set drop_last=False, or batch_size to at most {size}."
        )
    if size is not None:
        return f"{said}, though its data set has {size} samples: its sampler or batch sampler gives none of them."
    return f"{said}. Give one that has data, or leave it out."


def refuse_empty(plans: Sequence[Any]) -> None:
    """Raise if none of the loaders has a batch; those with a limit of 0 do not count.

    Args:
        plans: `LoaderPlan` objects.

    Raises:
        DataError: Says which loader is empty and why.
    """
    meant = [plan for plan in plans if plan.limit]
    if meant and not any(plan.num_batches for plan in plans):
        raise DataError(explain_empty(meant[0].loader, meant[0].name))


def note_dead_worker(error: BaseException, workers: int = 0) -> None:
    """If `error` means that a worker process died, add a note on why that may be and what to do; once.

    Args:
        error: The exception.
        workers: The loader's number of workers, if known.
    """
    if not has_dead_worker(error) or any(note.startswith(_DIED) for note in getattr(error, "__notes__", ())):
        return
    if not isinstance(error, RuntimeError):
        # Its pipe broke before torch's signal handler told of it: the handler would do so in the middle of clean-up.
        try:
            time.sleep(_UNTIL_TOLD_S)
        except RuntimeError as told:
            error.add_note(str(told))
    fewer = f" (now {workers})" if workers else ""
    error.add_note(
        f"{_DIED} by itself, so there is no traceback. Usual causes: the system killed it because memory ran out (see "
        "`dmesg`; each worker may hold its own copy of the data set), shared memory is too small (`df -h /dev/shm`; "
        "containers: --shm-size), a crash or an exit in native code or in the data set. To find out, run once with "
        f"num_workers=0; to use less memory, take fewer workers{fewer} or a smaller prefetch_factor."
    )


def has_dead_worker(error: BaseException) -> bool:
    """Whether `error` means that a worker died: torch says so, anywhere in the main process, or its pipe broke."""
    if isinstance(error, (EOFError, ConnectionError)):
        return any(frame.f_code.co_name == _RECEIVE for frame in _frames(error))
    return isinstance(error, RuntimeError) and _WORKER_DIED in str(error)


def explain_samples(samples: Any, indices: Any = None) -> str:
    """Say in what the samples of a batch differ, or what cannot be collated.

    Args:
        samples: What was handed to the collate function.
        indices: The indices of the samples, to name them.

    Returns:
        One sentence per place of the samples in which they differ, eight at most.
    """
    if not isinstance(samples, (list, tuple)) or not samples:
        return f"The collate function got {_kind(samples)}."
    names = indices if isinstance(indices, Sequence) and len(indices) == len(samples) else range(len(samples))
    found: dict[str, dict[str, list[Any]]] = {}
    for name, sample in zip(names, samples, strict=True):
        for place, kind in _leaves(sample):
            found.setdefault(place, {}).setdefault(kind, []).append(name)
    parts = []
    for place, kinds in found.items():
        missing = len(samples) - sum(map(len, kinds.values()))
        if len(kinds) == 1 and not missing:
            continue
        told = [f"{kind} in {_some(where)}" for kind, where in list(kinds.items())[:3]]
        if len(kinds) > 3:
            told.append(f"{len(kinds) - 3} other kinds")
        if missing:
            having = {name for where in kinds.values() for name in where}
            told.append(f"nothing in {_some([name for name in names if name not in having])}")
        parts.append(f"{place or 'the sample'} is {', '.join(told)}")
    if not parts:
        alike = ", ".join(f"{place or 'the sample'} is {next(iter(kinds))}" for place, kinds in found.items())
        return f"The collate function failed, though its {len(samples)} samples are alike: {alike}."
    return f"The collate function failed; its {len(samples)} samples differ: {'; '.join(parts[:_MOST])}."


def _some(names: Sequence[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:3])
    if len(names) == 1:
        return f"sample {shown}"
    return f"{len(names)} samples ({shown}{', …' if len(names) > 3 else ''})"


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}{tuple(shape)}" if isinstance(shape, tuple) else type(value).__name__


def _leaves(sample: Any, place: str = "", depth: int = 0) -> Iterable[tuple[str, str]]:
    """Give place and kind of each part of a sample: ``("['image']", "Tensor(3, 8, 8)")``."""
    if isinstance(sample, Mapping) and depth < 4:
        for key, value in list(sample.items())[:32]:
            yield from _leaves(value, f"{place}[{key!r}]", depth + 1)
    elif isinstance(sample, (list, tuple)) and depth < 4:
        yield place, f"{type(sample).__name__} of {len(sample)}"
        for position, value in enumerate(sample[:32]):
            yield from _leaves(value, f"{place}[{position}]", depth + 1)
    else:
        yield place, _kind(sample)


def _frames(error: BaseException) -> Iterable[FrameType]:
    place = error.__traceback__
    while place is not None:
        yield place.tb_frame
        place = place.tb_next


def _fetching(error: BaseException) -> FrameType | None:
    """The frame in which torch's fetcher was turning indices into a batch, in this process."""
    for frame in _frames(error):
        if frame.f_code.co_name == "fetch" and frame.f_globals.get("__name__") == _FETCHER:
            return frame
    return None


def _in_collate(error: BaseException, collate_fn: Any) -> bool:
    code = getattr(collate_fn, "__code__", None)
    return any(frame.f_code is code for frame in _frames(error))


def _sample_at_fault(error: BaseException) -> Any:
    """The index whose sample was being read; `None` if that is not known."""
    for frame in _frames(error):
        if str(frame.f_globals.get("__name__")).startswith("torch.utils.data") and "idx" in frame.f_locals:
            return frame.f_locals["idx"]
    return None


def _of_samples(indices: Any) -> str:
    if indices is None:
        return ""
    if isinstance(indices, (str, Mapping)) or not hasattr(indices, "__len__") or not hasattr(indices, "__getitem__"):
        return f" (sample {indices!r})"
    shown = ", ".join(str(index) for index in indices[:_MOST])
    return f" (samples {shown}{f', … {len(indices)} in all' if len(indices) > _MOST else ''})" if len(indices) else ""

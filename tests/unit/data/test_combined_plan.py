"""Several loaders read together by a plan: batches, ends, and exact resumes at every batch."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from fulmen.data.combined import CombinedPlan
from fulmen.data.rng import main_state, set_main_state
from fulmen.data.sources import loader_plans, set_epoch
from fulmen.errors import ArgumentValueError, DataError
from fulmen.utilities.combined_loader import MODES, CombinedLoader
from tests.unit.data.streams import Augmented, EagerBatches, OwnRandom, Trace, seed, through_file

TOGETHER = [mode for mode in MODES if mode != "sequential"]


class Noisy(IterableDataset[torch.Tensor]):
    """Draws for each item, tells no length."""

    def __init__(self, size: int = 5) -> None:
        self.size = size

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(self.size):
            yield torch.tensor([float(index), torch.rand(()).item(), random.random()])


class Claims(Noisy):
    """Tells a length that it does not have."""

    def __len__(self) -> int:
        return self.size + 2


def shuffled(size: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(Augmented(size), batch_size=3, shuffle=True, **options)


def generator(value: int) -> torch.Generator:
    return torch.Generator().manual_seed(value)


MAKES: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: {"a": shuffled(14), "b": shuffled(8)},
    "own generators": lambda: [shuffled(7, generator=generator(1)), shuffled(13, generator=generator(2))],
    "one generator for both": lambda: (lambda g: [shuffled(7, generator=g), shuffled(13, generator=g)])(generator(1)),
    "own samplers": lambda: {
        "a": [DataLoader(Augmented(14), batch_sampler=EagerBatches(14, generator(4)))],
        "b": DataLoader(Augmented(9), batch_size=2, sampler=OwnRandom(9)),
    },
    "iterable": lambda: {"a": DataLoader(Noisy(5), batch_size=2), "b": shuffled(14)},
    "two iterables": lambda: (DataLoader(Noisy(5), batch_size=2), DataLoader(Noisy(9), batch_size=2)),
    "list": lambda: [[1, 2], shuffled(14)],
    "workers": lambda: {"a": shuffled(20, num_workers=2), "b": shuffled(8, num_workers=2)},
    "persistent workers": lambda: [shuffled(14, num_workers=2, persistent_workers=True), shuffled(7)],
}


def plan_of(value: Any, mode: str, **options: Any) -> CombinedPlan:
    (plan,) = loader_plans(CombinedLoader(value, mode), stage="train", track_workers=True, **options)  # type: ignore[arg-type]  # any mode
    assert isinstance(plan, CombinedPlan)
    return plan


def step(batch: Any, trace: Trace) -> None:
    trace.append((repr(batch), torch.rand(()).item(), random.random()))


def train(
    make: Callable[[], Any],
    mode: str,
    *,
    save: dict[tuple[int, int], Any] | None = None,
    resume: Any = None,
    until: tuple[int, int] = (3, 0),
    **options: Any,
) -> Trace:
    """Three epochs; `save` gets a checkpoint at every batch boundary."""
    seed(1 if resume is None else 77)
    plan = plan_of(make(), mode, **options)
    trace: Trace = []
    first = 0 if resume is None else resume["epoch"]
    for epoch in range(first, until[0]):
        if resume is not None:
            stream = resume["stream"]
            run = plan.start(skip=stream["batches"], stream=stream)
            set_main_state(resume["main"])
            resume = None
        else:
            run = plan.start()
        for batch in run:
            step(batch, trace)
            if save is not None:
                save[epoch, run.batch_idx + 1] = (
                    len(trace),
                    through_file({"epoch": epoch, "stream": run.stream_state(), "main": main_state()}),
                )
        trace.append(torch.rand(()).item())
        run.close()
    plan.close()
    return trace


@pytest.mark.feature("D-02", "C-03")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # the test machine has few cores
@pytest.mark.parametrize("mode", TOGETHER)
@pytest.mark.parametrize(
    ("kind", "by_count"),  # counts and workers have nothing to do with each other
    [(kind, by_count) for kind in MAKES for by_count in (False, True) if not (by_count and "workers" in kind)],
)
def test_resume_at_every_batch_is_exact(kind: str, mode: str, by_count: bool) -> None:
    make = MAKES[kind]
    save: dict[tuple[int, int], Any] = {}
    whole = train(make, mode, save=save, by_count=by_count)
    assert len(save) >= 6
    places = list(save) if "workers" not in kind else [(0, 1), (0, 2), (1, 1), max(key for key in save if key[0] == 0)]
    if kind == "persistent workers" and mode == "min_size":
        places = places[:2]  # workers that go on after an epoch that cut them off: their states are not known then
    for place in places:
        done, checkpoint = save[place]
        again = train(make, mode, resume=checkpoint, by_count=by_count)
        assert again == whole[done:], place


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("mode", TOGETHER)
@pytest.mark.parametrize("kind", ["shuffled", "own generators", "iterable", "two iterables", "list"])
def test_batches_are_those_of_the_loader_itself(kind: str, mode: Any) -> None:
    """The numbers are those of a plain loop over `CombinedLoader`, one pass."""

    def by_hand() -> Trace:
        seed(1)
        trace: Trace = []
        loader = CombinedLoader(MAKES[kind](), mode)
        for batch, _, _ in loader:
            trace.append(repr(batch))
        return trace

    def planned() -> Trace:
        seed(1)
        return [repr(batch) for batch in plan_of(MAKES[kind](), mode).start()]

    assert planned() == by_hand()


class Told(list[int]):
    """A loader with its own length."""


@pytest.mark.feature("D-02", "T-04")
@pytest.mark.parametrize(
    ("lengths", "mode", "limit", "batches"),
    [
        ((2, 5), "min_size", None, 2), ((2, 5), "max_size", None, 5), ((2, 5), "max_size_cycle", None, 5),
        ((2, 5), "max_size_cycle", 3, 3), ((2, 5), "max_size", 1, 1), ((2, 5), "min_size", 4, 2),
        ((2, 6), "max_size_cycle", 0.5, 3), ((2, 6), "min_size", 0.5, 1), ((2, 5), "max_size", 0, 0),
        ((0, 5), "min_size", None, 0), ((0, 5), "max_size", None, 5),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*has 0 length")
def test_how_many_batches(lengths: tuple[int, int], mode: str, limit: Any, batches: int) -> None:
    plan = plan_of([list(range(n)) for n in lengths], mode, limit=limit)
    assert plan.num_batches == batches and plan.has_length
    for _ in range(2):
        run = plan.start()
        got = list(run)
        assert len(got) == batches
        assert run.is_last is bool(batches)


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    ("make", "mode", "flags"),
    [
        (lambda: [DataLoader(Noisy(2), None), [1, 2, 3]], "max_size_cycle", [False, False, True]),
        (lambda: [DataLoader(Noisy(2), None), [1, 2, 3]], "max_size", [False, False, True]),
        (lambda: [DataLoader(Noisy(2), None), [1, 2, 3]], "min_size", [False, True]),
        (lambda: [DataLoader(Claims(1), None), [1, 2]], "min_size", [True]),
        (lambda: [DataLoader(Claims(2), None), DataLoader(Claims(1), None)], "max_size", [False, True]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*W107", "ignore:Length of IterableDataset")
def test_the_last_batch_is_known_though_lengths_are_not(make: Any, mode: str, flags: list[bool]) -> None:
    run = plan_of(make(), mode).start()
    assert [run.is_last for _ in run] == flags


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("mode", TOGETHER)
@pytest.mark.parametrize("skip", range(7))
def test_skipping_without_a_stream_goes_to_the_same_batch(mode: str, skip: int) -> None:
    value = [[10, 11, 12], list(range(6)), [20, 21]]
    whole = list(plan_of(value, mode).start())
    assert list(plan_of(value, mode).start(skip=skip)) == whole[skip:]
    endless = [DataLoader(Noisy(3), None, collate_fn=lambda item: item[0].item()), list(range(6))]
    whole = list(plan_of(endless, mode).start())
    assert list(plan_of(endless, mode).start(skip=skip)) == whole[skip:]


@pytest.mark.feature("T-04")
def test_a_limit_set_during_an_epoch() -> None:
    plan = plan_of([list(range(6)), list(range(3))], "max_size_cycle")
    run = plan.start()
    next(run)
    plan.relimit(2)
    assert not run.is_last and next(run) == [1, 1] and run.is_last
    assert list(run) == []
    plan = plan_of([DataLoader(Noisy(6), None), list(range(3))], "max_size_cycle")
    run = plan.start()
    next(run)
    plan.relimit(1)
    assert run.is_last and list(run) == []


@pytest.mark.feature("D-02")
def test_sizes_are_those_of_the_samplers() -> None:
    run = plan_of([DataLoader(range(7), 3), DataLoader(range(7), 3)], "min_size").start()
    assert [run.indices_count() for _ in run] == [3, 3, 1]
    run = plan_of([DataLoader(range(7), 3), DataLoader(range(7), 2)], "min_size").start()
    next(run)
    assert run.indices_count() is None


@pytest.mark.feature("D-03")
def test_set_epoch_reaches_each_loader() -> None:
    class Data(list[int]):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    data = [Data([1, 2]), Data([3])]
    set_epoch(CombinedLoader({"a": DataLoader(data[0]), "b": [DataLoader(data[1])]}), 4)
    assert [item.epoch for item in data] == [4, 4]


def workers_of(run: Any) -> list[Any]:
    return list(run._setup.iterator._workers)


@pytest.mark.feature("D-10")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("mode", TOGETHER)
def test_runs_go_by_reference_count_and_workers_end(mode: str) -> None:
    plan = plan_of([shuffled(6, num_workers=1), shuffled(9, num_workers=1)], mode)
    gc.collect()
    gc.disable()
    try:
        run = plan.start()
        next(run)
        workers = [worker for part in run.runs for worker in workers_of(part)]
        assert len(workers) == 2
        gone = weakref.ref(run)
        plan.close()
        del run
        assert gone() is None
        assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()


def test_plans_travel_without_their_runs() -> None:
    plan = plan_of([[1, 2], [3]], "max_size")
    run = plan.start()
    next(run)
    assert list(pickle.loads(pickle.dumps(plan)).start()) == [[1, 3], [2, None]]
    assert copy.deepcopy(run).batch_idx == 0
    assert repr(plan) == "CombinedPlan(train_dataloader: 2 loaders, num_batches=2)"


@pytest.mark.feature("D-02", "C-03")
def test_streams_of_other_loaders_are_refused() -> None:
    two, three = plan_of([[1, 2], [3, 4]], "min_size"), plan_of([[1, 2], [3, 4], [5]], "min_size")
    (one,) = loader_plans([1, 2], stage="train")
    streams = []
    for plan in (one, two):
        run = plan.start()
        next(run)
        streams.append(run.stream_state())
    with pytest.raises(DataError, match="written within an epoch over one loader, and now there are 2"):
        two.start(1, streams[0])
    with pytest.raises(
        DataError, match=r"over 2 loaders, and now there are 3, read together. Give the loaders of then"
    ):
        three.start(1, streams[1])
    with pytest.raises(DataError, match="over 2 loaders that were read together, and now there is one"):
        one.start(1, streams[1])
    with pytest.raises(ArgumentValueError, match="skip=2 is not the number of batches"):
        two.start(2, streams[1])

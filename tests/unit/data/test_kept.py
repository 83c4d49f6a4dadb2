"""Kept workers begin each epoch as new ones would: same numbers, same data set, same start function."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from fulmen.data import indexed, kept, waiting
from fulmen.data.plan import LoaderPlan
from tests.unit.data.streams import Augmented, EagerBatches, seed, through_file

pytestmark = pytest.mark.feature("D-06")


class Stateful(Dataset[Any]):
    """Tells all that a worker may have kept from the epoch before, and draws from every generator."""

    def __init__(self) -> None:
        self.epoch = 0
        self.reads = 0
        self.rng = random.Random(3)
        self.greeting = "not begun"

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None and info.dataset is self
        self.reads += 1
        drawn = [torch.rand(()).item(), random.random(), float(np.random.rand()), self.rng.random()]
        return torch.tensor(
            [index, self.epoch, self.reads, self.greeting == f"worker {info.id}", info.seed % 997, *drawn]
        )


def greet(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.dataset.greeting == "not begun"
    info.dataset.greeting = f"worker {worker_id}"


class Scaled:
    def __init__(self) -> None:
        self.factor = 1

    def __call__(self, samples: Any) -> Any:
        return self.factor * torch.stack(samples).double()


def make(method: str, **options: Any) -> DataLoader[Any]:
    return DataLoader(
        Stateful(),
        **{"batch_size": 2, "shuffle": True, **options},
        num_workers=2,
        worker_init_fn=greet,
        multiprocessing_context=method,
        collate_fn=Scaled(),
    )


def epochs(start: Callable[[], Iterator[Any]], loader: DataLoader[Any], count: int = 4) -> Iterator[Any]:
    """Batches and draws of the main process; between epochs data set and collate function change."""
    for epoch in range(count):
        loader.dataset.epoch, loader.collate_fn.factor = epoch, epoch + 1  # type: ignore[attr-defined]
        yield [(batch.tolist(), torch.rand(()).item()) for batch in start()]


@pytest.fixture
def _keep_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep forked workers too, however short their start: that is quicker to test."""
    monkeypatch.setattr(waiting, "LEAST_START_S", 0.0)
    monkeypatch.setattr(waiting, "START_SHARE", 0.0)
    monkeypatch.setattr(indexed, "can_keep", lambda loader: True)


def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that gets an entry for each iterator that starts workers."""
    made: list[Any] = []
    real = DataLoader._get_iterator

    def get_iterator(self: Any) -> Any:
        made.append(self)
        return real(self)

    monkeypatch.setattr(DataLoader, "_get_iterator", get_iterator)
    return made


KINDS: dict[str, dict[str, Any]] = {
    "shuffle": {},
    "generator": {"generator": torch.Generator()},
    "no batching": {"batch_size": None},
    "own batches": {"batch_size": 1, "shuffle": False, "batch_sampler": EagerBatches(11)},
    "fewer batches than workers": {"batch_size": 20},
}


def options(kind: str) -> dict[str, Any]:
    given = dict(KINDS[kind])
    if "generator" in given:
        given["generator"] = torch.Generator().manual_seed(4)
    return given


def compare(method: str, given: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch, *, track: bool) -> None:
    seed(1)
    plain = make(method, **given())
    expected = list(epochs(lambda: iter(plain), plain))
    seed(1)
    loader = make(method, **given())
    plan = LoaderPlan(loader, track_workers=track)
    made = started(monkeypatch)
    try:
        assert list(epochs(plan.start, loader)) == expected
        assert len(made) == 2, "the first epoch measures, the second starts those that are kept"
        assert loader not in made
    finally:
        plan.close()


@pytest.mark.usefixtures("_keep_at_once")
@pytest.mark.parametrize("track", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_new_workers(kind: str, track: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def given() -> dict[str, Any]:
        found = options(kind)
        if kind == "own batches":
            found = {"batch_sampler": EagerBatches(11), "shuffle": None, "batch_size": 1}
        if found.get("batch_size", 0) is None:
            monkeypatch.setattr(Scaled, "__call__", lambda self, sample: self.factor * sample.double())
        return found

    compare("fork", given, monkeypatch, track=track)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_are_kept(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "LEAST_START_S", 0.01)
    monkeypatch.setattr(waiting, "START_SHARE", 0.0)
    with caplog.at_level(logging.INFO, "fulmen"):
        compare(method, dict, monkeypatch, track=True)
    assert "starting its 2 workers took" in caplog.text and "They are kept from now on" in caplog.text


@pytest.mark.usefixtures("_keep_at_once")
def test_an_epoch_that_was_cut_off_leaves_nothing_behind() -> None:
    def rows(start: Callable[[], Iterator[Any]], close: Callable[[Any], None]) -> Iterator[Any]:
        seed(1)
        for _ in range(4):
            run = start()
            yield [next(run).tolist() for _ in range(2)]
            close(run)

    loader = make("fork")
    plan = LoaderPlan(loader, limit=2, track_workers=True)
    plain = make("fork")
    expected = list(rows(lambda: iter(plain), lambda run: run._shutdown_workers()))
    try:
        assert list(rows(plan.start, lambda run: run.close())) == expected
    finally:
        plan.close()


@pytest.mark.usefixtures("_keep_at_once")
def test_resume_from_an_epoch_of_kept_workers() -> None:
    def batches(plan: LoaderPlan, count: int = 4, run: Any = None) -> Iterator[Any]:
        for _ in range(count):
            run = plan.start() if run is None else run
            yield from ([batch.tolist(), torch.rand(()).item()] for batch in run)
            run = None

    def new() -> LoaderPlan:
        return LoaderPlan(DataLoader(Augmented(10), batch_size=2, shuffle=True, num_workers=2), track_workers=True)

    seed(1)
    plan = new()
    whole = list(batches(plan))
    plan.close()
    seed(1)
    plan = new()
    before = list(batches(plan, 2))
    run = plan.start()
    before += [[next(run).tolist(), torch.rand(()).item()] for _ in range(3)]
    state, main = through_file(run.stream_state()), torch.get_rng_state()
    plan.close()
    seed(77)
    plan = new()
    run = plan.start(skip=3, stream=state)
    torch.set_rng_state(main)
    assert before + list(batches(plan, 2, run)) == whole
    plan.close()


@pytest.mark.usefixtures("_keep_at_once")
def test_changed_loaders_get_new_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Augmented(6), batch_size=2, num_workers=1)
    plan = LoaderPlan(loader)
    made = started(monkeypatch)
    try:
        for change in (
            lambda: None,
            lambda: None,
            lambda: setattr(loader, "worker_init_fn", print_nothing),
            unpicklable,
        ):
            change()
            if change is unpicklable:
                loader.dataset.lock = threading.Lock()  # type: ignore[attr-defined]
            assert len(list(plan.start())) == 3
    finally:
        plan.close()
    assert len(made) == 4


def print_nothing(worker_id: int) -> None:
    pass


def unpicklable() -> None:
    pass


def test_what_can_be_kept() -> None:
    assert kept.can_keep(make("spawn")) and kept.can_keep(make("forkserver"))
    assert not kept.can_keep(make("fork"))
    assert not kept.can_keep(DataLoader(range(3), num_workers=1))
    assert not kept.can_keep(DataLoader(range(3), num_workers=1, multiprocessing_context="spawn", in_order=False))
    locked = Stateful()
    locked.lock = threading.Lock()  # type: ignore[attr-defined]
    assert not kept.can_keep(DataLoader(locked, num_workers=1, multiprocessing_context="spawn"))
    large = Stateful()
    large.rows = np.zeros(kept.MOST_BYTES, dtype=np.uint8)  # type: ignore[attr-defined]
    assert not kept.can_keep(DataLoader(large, num_workers=1, multiprocessing_context="spawn"))

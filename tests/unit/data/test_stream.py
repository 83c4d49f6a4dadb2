"""Numbers are a plain loader's own; a resume goes on with exactly the ones that were left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from fulmen.data.plan import LoaderPlan
from tests.unit.data.streams import Augmented, EagerBatches, OwnRandom, SharedRandom, by_hand, planned

SIZE = 14
WEIGHTS = [float(i + 1) for i in range(SIZE)]


def generator(value: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(value)


def loader(**options: Any) -> DataLoader:
    return DataLoader(Augmented(SIZE), **{"batch_size": 4, **options})


def eager(own: bool) -> DataLoader:
    return DataLoader(Augmented(SIZE), batch_sampler=EagerBatches(SIZE, generator() if own else None))


def shared() -> DataLoader:
    sampler = OwnRandom(SIZE)
    return DataLoader(SharedRandom(sampler), batch_size=4, sampler=sampler)


LOADERS: dict[str, Callable[[], DataLoader]] = {
    "sequential": loader,
    "shuffle": lambda: loader(shuffle=True),
    "shuffle, drop_last": lambda: loader(shuffle=True, drop_last=True),
    "shuffle, generator": lambda: loader(shuffle=True, generator=generator()),
    "shuffle, generator, full batches": lambda: loader(batch_size=7, shuffle=True, generator=generator()),
    "random sampler": lambda: loader(sampler=RandomSampler(range(SIZE))),
    "random sampler, generator": lambda: loader(sampler=RandomSampler(range(SIZE), generator=generator())),
    "replacement": lambda: loader(sampler=RandomSampler(range(SIZE), True, 50, generator=generator())),
    "subset": lambda: loader(sampler=SubsetRandomSampler(range(3, 13))),
    "weighted": lambda: loader(sampler=WeightedRandomSampler(WEIGHTS, 18)),
    "weighted, generator": lambda: loader(sampler=WeightedRandomSampler(WEIGHTS, 18, generator=generator())),
    "own random": lambda: loader(sampler=OwnRandom(SIZE)),
    "batch sampler": lambda: DataLoader(
        Augmented(SIZE), batch_sampler=BatchSampler(RandomSampler(range(SIZE)), 5, False)
    ),
    "batch sampler, own random": lambda: DataLoader(
        Augmented(SIZE), batch_sampler=BatchSampler(OwnRandom(SIZE), 5, False)
    ),
    "generator shared with the data set": shared,
    "own batch sampler": lambda: eager(False),
    "own batch sampler, generator": lambda: eager(True),
    "no batching": lambda: DataLoader(Augmented(6), batch_size=None, shuffle=True),
    "no batching, own": lambda: DataLoader(Augmented(6), batch_size=None, sampler=OwnRandom(6)),
    "no batching, index lists": lambda: DataLoader(range(6), batch_size=None, collate_fn=torch.tensor, shuffle=True),
}


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("kind", LOADERS)
def test_plain_run_draws_what_a_for_loop_draws(kind: str) -> None:
    trace, _, plan = planned(LOADERS[kind])
    assert trace == by_hand(LOADERS[kind])
    assert plan.num_batches == len(LOADERS[kind]())


@pytest.mark.feature("C-02", "C-03")
@pytest.mark.parametrize("kind", LOADERS)
def test_resume_without_workers(kind: str) -> None:
    full = by_hand(LOADERS[kind])
    batches = len(LOADERS[kind]())
    for epoch, done in [(0, 0), (0, 1), (1, 0), (1, batches - 1), (1, batches)]:
        before, saved, _ = planned(LOADERS[kind], save_at=(epoch, done))
        assert saved is not None
        after, _, _ = planned(LOADERS[kind], resume=saved)
        assert before + after == full, (epoch, done)


@pytest.mark.feature("C-03")
@pytest.mark.parametrize("kind", ["shuffle, generator, full batches", "own batch sampler, generator", "weighted"])
def test_resume_from_a_save_after_the_epoch_was_closed(kind: str) -> None:
    full = by_hand(LOADERS[kind])
    before, saved, _ = planned(LOADERS[kind], save_at=(0, len(LOADERS[kind]())), close_first=True)
    assert saved is not None
    assert before + planned(LOADERS[kind], resume=saved)[0] == full


@pytest.mark.feature("C-03")
def test_resume_of_a_resumed_run() -> None:
    full = by_hand(LOADERS["replacement"])
    one, saved, _ = planned(LOADERS["replacement"], save_at=(1, 2))
    two, saved, _ = planned(LOADERS["replacement"], resume=saved, save_at=(1, 5))
    three, saved, _ = planned(LOADERS["replacement"], resume=saved, save_at=(2, 1))
    four, _, _ = planned(LOADERS["replacement"], resume=saved)
    assert one + two + three + four == full


@pytest.mark.feature("D-02")
def test_by_count_leaves_out_the_draw_after_the_last_index() -> None:
    """So does a loop that counts the batches itself."""

    def make() -> DataLoader:
        return loader(batch_size=7, shuffle=True, generator=generator())

    counted: list[Any] = []
    data = make()
    for _ in range(3):
        batches = iter(data)
        counted += [next(batches)[:, 0].tolist() for _ in range(2)]
    plan = LoaderPlan(make(), by_count=True)
    planned_order = [batch[:, 0].tolist() for _ in range(3) for batch in plan.start()]
    assert planned_order == counted
    assert planned_order != [batch[:, 0].tolist() for data in [make()] for _ in range(3) for batch in data]


WORKER_LOADERS: dict[str, Callable[[], DataLoader]] = {
    "shuffle": lambda: loader(batch_size=2, shuffle=True, num_workers=2),
    "persistent": lambda: loader(batch_size=2, shuffle=True, num_workers=2, persistent_workers=True),
    "persistent, generator": lambda: loader(
        batch_size=2, shuffle=True, num_workers=2, persistent_workers=True, generator=generator()
    ),
    "three workers": lambda: loader(batch_size=2, shuffle=True, num_workers=3),
    "own batch sampler": lambda: DataLoader(
        Augmented(SIZE), batch_sampler=EagerBatches(SIZE, generator()), num_workers=2, persistent_workers=True
    ),
    "no batching": lambda: DataLoader(Augmented(7), batch_size=None, shuffle=True, num_workers=2),
}
few_cores = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # the test machine has few


@few_cores
@pytest.mark.feature("C-02", "C-03")
@pytest.mark.parametrize("kind", WORKER_LOADERS)
def test_resume_with_workers(kind: str) -> None:
    make = WORKER_LOADERS[kind]
    full = by_hand(make)
    batches = len(make())
    for epoch, done in [(0, 1), (1, batches - 1), (0, batches)]:
        before, saved, plan = planned(make, save_at=(epoch, done))
        plan.close()
        assert saved is not None
        after, _, plan = planned(make, resume=saved)
        plan.close()
        assert before + after == full, (epoch, done)

from __future__ import annotations

import copy
import gc
import math
import multiprocessing
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from fulmen.data.plan import LoaderPlan
from fulmen.data.rng import find_generators, generator_states, main_state, set_generator_states, set_main_state
from fulmen.data.runs import LookaheadRun, TrackedRun
from fulmen.errors import ArgumentTypeError, ArgumentValueError, DataError, FulmenWarning
from tests.ids import plain
from tests.unit.data.streams import Augmented, EagerBatches, checkpoint, planned, seed, through_file


class Numbers(IterableDataset):
    """Counts up; may claim a length."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[float]:
        for i in range(self.size):
            yield i + torch.rand(()).item() / 2


class Claims(Numbers):
    def __init__(self, size: int, claimed: int) -> None:
        super().__init__(size)
        self.claimed = claimed

    def __len__(self) -> int:
        return self.claimed


class Stream:
    """An iterable without length that counts how often it was begun."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return iter(range(self.size))


class Sized(Stream):
    def __init__(self, size: int, length: Any) -> None:
        super().__init__(size)
        self.length = length

    def __len__(self) -> int:
        if isinstance(self.length, Exception):
            raise self.length
        return self.length


def marks(plan: LoaderPlan) -> list[tuple[Any, int, bool]]:
    run = plan.start()
    return [(batch, run.batch_idx, run.is_last) for batch in run]


# ------------------------------------------------------------------------------------------------------------ lengths
@pytest.mark.feature("T-04")
@pytest.mark.parametrize(
    ("length", "limit", "expected"),
    [
        (10, None, 10),
        (10, 1.0, 10),
        (10, 0.25, 2),
        (10, 0.29, 2),
        (10, 0.0, 0),
        (10, 0, 0),
        (10, 3, 3),
        (10, 1, 1),
        (10, 99, 10),
        (3, 0.5, 1),
        (None, None, math.inf),
        (None, 1.0, math.inf),
        (None, 4, 4),
        (None, 0, 0),
        (OverflowError(), None, math.inf),
        (NotImplementedError(), 2, 2),
        (1.5, None, math.inf),
    ],
)
def test_number_of_batches(length: Any, limit: Any, expected: float) -> None:
    loader = Stream(10) if length is None else Sized(10, length)
    plan = LoaderPlan(loader, limit=limit)
    assert plan.num_batches == expected
    assert plan.has_length == isinstance(length, int)
    assert plan.loader is loader
    if expected != math.inf:
        assert len(marks(plan)) == expected


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(
    ("length", "limit", "error", "words"),
    [
        (10, 0.05, DataError, r"limit_val_batches=0.05 of the 10 batches of val.* at least limit_val_batches=0.1\b"),
        (3, 0.2, DataError, r"at least limit_val_batches=0.33"),
        (None, 0.5, DataError, "limit_val_batches=0.5 asks for a share of val_dataloader.*not known.*int"),
        (None, 0.0, DataError, "share of val_dataloader"),
        (10, "3", ArgumentTypeError, "limit_val_batches='3' is a str"),
        (10, True, ArgumentTypeError, "limit_val_batches=True is a bool"),
        (10, -1, ArgumentValueError, "limit_val_batches=-1 is out of range"),
        (10, -0.5, ArgumentValueError, "limit_val_batches=-0.5"),
        (10, 1.5, ArgumentValueError, "for a number of batches write an int"),
        (10, float("nan"), ArgumentValueError, "nan"),
        (-3, None, DataError, "__len__ of Sized returned a negative number"),
    ],
)
def test_wrong_limits(length: Any, limit: Any, error: type[Exception], words: str) -> None:
    loader = Stream(10) if length is None else Sized(10, length)
    with pytest.raises(error, match=words):
        LoaderPlan(loader, limit=limit, name="val_dataloader", limit_name="limit_val_batches")


def test_the_share_that_the_error_names_is_enough() -> None:
    for length in range(2, 200):
        with pytest.raises(DataError) as info:
            LoaderPlan(range(length), limit=1e-9)
        share = float(str(info.value).split("at least limit=")[1].split(",")[0])
        assert LoaderPlan(range(length), limit=share).num_batches == 1


def test_errors_of_len_that_are_the_users_pass_through() -> None:
    with pytest.raises(ValueError, match="mine") as info:
        LoaderPlan(Sized(3, ValueError("mine")))
    assert type(info.value) is ValueError


def test_zero_length_warns_once_per_loader() -> None:
    with pytest.warns(FulmenWarning, match=r"val_dataloader: this list has 0 length.*\[FULMEN-W101\]"):
        plan = LoaderPlan([], name="val_dataloader")
    assert plan.num_batches == 0
    assert marks(plan) == []
    LoaderPlan([], name="val_dataloader")


# --------------------------------------------------------------------------------------------------------------- runs
@pytest.mark.feature("D-02")
@pytest.mark.parametrize("by_count", [False, True])
@pytest.mark.parametrize("loader", [[5, 6, 7], Stream(3), DataLoader([5, 6, 7], batch_size=None), (5, 6, 7)])
def test_last_batch_is_known(loader: Any, by_count: bool) -> None:
    found = marks(LoaderPlan(loader, by_count=by_count))
    assert [(index, last) for _, index, last in found] == [(0, False), (1, False), (2, True)]
    assert [int(batch) for batch, _, _ in found] == ([0, 1, 2] if isinstance(loader, Stream) else [5, 6, 7])


@pytest.mark.feature("D-02", "T-04")
def test_limit_on_an_unknown_length() -> None:
    assert marks(LoaderPlan(Stream(5), limit=2)) == [(0, 0, False), (1, 1, True)]
    assert marks(LoaderPlan(Stream(2), limit=5)) == [(0, 0, False), (1, 1, True)]
    trusting = LoaderPlan(Stream(2), limit=5, by_count=True).start()
    assert [trusting.is_last for _ in trusting] == [False, False]
    assert trusting.exhausted


@pytest.mark.feature("D-02")
def test_a_loader_is_begun_once_per_epoch_at_start() -> None:
    loader = Stream(3)
    plan = LoaderPlan(loader)
    assert loader.begun == 0
    run = plan.start()
    assert loader.begun == 1
    list(run)
    assert loader.begun == 1
    list(plan.start())
    assert loader.begun == 2


@pytest.mark.feature("D-02", "D-08")
def test_iterable_data_set_shorter_than_its_length() -> None:
    plan = LoaderPlan(DataLoader(Claims(7, claimed=10), batch_size=2), name="train_dataloader")
    assert plan.num_batches == 5
    run = plan.start()
    with pytest.warns(FulmenWarning, match=r"ended after 4 batches although len\(\) of the loader says 5.*W107"):
        lasts = [run.is_last for _ in run]
    assert lasts == [False, False, False, True]
    assert run.exhausted


def test_iterable_data_set_by_count_is_not_read_ahead() -> None:
    run = LoaderPlan(DataLoader(Claims(6, claimed=6), batch_size=2), by_count=True).start()
    assert not isinstance(run, LookaheadRun)
    assert [run.is_last for _ in run] == [False, False, True]


def test_iterable_data_set_longer_than_its_length_ends_by_count() -> None:
    assert [last for _, _, last in marks(LoaderPlan(DataLoader(Claims(9, claimed=4), batch_size=2)))] == [False, True]


def test_a_sized_loader_that_ends_early_says_so() -> None:
    run = LoaderPlan(Sized(2, 3)).start()
    with pytest.warns(FulmenWarning, match="W107"):
        assert [run.is_last for _ in run] == [False, False]
    assert run.exhausted


@pytest.mark.feature("D-02")
def test_empty_stream() -> None:
    plan = LoaderPlan(Stream(0), name="val_dataloader")
    with pytest.warns(FulmenWarning, match="val_dataloader: the data ended before the first batch.*W109"):
        run = plan.start()
    assert list(run) == [] and run.exhausted and not run.is_last
    assert list(plan.start()) == []  # told once


def test_closing_ends_the_run() -> None:
    plan = LoaderPlan([1, 2, 3])
    run = plan.start()
    next(run)
    run.close()
    assert list(run) == [] and run.batch_idx == 0
    ahead = LoaderPlan(Stream(3)).start()
    ahead.close()
    assert list(ahead) == []


@pytest.mark.feature("D-02")
def test_the_users_loader_is_iterated_itself_and_left_as_it_was() -> None:
    loader = DataLoader(Augmented(6), batch_size=2, shuffle=True, num_workers=1, persistent_workers=True)
    before = dict(loader.__dict__)
    plan = LoaderPlan(loader)
    list(plan.start())
    assert loader.__dict__.pop("_iterator") is not None  # the user's own workers persist in the user's own loader
    assert loader.__dict__ == {key: value for key, value in before.items() if key != "_iterator"}
    loader._iterator = None


@pytest.mark.feature("D-10")
def test_workers_end_with_the_epoch() -> None:
    gc.collect()
    before = set(multiprocessing.active_children())
    plan = LoaderPlan(DataLoader(Augmented(8), batch_size=2, num_workers=1), limit=2)
    assert set(multiprocessing.active_children()) == before  # not before the first use
    run = plan.start()
    assert len(set(multiprocessing.active_children()) - before) == 1
    list(run)
    assert set(multiprocessing.active_children()) == before


class Broken(Augmented):
    def __getitem__(self, index: int) -> torch.Tensor:
        raise OSError(f"cannot read {index}")


@pytest.mark.feature("D-10")
def test_workers_end_when_a_run_is_closed_though_an_exception_remembers_them() -> None:
    gc.collect()
    before = set(multiprocessing.active_children())
    run = LoaderPlan(DataLoader(Broken(8), batch_size=2, num_workers=1)).start()
    with pytest.raises(OSError, match="cannot read 0") as info:
        next(run)
    run.close()
    assert set(multiprocessing.active_children()) == before
    assert info.value.__traceback__ is not None


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("skip", [0, 2])
def test_indices_count(drop_last: bool, skip: int) -> None:
    plan = LoaderPlan(DataLoader(Augmented(14), batch_size=4, drop_last=drop_last))
    run = plan.start(skip)
    assert run.indices_count() is None or skip
    assert [run.indices_count() for _ in run] == ([4, 4, 4] if drop_last else [4, 4, 4, 2])[skip:]


def test_indices_count_of_other_loaders() -> None:
    own = LoaderPlan(DataLoader(Augmented(14), batch_sampler=EagerBatches(14))).start()
    assert [own.indices_count() for _ in own] == [3, 1, 5, 5]
    workers = LoaderPlan(DataLoader(Augmented(14), batch_sampler=EagerBatches(14), num_workers=1)).start()
    assert [workers.indices_count() for _ in workers] == [3, 1, 5, 5]
    for loader in (DataLoader([1, 2], batch_size=None), [1, 2], DataLoader(Numbers(4), batch_size=2)):
        run = LoaderPlan(loader).start()
        assert [run.indices_count() for _ in run] == [None, None]


def test_plans_and_runs_travel() -> None:
    plan = LoaderPlan(DataLoader(Augmented(6), batch_size=2), limit=2)
    run = plan.start()
    next(run)
    for twin in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert (twin.num_batches, twin.name, len(list(twin.start()))) == (2, "dataloader", 2)
    closed = pickle.loads(pickle.dumps(run))
    assert closed.batch_idx == 0 and list(closed) == []
    assert len(list(run)) == 1  # the original goes on


@pytest.mark.parametrize(
    ("skip", "error", "words"),
    [
        (-1, ArgumentValueError, "skip=-1; give at least 0"),
        (1.0, ArgumentTypeError, "skip=1.0 is a float"),
        (True, ArgumentTypeError, "skip=True is a bool"),
    ],
)
def test_wrong_skip(skip: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        LoaderPlan([1, 2]).start(skip)


def test_skip_must_be_that_of_the_stream() -> None:
    plan = LoaderPlan([1, 2, 3])
    run = plan.start()
    next(run)
    with pytest.raises(ArgumentValueError, match="skip=2; give the stream's own number, 1"):
        plan.start(2, run.stream_state())


# -------------------------------------------------------------------------------------------------------------- resume
@pytest.mark.feature("C-03")
@pytest.mark.parametrize("sampler", ["shuffle", "own"])
def test_skipped_samples_are_not_read(sampler: str) -> None:
    data = Augmented(14)
    options: dict[str, Any] = {"shuffle": True, "batch_size": 4}
    loader = DataLoader(data, **options if sampler == "shuffle" else {"batch_sampler": EagerBatches(14)})
    run = LoaderPlan(loader).start(skip=3)
    assert data.read == []
    rest = list(run)
    assert len(rest) == 1 and len(data.read) == len(rest[0])
    assert run.batch_idx == 3 and run.is_last


class Built(DataLoader):
    """A loader with a constructor of its own, which a copy must not need."""

    def __init__(self, mark: str) -> None:
        super().__init__(Augmented(8), batch_size=2)
        self.mark = mark


def test_subclass_with_another_constructor() -> None:
    loader = Built("x")
    assert [batch[0, 0].item() for batch in LoaderPlan(loader).start(skip=2)] == [4.0, 6.0]


class Doubled(DataLoader):
    """A loader with an iteration of its own, of which nothing may be left out."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch * 2


@pytest.mark.feature("C-03")
@pytest.mark.parametrize("loader", [Doubled(range(6), batch_size=1), Stream(6), list(range(6))], ids=plain)
def test_other_iterables_are_read_and_dropped(loader: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="fulmen.data.plan")
    plan = LoaderPlan(loader)
    full = [int(batch) for batch in plan.start()]
    run = plan.start()
    for _ in range(4):
        next(run)
    state = through_file(run.stream_state())
    run = LoaderPlan(loader).start(skip=4, stream=state)
    assert [int(batch) for batch in run] == full[4:]
    assert run.batch_idx == 5 and run.is_last
    assert caplog.messages == ["dataloader cannot skip by index: reading and dropping the first 4 batches."]


@pytest.mark.feature("C-03")
@pytest.mark.parametrize("done", [0, 1, 3])
def test_resume_with_look_ahead(done: int) -> None:
    """The batch read ahead was made before the step's draws; it is made so again."""

    def make() -> DataLoader:
        return DataLoader(Numbers(9), batch_size=2)

    def train(run: Any, most: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < most and (batch := next(run, None)) is not None:
            found.append((batch.tolist(), torch.rand(()).item()))
        return found

    seed(1)
    full = train(LoaderPlan(make(), track_workers=True).start(), 9)
    assert len(full) == 5
    seed(1)
    run = LoaderPlan(make(), track_workers=True).start()
    before = train(run, done)
    saved = checkpoint(0, run)
    seed(99)
    run = LoaderPlan(make(), track_workers=True).start(done, saved["stream"])
    ahead_is_exact = done == 0  # batches that were dropped drew from a process whose steps are not repeated
    set_main_state(saved["main"])
    after = train(run, 9)
    found = before + after
    assert [value for _, value in found] == [value for _, value in full] or not ahead_is_exact
    assert [[int(x) for x in batch] for batch, _ in found] == [[int(x) for x in batch] for batch, _ in full]
    assert found[done][0] == full[done][0]


class DrawsOrder(Stream):
    """An iterable without indices that draws its order at the first batch."""

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(self.size).tolist()


@pytest.mark.feature("C-03")
@pytest.mark.parametrize("make", [lambda: DrawsOrder(9), lambda: DataLoader(range(9), batch_size=2, shuffle=True)])
def test_resume_goes_on_where_hooks_draw_before_the_first_batch(make: Any) -> None:
    """The sampler draws its seed at the first batch, after what hooks drew in between."""

    def train(plan: LoaderPlan, most: int) -> tuple[list[Any], dict[str, Any]]:
        run = plan.start()
        torch.rand(3)
        found = []
        for batch in run:
            found.append(str(batch))
            if len(found) == most:
                break
        return found, checkpoint(0, run)

    # By count, an iterable without length is not read ahead either, so its first batch comes after the hooks.
    options: dict[str, Any] = {"by_count": True, "limit": 4}
    seed(1)
    full, _ = train(LoaderPlan(make(), **options), 99)
    seed(1)
    before, saved = train(LoaderPlan(make(), **options), 2)
    run = LoaderPlan(make(), **options).start(2, saved["stream"])
    set_main_state(saved["main"])
    assert before + [str(batch) for batch in run] == full


@pytest.mark.feature("C-03")
@pytest.mark.parametrize(("workers", "then"), [(0, 1), (1, 0)])
def test_resume_with_another_number_of_workers_keeps_the_order(workers: int, then: int) -> None:
    def make(count: int) -> DataLoader:
        return DataLoader(Augmented(14), batch_size=3, shuffle=True, num_workers=count)

    full, _, _ = planned(lambda: make(workers), epochs=1)
    before, saved, _ = planned(lambda: make(workers), epochs=1, save_at=(0, 2))
    if then:
        with pytest.warns(FulmenWarning, match=r"order of samples goes on exactly.*num_workers=0, not 1.*W106"):
            after, _, _ = planned(lambda: make(then), epochs=1, resume=saved)
    else:
        after, _, _ = planned(lambda: make(then), epochs=1, resume=saved)

    def order(trace: list[Any]) -> list[Any]:
        return [[row[0] for row in entry[0]] for entry in trace if isinstance(entry, tuple)]

    assert order(before + after) == order(full)


@pytest.mark.feature("C-03")
def test_worker_states_that_were_not_tracked_are_missed() -> None:
    def make() -> DataLoader:
        return DataLoader(Augmented(8), batch_size=2, num_workers=1)

    run = LoaderPlan(make()).start()
    assert not isinstance(run, TrackedRun)
    next(run)
    with pytest.warns(FulmenWarning, match="holds no states of the loader's workers"):
        rest = list(LoaderPlan(make()).start(1, run.stream_state()))
    assert [batch[0, 0].item() for batch in rest] == [2.0, 4.0, 6.0]


def test_a_user_init_function_still_runs_before_the_kept_state() -> None:
    def make() -> DataLoader:
        return DataLoader(
            Augmented(8), batch_size=2, num_workers=1, worker_init_fn=lambda worker_id: torch.manual_seed(worker_id)
        )

    full, _, _ = planned(make, epochs=2)
    before, saved, _ = planned(make, epochs=2, save_at=(0, 2))
    after, _, plan = planned(make, epochs=2, resume=saved)
    assert before + after == full
    assert plan.loader.worker_init_fn.__name__ == "<lambda>"


@pytest.mark.slow
def test_spawned_workers_can_be_tracked_and_resumed() -> None:
    def make() -> DataLoader:
        return DataLoader(Augmented(4), batch_size=2, num_workers=1, multiprocessing_context="forkserver")

    full, _, _ = planned(make, epochs=1)
    before, saved, _ = planned(make, epochs=1, save_at=(0, 1))
    after, _, _ = planned(make, epochs=1, resume=saved)
    assert before + after == full


# ------------------------------------------------------------------------------------------------------ random states
def test_main_state_survives_a_file_and_draws_nothing() -> None:
    seed(3)
    state = main_state()
    assert random.getstate() == main_state()["python"]
    kept = through_file(state)
    expected = torch.rand(2).tolist(), random.random(), np.random.rand()
    set_main_state(kept)
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == expected


def test_generators_of_samplers_are_found_and_restored() -> None:
    class Own(BatchSampler):
        def __init__(self) -> None:
            super().__init__(SequentialSampler(range(4)), 2, False)
            self.first = random.Random(1)
            self.second = np.random.default_rng(2)
            self.third = np.random.RandomState(3)
            self.fourth = torch.Generator()
            self.again = self.fourth
            self.none = random.SystemRandom()
            self.default = torch.default_generator

    loader = DataLoader(range(4), batch_sampler=Own(), generator=torch.Generator())
    found = find_generators(loader)
    names = ["generator", *(f"batch_sampler.{name}" for name in ("first", "second", "third", "fourth"))]
    assert list(found) == names
    states = through_file(generator_states(found))
    own = loader.batch_sampler

    def draws() -> list[float]:
        return [
            torch.rand((), generator=loader.generator).item(),
            own.first.random(),
            own.second.random(),
            own.third.random_sample(),
            torch.rand((), generator=own.fourth).item(),
        ]

    expected = draws()
    set_generator_states(found, {**states, "gone": None})
    assert draws() == expected

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from fulmen.data.combined import CombinedPlan
from fulmen.data.plan import LoaderPlan
from fulmen.data.sources import attach_worker_seeding, is_shuffled, loader_plans, set_epoch
from fulmen.errors import ArgumentTypeError, ArgumentValueError, DataError, FulmenWarning, PossibleUserWarning
from fulmen.utilities.combined_loader import CombinedLoader
from tests.ids import plain

DATA = TensorDataset(torch.arange(12.0))
WHERE = "Trainer.fit(train_dataloaders=...)"


class Batches(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Restarting:
    """An iterator that starts anew in ``__iter__``, as some GPU pipelines do."""

    def __iter__(self) -> Restarting:
        self.left = 2
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


class Sequence:
    def __getitem__(self, index: int) -> int:
        return [7, 8][index]


def loader(**options: Any) -> DataLoader:
    return DataLoader(DATA, **{"batch_size": 4, **options})


def method() -> DataLoader:
    return loader()


hf_dataset = type("Dataset", (), {"__module__": "datasets.arrow_dataset", "__iter__": lambda self: iter(())})()


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "got None instead of a loader. Return or pass a DataLoader"),
        (DATA, r"got a data set \(TensorDataset\), not a loader.*DataLoader\(dataset, batch_size=...\)"),
        (Subset(DATA, [1, 2]), r"data set \(Subset\)"),
        (hf_dataset, r"data set \(Dataset\)"),
        (torch.zeros(4, 2), r"tensor of shape \(4, 2\).*TensorDataset"),
        ("data/train", "the text 'data/train'"),
        (b"x", "the text b'x'"),
        (3, r"got 3 \(int\), which cannot be iterated"),
        (0.5, r"got 0.5 \(float\)"),
        (object(), r"\(object\), which cannot be iterated. Give a DataLoader"),
        (method, r"\(function\), which cannot be iterated. Was it meant to be called: add \(\)\?"),
        (DataLoader, r"got the class DataLoader itself. Make an object of it: DataLoader\(...\)"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:12],
)
@pytest.mark.parametrize("stage", ["train", "val"])
def test_what_is_no_loader(value: Any, words: str, stage: Any) -> None:
    with pytest.raises(DataError, match=words) as info:
        loader_plans(value, stage=stage, owner_name=WHERE)
    assert str(info.value).startswith(f"{WHERE}: got")
    if stage == "val":
        with pytest.raises(DataError, match=words) as info:
            loader_plans([loader(), value], stage=stage, owner_name=WHERE)
        assert str(info.value).startswith(f"{WHERE}[1]: got")
        with pytest.raises(DataError) as info:
            loader_plans({"good": loader(), "bad": value}, stage=stage)
        assert str(info.value).startswith("val_dataloader['bad']: got")


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    ("value", "names"),
    [
        ([[1], [2]], ["[0]", "[1]"]),
        ({"a": loader(), "b": [range(2), loader()]}, ["['a']", "['b'][0]", "['b'][1]"]),
        (CombinedLoader([loader(), [1, 2]], "min_size"), ["[0]", "[1]"]),
        ((loader(),), ["[0]"]),
    ],
)
def test_training_loaders_are_read_together(value: Any, names: list[str]) -> None:
    (plan,) = loader_plans(value, stage="train")
    assert isinstance(plan, CombinedPlan)
    assert [part.name for part in plan.plans] == [f"train_dataloader{name}" for name in names]


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("value", [[1, 2], loader(), CombinedLoader(loader(), "min_size"), CombinedLoader([1, 2])])
def test_one_training_loader_has_a_plan_of_its_own(value: Any) -> None:
    (plan,) = loader_plans(value, stage="train")
    assert type(plan) is LoaderPlan and plan.name == "train_dataloader"


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("stage", ["val", "test", "predict"])
def test_nested_evaluation_loaders_are_read_in_turn(stage: Any) -> None:
    plans = loader_plans({"clean": [loader(), range(2)], "noisy": (loader(),)}, stage=stage)
    assert [plan.name for plan in plans] == ["clean[0]", "clean[1]", "noisy[0]"]
    plans = loader_plans(CombinedLoader([loader(), {"a": range(2)}], "sequential"), stage=stage)
    assert [plan.name for plan in plans] == [f"{stage}_dataloader[0]", f"{stage}_dataloader[1]['a']"]


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    ("value", "stage", "error", "words"),
    [
        (CombinedLoader([loader()], "sequential"), "train", ArgumentValueError,
         r"mode='sequential'\), which training does not read.*'min_size', 'max_size_cycle', 'max_size'"),
        (CombinedLoader([loader()], "min_size"), "predict", ArgumentValueError,
         r"mode='min_size'\), but prediction reads loaders one after the other"),
        ([loader(), CombinedLoader([loader()])], "train", DataError, r"\[1\]: got a CombinedLoader inside a"),
        (CombinedLoader({"a": None}), "train", DataError, r"\['a'\]: got None instead of a loader"),
        ({"a": [loader(), None]}, "train", DataError, r"\['a'\]\[1\]: got None"),
        ({"a": {"b": DATA}}, "val", DataError, r"\['a'\]\['b'\]: got a data set \(TensorDataset\)"),
        ({"a": loader(), "b": {"c": 1}}, "train", DataError, r"\['b'\]: got a dict that holds no loaders: \{'c': 1\}"),
        (["a.csv", "b.csv"], "train", DataError, "got a list of texts, 'a.csv' first, instead of loaders.*batch_si"),
        ([("a", "b"), ("c",)], "val", DataError, r"\[0\]: got a tuple of texts, 'a' first"),
        ({"a": 1}, "val", DataError, r"got a dict that holds no loaders"),
        ([[torch.ones(2), torch.ones(2)]], "train", DataError, r"\[0\]\[0\]: got a tensor.*batch_size=None"),
    ],
)  # fmt: skip
def test_wrong_collections(value: Any, stage: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as info:
        loader_plans(value, stage=stage, owner_name=WHERE)
    assert str(info.value).startswith(WHERE)


@pytest.mark.feature("D-02")
def test_limits_of_a_combined_loader_are_the_trainers() -> None:
    value = CombinedLoader([[1, 2, 3], [4, 5, 6]], "max_size")
    value.limits = 1
    with pytest.warns(PossibleUserWarning, match=r"limits=\[1, 1\] has no effect.*limit_train_batches.*W117"):
        (plan,) = loader_plans(value, stage="train", limit=2)
    assert plan.num_batches == 2


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("stage", ["val", "test", "predict"])
def test_collections_keep_their_names(stage: Any) -> None:
    one, two = loader(), [1, 2]

    def names(value: Any) -> list[tuple[str, Any]]:
        plans = loader_plans(value, stage=stage)
        assert all(type(plan) is LoaderPlan for plan in plans)
        return [(plan.name, plan.loader) for plan in plans]

    assert names(one) == [(f"{stage}_dataloader", one)]
    assert names([one, two]) == [(f"{stage}_dataloader[0]", one), (f"{stage}_dataloader[1]", two)]
    assert names((one,)) == [(f"{stage}_dataloader[0]", one)]
    assert names({"clean": one, 3: two}) == [("clean", one), ("3", two)]
    assert names([]) == [] and names({}) == []


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    ("value", "batches"),
    [(Restarting(), [1, 0]), (Sequence(), [7, 8]), (range(2), [0, 1]), ({5, 6}, [5, 6])],
    ids=plain,
)
def test_any_iterable_of_batches(value: Any, batches: list[int]) -> None:
    (plan,) = loader_plans(value, stage="train")
    for _ in range(2):
        assert list(plan.start()) == batches


@pytest.mark.parametrize(
    "value", [(i for i in range(3)), iter([1, 2, 3]), map(str, [1, 2, 3]), itertools.chain([1, 2, 3])]
)
def test_generators_are_taken_once_with_a_warning(value: Any) -> None:
    with pytest.warns(
        PossibleUserWarning, match=rf"train_dataloader: a {type(value).__name__} can be read only once.*W103"
    ):
        (plan,) = loader_plans(value, stage="train")
    assert len(list(plan.start())) == 3
    assert list(plan.start()) == []


def test_iterable_data_set_without_loader() -> None:
    with pytest.warns(
        PossibleUserWarning, match=r"this Batches is an IterableDataset.*each item is taken as one.*W104"
    ):
        (plan,) = loader_plans(Batches(), stage="train")
    assert list(plan.start()) == [0, 1, 2]


@pytest.mark.feature("T-04")
def test_limits_name_the_trainers_argument() -> None:
    assert [plan.num_batches for plan in loader_plans([loader(), range(9)], stage="val", limit=2)] == [2, 2]
    assert [plan.num_batches for plan in loader_plans([loader(), range(9)], stage="test", limit=0.5)] == [1, 4]
    with pytest.raises(DataError, match=r"limit_predict_batches=0.1 of the 3 batches of predict_dataloader"):
        loader_plans(loader(), stage="predict", limit=0.1)
    with pytest.raises(ArgumentTypeError, match="limit_train_batches='all'"):
        loader_plans(loader(), stage="train", limit="all")  # type: ignore[arg-type]  # the wrong value is the test


def test_wrong_stage() -> None:
    with pytest.raises(ArgumentValueError, match=r"stage='vall'; give one of 'train'.*Did you mean 'val'"):
        loader_plans(loader(), stage="vall")  # type: ignore[arg-type]  # the wrong value is the test


# ------------------------------------------------------------------------------------------------------------ warnings
SHUFFLED = {
    "shuffle": (lambda: loader(shuffle=True), True),
    "random sampler": (lambda: loader(sampler=RandomSampler(DATA)), True),
    "batch sampler": (lambda: DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 2, False)), True),
    "no batching": (lambda: DataLoader(DATA, batch_size=None, shuffle=True), True),
    "sequential": (loader, False),
    "weighted": (lambda: loader(sampler=WeightedRandomSampler([1.0] * 12, 12)), False),
    "own": (lambda: DataLoader(DATA, batch_sampler=[[1], [2]]), False),
    "iterable": (lambda: DataLoader(Batches()), False),
    "list": (lambda: [1], False),
}


@pytest.mark.feature("D-06")
@pytest.mark.parametrize("kind", SHUFFLED)
def test_shuffling_evaluation_loaders(kind: str) -> None:
    make, shuffles = SHUFFLED[kind]
    value = make()
    assert is_shuffled(value) is shuffles
    if shuffles:
        with pytest.warns(PossibleUserWarning, match=r"a: its sampler shuffles. Set shuffle=False for val.*W102"):
            loader_plans({"a": value}, stage="val")
    loader_plans({"a": value}, stage="val")  # once, and silent for the others
    if kind != "list":
        loader_plans(value, stage="train")


@pytest.mark.feature("D-06")
def test_workers_that_are_slow_to_start_should_persist() -> None:
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    with pytest.warns(
        PossibleUserWarning, match=r"its 1 workers are started anew each epoch by spawn.*persistent.*W108"
    ):
        loader_plans(loader(**options), stage="train")
    loader_plans(loader(**options, persistent_workers=True), stage="val")
    loader_plans(loader(num_workers=1), stage="test")


# -------------------------------------------------------------------------------------------------------------- epochs
class Told(Sampler[int]):
    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))

    def __len__(self) -> int:
        return 4


class ToldBatches(BatchSampler):
    def __init__(self) -> None:
        super().__init__(Told(), 2, False)
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class ToldData(list):
    epochs: tuple[int, ...] = ()

    def set_epoch(self, epoch: int) -> None:
        self.epochs += (epoch,)


@pytest.mark.feature("D-03")
def test_set_epoch_tells_each_object_once() -> None:
    sampler, data = Told(), ToldData(range(4))
    set_epoch(DataLoader(data, batch_size=2, sampler=sampler), 3)  # also the sampler of the batch sampler
    assert sampler.epochs == [3] and data.epochs == (3,)
    batches = ToldBatches()
    set_epoch(DataLoader(data, batch_sampler=batches), 4)
    assert batches.epochs == [4] and batches.sampler.epochs == [4] and data.epochs == (3, 4)
    set_epoch([1, 2], 5)
    set_epoch(DataLoader([1, 2], sampler=SequentialSampler([1, 2])), 5)


# ---------------------------------------------------------------------------------------------------------------- seeds
class Draws:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[float, float]:
        return torch.rand(()).item(), random.random()


@pytest.mark.feature("D-02")
def test_worker_seeding_is_attached_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(worker_id: int) -> None: ...

    plain = loader()
    loader_plans(plain, stage="train")
    assert plain.worker_init_fn is None
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    loader_plans([plain, own := loader(worker_init_fn=mine)], stage="val", rank=3)
    assert plain.worker_init_fn.keywords == {"rank": 3}
    assert own.worker_init_fn is mine
    attach_worker_seeding([1, 2])


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # the test machine has few cores
def test_seeded_workers_differ_by_rank_and_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    found = []
    for rank in (0, 1):
        torch.manual_seed(5)
        value = DataLoader(Draws(), batch_size=None, num_workers=2)
        attach_worker_seeding(value, rank)
        found += list(value)
    values = [number for pair in found for number in pair]
    assert len(set(values)) == 8
    torch.manual_seed(5)
    value = DataLoader(Draws(), batch_size=None, num_workers=2)
    attach_worker_seeding(value, 1)
    assert list(value) == found[2:]


def test_plans_warn_of_zero_length_under_the_stage() -> None:
    with pytest.warns(FulmenWarning, match=r"test_dataloader\[1\]: this DataLoader has 0 length"):
        loader_plans([loader(), loader(batch_size=20, drop_last=True)], stage="test")

"""Batches read at once are those of `DataLoader`: order, values, types, layout, and random numbers afterwards."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data._utils.collate import default_collate_fn_map

from fulmen.data.fetch import read_batchwise
from fulmen.data.plan import LoaderPlan
from tests.ids import plain
from tests.unit.data.streams import EagerBatches, OwnRandom, by_hand, planned, seed

pytestmark = pytest.mark.feature("D-07")


class Listed:
    """A batch sampler that gives ready-made batches of indices."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def rows(size: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(size * int(np.prod(shape))).reshape(size, *shape).to(dtype)


def data(size: int = 10) -> TensorDataset:
    return TensorDataset(rows(size, 3), rows(size, dtype=torch.int64))


def reads(loader: DataLoader) -> bool:
    return read_batchwise(iter(loader)) is not None


# ----------------------------------------------------------------------------------------------- any sampler, any data
def generator(draw: Any) -> torch.Generator | None:
    value = draw(st.none() | st.integers(0, 99))
    return None if value is None else torch.Generator().manual_seed(value)


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 1), (0,), (1, 2, 2), (3, 1, 1)]


@st.composite
def loaders(draw: Any) -> Callable[[], DataLoader]:
    """A recipe that makes equal loaders, with all kinds of samplers."""
    size, batch_size = draw(st.integers(1, 23)), draw(st.integers(1, 8))
    columns = draw(st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES)), min_size=1, max_size=3))
    levels = draw(st.lists(st.sampled_from(["list", "range", "array", "tensor"]), max_size=2))
    kind = draw(
        st.sampled_from(
            ["sequential", "shuffle", "replacement", "weighted", "subset", "own", "eager", "arrays", "tensors", "one"]
        )
    )
    drop_last, seeds = draw(st.booleans()), draw(st.none() | st.integers(0, 99))
    mixed = draw(st.permutations(range(size)))

    def make() -> DataLoader:
        own = None if seeds is None else torch.Generator().manual_seed(seeds)
        source: Dataset[Any] = TensorDataset(*(rows(size, *shape, dtype=dtype) for shape, dtype in columns))
        for level in levels:
            chosen: dict[str, Any] = {
                "list": mixed,
                "range": range(size),
                "array": np.array(mixed),
                "tensor": torch.tensor(mixed),
            }
            source = Subset(source, chosen[level])
        options: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last, "generator": own}
        if kind == "shuffle":
            options["shuffle"] = True
        elif kind == "replacement":
            options["sampler"] = RandomSampler(range(size), True, size + 5, generator=own)
        elif kind == "weighted":
            options["sampler"] = WeightedRandomSampler([1.0 + i for i in range(size)], size + 2, generator=own)
        elif kind == "subset":
            options["sampler"] = SubsetRandomSampler(np.array(mixed[: size // 2 + 1]), generator=own)
        elif kind == "own":
            options["sampler"] = OwnRandom(size)
        elif kind == "one":
            options = {"batch_size": None, "shuffle": True, "generator": own}
        elif kind != "sequential":
            batches: Any = [mixed[i : i + batch_size] for i in range(0, size, batch_size)]
            if kind == "arrays":
                batches = [np.array(batch) for batch in batches]
            elif kind == "tensors":
                batches = [torch.tensor(batch) for batch in batches]
            options = {"batch_sampler": EagerBatches(size, own) if kind == "eager" and size > 9 else Listed(batches)}
        return DataLoader(source, **options)

    return make


def told(batch: Any) -> Any:
    """All there is to know of a batch."""
    if isinstance(batch, torch.Tensor):
        own = batch.untyped_storage().nbytes() == batch.numel() * batch.element_size()
        whole = batch.view(torch.uint8) if batch.dim() and batch.numel() else batch
        return (str(batch.dtype), tuple(batch.shape), batch.stride(), own, batch.grad_fn, whole.tolist())
    return (type(batch), [told(part) for part in batch])


def drawn() -> list[Any]:
    """Numbers that only equal states of the three global generators give."""
    return [torch.rand(()).item(), random.random(), np.random.rand()]


@settings(max_examples=150, deadline=None)
@given(loaders(), st.integers(1, 2))
def test_batches_and_random_numbers_are_those_of_the_loader(make: Callable[[], DataLoader], epochs: int) -> None:
    seed(3)
    loader = make()
    expected: list[Any] = []
    for _ in range(epochs):
        expected += [[told(batch), drawn()] for batch in loader]
        expected.append(drawn())
    own = loader.generator.get_state().tolist() if loader.generator is not None else None

    seed(3)
    loader = make()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*has 0 length")  # fewer samples than a batch, drop_last
        plan = LoaderPlan(loader)
    found: list[Any] = []
    for _ in range(epochs):
        found += [[told(batch), drawn()] for batch in plan.start()]
        found.append(drawn())
    assert found == expected
    assert own == (loader.generator.get_state().tolist() if loader.generator is not None else None)
    assert reads(make()) == (make().batch_size is not None or type(make().batch_sampler) in (Listed, EagerBatches))


STREAMS: dict[str, Callable[[], DataLoader]] = {
    "shuffle": lambda: DataLoader(data(14), batch_size=4, shuffle=True),
    "generator": lambda: DataLoader(data(14), batch_size=7, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "subset": lambda: DataLoader(Subset(data(20), range(3, 17)), batch_size=4, shuffle=True, drop_last=True),
    "own batches": lambda: DataLoader(data(14), batch_sampler=EagerBatches(14)),
}


@pytest.mark.feature("C-03")
@pytest.mark.parametrize("kind", STREAMS)
def test_resume_in_the_middle(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(batch: Any, trace: list[Any]) -> None:
        trace.append(([part.tolist() for part in batch], torch.rand(()).item(), random.random()))

    monkeypatch.setattr("tests.unit.data.streams.step", record)
    full = by_hand(STREAMS[kind])
    for epoch, done in [(0, 1), (1, 0), (1, len(STREAMS[kind]()))]:
        before, saved, _ = planned(STREAMS[kind], save_at=(epoch, done))
        assert saved is not None
        assert before + planned(STREAMS[kind], resume=saved)[0] == full


# --------------------------------------------------------------------------------------------------- when, and when not
def test_rows_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Subset(data(), [7, 1, 4, 0]), batch_size=3)
    run = LoaderPlan(loader).start()
    monkeypatch.setattr(TensorDataset, "__getitem__", None)
    assert [batch[1].tolist() for batch in run] == [[7, 1, 4], [0]]


class Named(TensorDataset):
    def __init__(self, name: str, *tensors: torch.Tensor) -> None:
        super().__init__(*tensors)
        self.name = name


class Shifted(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0] + 100


class Batched(TensorDataset):
    def __getitems__(self, indices: list[int]) -> Any:
        return [(torch.tensor(float(len(indices))),) for _ in indices]


class Reversed(Subset[Any]):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(-1 - index)

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Silent(DataLoader[Any]):
    """Another constructor; iterates as torch's."""

    def __init__(self) -> None:
        super().__init__(data(), batch_size=3)


YES: dict[str, Callable[[], DataLoader]] = {
    "plain": lambda: DataLoader(data(), batch_size=3),
    "sub-class without a way of its own": lambda: DataLoader(Named("x", rows(9, 2)), batch_size=3),
    "loader class": Silent,
    "subset of a subset": lambda: DataLoader(Subset(Subset(data(), [5, 3, 1]), (2, 0)), batch_size=3),
}
NO: dict[str, Callable[[], DataLoader]] = {
    "overrides __getitem__": lambda: DataLoader(Shifted(rows(9, 2)), batch_size=3),
    "has __getitems__": lambda: DataLoader(Batched(rows(9, 2)), batch_size=3),
    "subset with a way of its own": lambda: DataLoader(Reversed(data(), range(10)), batch_size=3),
    "subset of something else": lambda: DataLoader(Subset(Shifted(rows(9, 2)), range(9)), batch_size=3),
    "other data set": lambda: DataLoader(StackDataset(rows(9, 2)), batch_size=3),
    "collate function": lambda: DataLoader(data(), batch_size=3, collate_fn=lambda rows: default_collate(rows)),
    "no batching": lambda: DataLoader(data(), batch_size=None),
    "no batching, index lists": lambda: DataLoader(
        data(), batch_size=None, sampler=BatchSampler(RandomSampler(range(10)), 3, False)
    ),
    "gradients": lambda: DataLoader(TensorDataset(rows(9, 2).requires_grad_()), batch_size=3),
    "parameter": lambda: DataLoader(TensorDataset(torch.nn.Parameter(rows(9, 2))), batch_size=3),
    "other strides": lambda: DataLoader(
        TensorDataset(rows(9, 3, 4, 4).to(memory_format=torch.channels_last)), batch_size=3
    ),
    "sparse": lambda: DataLoader(TensorDataset(rows(9, 2).to_sparse()), batch_size=3, collate_fn=list),
}


@pytest.mark.parametrize("kind", [*YES, *NO])
def test_which_loaders(kind: str) -> None:
    make = (YES | NO)[kind]
    assert reads(make()) == (kind in YES)
    seed(1)
    expected = [told(batch) for batch in make()] if kind not in ("gradients", "parameter", "sparse") else None
    seed(1)
    if expected is not None:
        assert [told(batch) for batch in LoaderPlan(make()).start()] == expected


def test_workers_read_themselves() -> None:
    iterator = iter(DataLoader(data(), batch_size=5, num_workers=1))
    assert not read_batchwise(iterator)
    assert len(list(iterator)) == 2


def test_other_iterators_are_left_alone() -> None:
    assert not read_batchwise(iter([1, 2]))


def test_registered_collate_functions_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, tuple, lambda batch, collate_fn_map: len(batch))
    assert not reads(DataLoader(data(), batch_size=4))
    assert list(LoaderPlan(DataLoader(data(), batch_size=4)).start()) == [4, 4, 2]
    monkeypatch.delitem(default_collate_fn_map, tuple)
    assert reads(DataLoader(data(), batch_size=4))
    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, lambda batch, collate_fn_map: torch.stack(batch) + 1)
    assert not reads(DataLoader(data(), batch_size=4))


@pytest.mark.parametrize(
    ("owner", "name"), [(TensorDataset, "__getitem__"), (Subset, "__getitems__"), (Subset, "__getitem__")]
)
def test_patched_classes_are_called(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    real = getattr(owner, name)

    def patched(self: Any, index: Any) -> Any:
        calls.append(index)
        return real(self, index)

    monkeypatch.setattr(owner, name, patched)
    loader = DataLoader(Subset(data(), range(6)), batch_size=3)
    assert not reads(loader)
    assert len(list(LoaderPlan(loader).start())) == 2
    assert calls or name == "__getitem__"


def test_patched_instances_are_called() -> None:
    source = data()
    source.__getitems__ = lambda indices: [torch.tensor(index * 2) for index in indices]
    assert not reads(DataLoader(source, batch_size=3))
    assert next(LoaderPlan(DataLoader(source, batch_size=3)).start()).tolist() == [0, 2, 4]
    subset = Subset(data(), range(6))
    subset.__getitems__ = lambda indices: [torch.tensor(index * 3) for index in indices]  # type: ignore[method-assign]
    assert next(LoaderPlan(DataLoader(subset, batch_size=2)).start()).tolist() == [0, 3]


# ------------------------------------------------------------------------------------------------------ odd indices
@pytest.mark.parametrize(
    "batches",
    [
        [[-1, -2], [0, 3]],
        [(4, 5), range(2)],
        [[np.int32(3), np.int64(4)], np.array([1, 2], dtype=np.uint8)],
        [torch.tensor([3, 4]), [torch.tensor(2), torch.tensor(9)]],
        [[torch.tensor([3]), torch.tensor([4])]],
        [[[1, 2], [3, 4]]],
        [{3: "a", 5: "b"}],
        [[None]],
        [iter([1, 2]), [0]],
    ],
    ids=plain,
)
def test_odd_indices_give_what_they_give_in_the_loader(batches: list[Any]) -> None:
    def make() -> DataLoader:
        return DataLoader(
            data(), batch_sampler=Listed([b if not hasattr(b, "__next__") else iter([1, 2]) for b in batches])
        )

    assert reads(make())
    assert [told(batch) for batch in LoaderPlan(make()).start()] == [told(batch) for batch in make()]


@pytest.mark.parametrize("indices", [[1, 99], [-11], [0.5], ["a"], [], {}, 3, "x"], ids=plain)
def test_wrong_indices_give_the_error_that_they_give_in_the_loader(indices: Any) -> None:
    def error(batches: Any) -> tuple[type, str]:
        with pytest.raises((IndexError, TypeError)) as caught:
            next(batches)
        return caught.type, str(caught.value)

    loader = DataLoader(data(), batch_sampler=Listed([indices]))
    assert error(LoaderPlan(loader).start()) == error(iter(loader))


def test_changes_of_the_data_are_seen_at_once() -> None:
    source = data()
    run = LoaderPlan(DataLoader(source, batch_size=2)).start()
    assert next(run)[1].tolist() == [0, 1]
    source.tensors[1].add_(100)
    assert next(run)[1].tolist() == [102, 103]
    source.tensors = (rows(10, 3), rows(10) + 0.5)
    assert next(run)[1].tolist() == [4.5, 5.5]
    source.tensors = (rows(10, 3), (rows(10) + 0.25).requires_grad_())
    assert next(run)[1].grad_fn is not None


def test_batches_are_fresh() -> None:
    source = data()
    batch = next(LoaderPlan(DataLoader(source, batch_size=10)).start())
    batch[0].zero_()
    assert source.tensors[0].sum() > 0


def test_pinned_memory_goes_through_torchs_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator = iter(DataLoader(data(), batch_size=5))
    iterator._pin_memory, iterator._pin_memory_device = True, "fake"
    fetch = read_batchwise(iterator)
    assert fetch is not None
    monkeypatch.setattr(
        "torch.utils.data._utils.pin_memory.pin_memory", lambda batch, device: [part.shape for part in batch]
    )
    assert fetch() == [torch.Size([5, 3]), torch.Size([5])]


def test_profilers_see_the_loader() -> None:
    run = LoaderPlan(DataLoader(data(), batch_size=2)).start()
    next(run)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert next(run)[1].tolist() == [2, 3]
    assert any(event.key.startswith("enumerate(DataLoader)") for event in profile.key_averages())
    assert next(run)[1].tolist() == [4, 5]

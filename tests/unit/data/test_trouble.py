"""A batch that cannot be read: the error says which loader, batch and samples, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from fulmen.data import trouble
from fulmen.data.plan import LoaderPlan
from fulmen.data.trouble import Trouble, explain_empty, explain_samples, note_dead_worker, refuse_empty
from fulmen.errors import DataError

pytestmark = pytest.mark.feature("D-02")


class Rows(Dataset[Any]):
    """Twelve rows, each made by a function of its index."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def missing_label(index: int) -> Any:
    if index == 7:
        raise KeyError("no label for row 7")
    return index


def ended(index: int) -> Any:
    return index if index != 7 else next(iter(()))


def ragged(index: int) -> Any:
    return {"x": torch.ones(2 if index != 7 else 3), "y": index}


class Empty:
    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1], [], [2]])

    def __len__(self) -> int:
        return 3


def notes(loader: Any, **options: Any) -> tuple[list[str], BaseException]:
    """What is noted on the exception that reading all batches ends with."""
    plan = LoaderPlan(loader, name="train_dataloader", **options)
    try:
        with pytest.raises(Exception) as caught:
            for _ in plan.start():
                pass
    finally:
        plan.close()
    return list(getattr(caught.value, "__notes__", ())), caught.value


def loader(make: Callable[[int], Any], **options: Any) -> DataLoader[Any]:
    return DataLoader(Rows(make), **{"batch_size": 3, **options})


IN_PROCESS: list[tuple[str, DataLoader[Any], type[BaseException], str]] = [
    (
        "row",
        loader(missing_label),
        KeyError,
        "batch 2 (samples 6, 7, 8) could not be read. The data set failed at sample 7.",
    ),
    (
        "row, long batch",
        loader(missing_label, batch_size=10),
        KeyError,
        "batch 0 (samples 0, 1, 2, 3, 4, 5, 6, 7, … 10 in all) could not be read. The data set failed at sample 7.",
    ),
    (
        "row of a subset",
        DataLoader(Subset(Rows(missing_label), [1, 2, 3, 7]), batch_size=2),
        KeyError,
        "batch 1 (samples 2, 3) could not be read. The data set failed at sample 3.",
    ),
    (
        "no batching",
        loader(missing_label, batch_size=None),
        KeyError,
        "batch 7 (sample 7) could not be read.",
    ),
    (
        "tensors",
        DataLoader(TensorDataset(torch.ones(4)), batch_size=2, sampler=[0, 1, 2, 9]),
        IndexError,
        "batch 1 (samples 2, 9) could not be read. The data set failed at sample 9.",
    ),
    (
        "shapes",
        loader(ragged, batch_size=4),
        RuntimeError,
        (
            "batch 1 (samples 4, 5, 6, 7) could not be read. The collate function failed; its 4 samples differ: "
            "['x'] is Tensor(2,) in 3 samples (4, 5, 6), Tensor(3,) in sample 7."
        ),
    ),
    (
        "kinds",
        loader(lambda index: (index, None)),
        TypeError,
        (
            "batch 0 (samples 0, 1, 2) could not be read. The collate function failed, though its 3 samples are alike: "
            "the sample is tuple of 2, [0] is int, [1] is NoneType."
        ),
    ),
    (
        "no samples",
        DataLoader(Rows(ragged), batch_sampler=Empty()),
        IndexError,
        "batch 1 could not be read. Its batch sampler gave an empty list of indices; a batch has at least one sample.",
    ),
]


@pytest.mark.parametrize(("kind", "data", "error", "words"), IN_PROCESS, ids=[row[0] for row in IN_PROCESS])
def test_in_this_process(kind: str, data: DataLoader[Any], error: type[BaseException], words: str) -> None:
    found, caught = notes(data)
    assert type(caught) is error
    assert found == [f"train_dataloader: {words}"]


def test_a_row_that_fails_in_a_worker() -> None:
    found, caught = notes(loader(missing_label, num_workers=2), track_workers=True)
    assert type(caught) is KeyError
    assert "in missing_label" in str(caught), "the worker's traceback is kept"
    assert found == ["train_dataloader: batch 2 (samples 6, 7, 8) could not be read."]


def test_a_collate_that_fails_in_a_worker() -> None:
    found, caught = notes(loader(ragged, batch_size=4, num_workers=1), track_workers=True)
    assert type(caught) is RuntimeError
    assert "its 4 samples differ: ['x'] is Tensor(2,) in 3 samples (0, 1, 2), Tensor(3,) in sample 3." in str(caught)
    assert found == ["train_dataloader: batch 1 (samples 4, 5, 6, 7) could not be read."]


def _try_get_data() -> None:  # as the function of torch's iterator is called
    raise EOFError


def test_the_death_of_a_worker_is_recognised_and_explained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "_UNTIL_TOLD_S", 0.0)
    told = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
    with pytest.raises(EOFError) as broken_pipe:
        _try_get_data()
    for error in (told, broken_pipe.value):
        Trouble(loader(float, num_workers=2), "loader").explain(error, 5)
        note_dead_worker(error)
        assert error.__notes__[0] == "loader: batch 5 could not be read."
        assert len(error.__notes__) == 2
        for words in ("memory ran out", "/dev/shm", "num_workers=0", "fewer workers (now 2)"):
            assert words in error.__notes__[1]
    for other in (EOFError(), RuntimeError("DataLoader"), ValueError("DataLoader worker (pid 7)")):
        note_dead_worker(other)
        assert not hasattr(other, "__notes__")


def test_what_torch_tells_late_of_a_dead_worker_does_not_take_the_errors_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(seconds: float) -> None:  # torch's signal handler raises wherever the process is
        raise RuntimeError("DataLoader worker (pid 7) exited unexpectedly with exit code 3.")

    monkeypatch.setattr("fulmen.data.trouble.time.sleep", told)
    with pytest.raises(EOFError) as broken_pipe:
        _try_get_data()
    note_dead_worker(broken_pipe.value)
    assert broken_pipe.value.__notes__[0] == "DataLoader worker (pid 7) exited unexpectedly with exit code 3."
    assert broken_pipe.value.__notes__[1].startswith("A worker process")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_iteration_of_a_data_set_does_not_end_the_epoch(workers: int) -> None:
    found, caught = notes(loader(ended, num_workers=workers), track_workers=True)
    assert type(caught) is DataError
    assert re.match(
        r"train_dataloader: a StopIteration was raised while batch 2 was read.*give `next` a default", str(caught)
    )
    assert isinstance(caught.__cause__, StopIteration)
    assert "samples 6, 7, 8" in caught.__cause__.__notes__[0]
    assert found == []


def test_a_stop_iteration_of_a_collate_function() -> None:
    _, caught = notes(loader(float, collate_fn=lambda samples: next(iter(()))))
    assert type(caught) is DataError and "batch 0" in str(caught)


class Stream(IterableDataset[int]):
    def __init__(self) -> None:
        self.next = iter(range(5))

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> int:
        return next(self.next)


def test_a_stop_iteration_is_the_end_where_it_should_be() -> None:
    assert [len(batch) for batch in LoaderPlan(DataLoader(Stream(), batch_size=2)).start()] == [2, 2, 1]
    assert len(list(LoaderPlan(DataLoader(Stream(), batch_size=None)).start())) == 5
    assert len(list(LoaderPlan(loader(float)).start())) == 4
    assert len(list(LoaderPlan(iter([1, 2])).start())) == 2


def test_by_count_any_stop_iteration_is_the_end() -> None:
    plan = LoaderPlan(loader(ended), by_count=True)
    with pytest.warns(match="ended after 2 batches although len.. of the loader says 4"):
        assert len(list(plan.start())) == 2


def test_look_ahead_explains_too() -> None:
    class Broken(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield 1
            raise ValueError("torn page")

    found, caught = notes(DataLoader(Broken(), batch_size=1))
    assert str(caught).startswith("torn page")
    assert found == ["train_dataloader: batch 1 could not be read."]


def test_a_collate_function_of_a_stream() -> None:
    found, _ = notes(DataLoader(Stream(), batch_size=2, collate_fn=lambda samples: torch.stack(samples)))
    assert found[0].endswith("The collate function failed, though its 2 samples are alike: the sample is int.")


def test_an_explanation_that_fails_does_not_hide_the_error() -> None:
    def odd(batch_idx: int) -> Any:
        raise RuntimeError

    error = ValueError("the real one")
    Trouble([], "loader", indices=odd).explain(error, 4)
    assert error.__notes__ == ["loader: batch 4 could not be read."]


SAMPLES: list[tuple[Any, str]] = [
    ([1, "a"], "its 2 samples differ: the sample is int in sample 0, str in sample 1."),
    ([{"a": 1}, {"a": 1, "b": 2}], "['b'] is int in sample 1, nothing in sample 0."),
    (
        [(torch.ones(1),), (torch.ones(1), torch.ones(1))],
        "is tuple of 1 in sample 0, tuple of 2 in sample 1; [1] is Tensor(1,) in sample 1, nothing in sample 0.",
    ),
    ([{"a": [1]}, {"a": [1, 2]}], "['a'] is list of 1 in sample 0, list of 2 in sample 1; ['a'][1] is int"),
    (
        [torch.ones(n) for n in range(5)],
        "Tensor(0,) in sample 0, Tensor(1,) in sample 1, Tensor(2,) in sample 2, 2 other",
    ),
    ([torch.ones(1)] * 9 + [None], "Tensor(1,) in 9 samples (0, 1, 2, …), NoneType in sample 9."),
    (torch.ones(2), "The collate function got Tensor(2,)."),
    ([], "The collate function got list."),
]


@pytest.mark.parametrize(("samples", "words"), SAMPLES)
def test_explain_samples(samples: Any, words: str) -> None:
    assert words in explain_samples(samples)


EMPTY: list[tuple[Any, str]] = [
    (DataLoader(TensorDataset(torch.ones(0, 2)), batch_size=4), "its data set (TensorDataset) is empty"),
    (
        DataLoader(range(3), batch_size=4, drop_last=True),
        "its data set has 3 samples, fewer than batch_size=4, and drop_last=True.*batch_size to at most 3",
    ),
    (DataLoader(range(3), sampler=[]), "though its data set has 3 samples: its sampler or batch sampler gives none"),
    ([], "Give one that has data, or leave it out"),
]


@pytest.mark.parametrize(("data", "words"), EMPTY)
def test_empty_loaders(data: Any, words: str) -> None:
    words = words.replace("(", r"\(").replace(")", r"\)")
    words = f"test_dataloader: this {type(data).__name__} has no batches.*{words}"
    assert re.match(words, explain_empty(data, "test_dataloader"))
    with pytest.warns(match="has 0 length"):
        plan = LoaderPlan(data, name="test_dataloader")
    with pytest.raises(DataError, match=words):
        refuse_empty([plan])
    refuse_empty([plan, LoaderPlan([1])])
    refuse_empty([LoaderPlan([1], limit=0)])
    refuse_empty([])

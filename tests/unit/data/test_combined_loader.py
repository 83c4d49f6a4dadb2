"""`CombinedLoader` by itself, and against the installed Lightning's."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.utilities.combined_loader import MODES, CombinedLoader, Nesting, map_loaders

Pair = namedtuple("Pair", ["left", "right"])


@dataclass(frozen=True)
class Both:
    one: Any
    two: Any


class NoLength:
    """An iterable that does not tell its length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


def peers() -> Any:
    """The peer's class, without the deprecation warnings of torch that its use gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("lightning.pytorch.utilities.combined_loader").CombinedLoader


def everything(loader: Any) -> tuple[Any, Any]:
    iterator = iter(loader)
    try:
        length: Any = len(loader)
    except TypeError:
        length = "unknown"
    # An endless pass would hang the test.
    return length, list(itertools.islice(iterator, 100))


def combinations() -> list[tuple[Any, str, Any]]:
    """Lengths (negative: not told), mode and limits."""
    rng = random.Random(3)
    found: list[tuple[Any, str, Any]] = []
    for count in (1, 2, 3, 4):
        for mode in MODES:
            for _ in range(22):
                lengths = tuple(rng.choice([0, 1, 2, 3, 5, -1, -2, -4]) for _ in range(count))
                limits = rng.choice([None, None, 2, [rng.choice([0, 1, 3, float("inf")]) for _ in lengths]])
                found.append((lengths, mode, limits))
    return found


@pytest.mark.feature("D-02")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # the peer's use of torch
def test_it_gives_what_the_peers_gives() -> None:
    peer = peers()
    cases = combinations()
    assert len(cases) >= 350
    for lengths, mode, limits in cases:
        parts = [NoLength(-n) if n < 0 else range(n) for n in lengths]
        nested: Any = [parts[0], {"rest": tuple(parts[1:])}] if parts[1:] else {"only": parts}
        for value in (parts, {str(i): part for i, part in enumerate(parts)}, nested):
            results = []
            for kind in (peer, CombinedLoader):
                combined = kind(value, mode)
                combined.limits = copy.copy(limits)
                results.append((everything(combined), everything(combined)))  # a second pass, too
            assert results[1] == results[0], (lengths, mode, limits)


@pytest.mark.feature("D-02")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # the peer's use of torch
@pytest.mark.parametrize("mode", MODES)
def test_random_numbers_are_drawn_as_by_the_peer(mode: Any) -> None:
    peer = peers()

    def drawn(kind: Any) -> Any:
        torch.manual_seed(3)
        data = torch.arange(12.0)
        loaders = {"a": DataLoader(data, 2, shuffle=True), "b": DataLoader(data[:6], 2, shuffle=True), "c": NoLength(4)}
        values = [str(item) for item in itertools.islice(kind(loaders, mode), 50)]
        return values, torch.rand(()).item()

    assert drawn(CombinedLoader) == drawn(peer)


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    "value",
    [
        {"a": NoLength(1), "b": [NoLength(2), NoLength(3)]},
        Pair(NoLength(1), NoLength(2)),
        Both(NoLength(1), {"x": NoLength(2)}),
        OrderedDict(z=NoLength(1), a=NoLength(2)),
        defaultdict(list, a=NoLength(1)),
        deque([NoLength(1), (NoLength(2),)], maxlen=5),
        (NoLength(1), [NoLength(2)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_collections_keep_kind_and_order(value: Any) -> None:
    nesting = Nesting(value)
    back = nesting.put(nesting.leaves)
    assert type(back) is type(value) and back == value
    assert [leaf.count for leaf in nesting.leaves] == list(range(1, len(nesting.leaves) + 1))
    if isinstance(value, defaultdict):
        assert back.default_factory is list
    if isinstance(value, deque):
        assert back.maxlen == 5
    (batch, _, _) = next(iter(CombinedLoader(value, "min_size")))
    assert type(batch) is type(value)
    if isinstance(value, Both):
        assert batch == Both(0, {"x": 0})


@pytest.mark.feature("D-02")
def test_places_say_where_a_loader_stands() -> None:
    a = NoLength(1)
    assert Nesting({"a": [a, Pair(a, a)], "b": Both(a, (a,))}).places == [
        "['a'][0]", "['a'][1].left", "['a'][1].right", "['b'].one", "['b'].two[0]",
    ]  # fmt: skip
    assert Nesting(a).places == [""] and Nesting(a).is_single


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("value", [[1, 2], ["x"], [], {}, (1.5, 2), range(3), "text", torch.ones(2)])
def test_collections_without_loaders_are_loaders_themselves(value: Any) -> None:
    assert Nesting(value).is_single and CombinedLoader(value).flattened[0] is value


@pytest.mark.feature("D-02")
def test_a_mapping_of_its_own_class_is_taken_apart() -> None:
    class Config(dict[str, Any]):
        note = ""

    value = Config(a=NoLength(1), b=NoLength(2))
    value.note = "kept"
    back = map_loaders(value, lambda loader: loader.count)
    assert type(back) is Config and back == {"a": 1, "b": 2} and back.note == "kept"
    assert isinstance(value["a"], NoLength)  # the user's own is as it was


@pytest.mark.feature("D-02")
def test_samplers_and_changes() -> None:
    one, two = DataLoader(range(6), 2), [1, 2]
    combined = CombinedLoader({"a": one, "b": two}, "max_size")
    assert combined.iterables == {"a": one, "b": two} and combined.flattened == [one, two]
    assert combined.mode == "max_size" and combined.limits is None
    assert isinstance(combined.sampler["a"], SequentialSampler) and combined.sampler["b"] is None
    assert isinstance(combined.batch_sampler["a"], BatchSampler) and combined.batch_sampler["b"] is None
    combined.flattened = [two, one]
    assert combined.iterables == {"a": two, "b": one}
    assert len(combined) == 3
    combined.limits = [1, 2]
    assert len(combined) == 2
    combined.limits = None
    assert len(combined) == 3


class Items(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.feature("D-02")
@pytest.mark.parametrize("mode", MODES)
def test_workers_end_with_reset_and_passes_do_not_travel(mode: Any) -> None:
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1, "persistent_workers": True}
    one = DataLoader(Items(), **options)
    combined = CombinedLoader([one, DataLoader(Items(), batch_size=None)], mode)
    first = next(iter(combined))
    (worker,) = one._iterator._workers
    for copied in (pickle.loads(pickle.dumps(CombinedLoader([[1], [2]], mode))), copy.copy(combined)):
        with pytest.raises(ArgumentValueError, match=r"call iter\(\) on it before next\(\)"):
            next(copied)
    combined.reset()
    assert one._iterator is None and not worker.is_alive()
    assert str(next(iter(combined))) == str(first)
    combined.reset()


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    ("action", "error", "words"),
    [
        (lambda c: CombinedLoader([1], "max_sise"), ArgumentValueError, r"mode='max_sise'.*'min_size'.*n 'max_size'"),
        (lambda c: CombinedLoader([1], None), ArgumentValueError, "mode=None"),
        (lambda c: setattr(c, "flattened", [1]), ArgumentValueError, "1 loaders were given for 2; give 2"),
        (lambda c: setattr(c, "limits", [1]), ArgumentValueError, r"limits=\[1\]: these are 1 limits for 2 loaders"),
        (lambda c: setattr(c, "limits", "2"), ArgumentTypeError, "limits='2': give a number, a list of 2, or None"),
        (next, ArgumentValueError, "call iter"),
        (lambda c: len(CombinedLoader([NoLength(1), [2]], "max_size")), TypeError, "no length: a loader in it"),
    ],
)  # fmt: skip
def test_wrong_use(action: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        action(CombinedLoader([[1, 2], [3]]))


@pytest.mark.feature("D-10")
def test_it_is_where_lightning_has_it() -> None:
    import fulmen.utilities
    from fulmen.utilities.collections import move_data_to_device

    assert fulmen.utilities.CombinedLoader is CombinedLoader
    assert fulmen.utilities.move_data_to_device is move_data_to_device

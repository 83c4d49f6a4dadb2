"""Nested batches are moved and mapped with their types kept."""

from __future__ import annotations

from collections import OrderedDict, UserDict, UserList, defaultdict, namedtuple
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from fulmen.utilities.collections import apply_to_collection, move_data_to_device

Pair = namedtuple("Pair", ["x", "y"])
META = torch.device("meta")
CPU = torch.device("cpu")


@dataclass
class Batch:
    x: Tensor
    name: str
    parts: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class FrozenBatch:
    x: Tensor


class Graph:
    def __init__(self, x: Tensor, returns: bool = True) -> None:
        self.x = x
        self.returns = returns

    def to(self, device: torch.device) -> Graph | None:
        self.x = self.x.to(device)
        return self if self.returns else None


class Encoding(UserDict[str, Tensor]):
    def to(self, device: torch.device) -> Encoding:
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


@pytest.mark.feature("D-05")
def test_tensors_that_are_there_come_back_as_they_are() -> None:
    x = torch.rand(2)
    for batch in ([x, x], (x, x), {"a": x, "b": x}, x, [x, "name", 3, None]):
        assert move_data_to_device(batch, CPU) is batch
    assert move_data_to_device((x,), "cpu")[0] is x


@pytest.mark.feature("D-05")
@pytest.mark.parametrize(
    ("make", "get"),
    [
        (lambda x: x, lambda b: b),
        (lambda x: [x, 1], lambda b: b[0]),
        (lambda x: ("a", x), lambda b: b[1]),
        (lambda x: {"k": x, "n": None}, lambda b: b["k"]),
        (lambda x: {"k": [({"d": x},)]}, lambda b: b["k"][0][0]["d"]),
        (lambda x: OrderedDict(k=x), lambda b: b["k"]),
        (lambda x: defaultdict(list, k=x), lambda b: b["k"]),
        (lambda x: MappingProxyType({"k": x}), lambda b: b["k"]),
        (lambda x: UserList([x]), lambda b: b[0]),
        (lambda x: Pair(1, x), lambda b: b.y),
        (lambda x: Batch(x, "n", [x]), lambda b: b.parts[0]),
        (lambda x: FrozenBatch(x), lambda b: b.x),
        (lambda x: Graph(x), lambda b: b.x),
        (lambda x: [Graph(x, returns=False)], lambda b: b[0].x),
        (lambda x: Encoding(k=x), lambda b: b["k"]),
        (lambda x: [torch.nn.Parameter(x)], lambda b: b[0]),
    ],
)
def test_every_collection_is_moved_and_keeps_its_type(make: Any, get: Any) -> None:
    batch = make(torch.rand(2))
    moved = move_data_to_device(batch, META)
    assert get(moved).device == META
    if not isinstance(batch, MappingProxyType):
        assert type(moved) is type(batch)


@pytest.mark.feature("D-05")
def test_packed_sequences_are_moved_by_their_own_method() -> None:
    packed = pack_sequence([torch.rand(3, 1), torch.rand(2, 1)])
    moved = move_data_to_device([packed], "cpu")[0]
    assert type(moved) is type(packed)
    assert torch.equal(moved.data, packed.data)


def test_the_original_is_not_changed() -> None:
    x = torch.rand(2)
    batch = Batch(x, "n", [x])
    default = defaultdict(list, k=x)
    move_data_to_device([batch, default], META)
    assert batch.x is x
    assert batch.parts[0] is x
    assert default["k"] is x


def test_classes_and_modules_as_values_are_left_alone() -> None:
    batch = [torch.nn.Linear, "text", b"bytes", {1, 2}]
    assert move_data_to_device([batch, torch.rand(1)], META)[0] == batch


def test_apply_keeps_attributes_and_filters() -> None:
    def double(value: int, plus: int = 0) -> int:
        return 2 * value + plus

    data = {"a": 1, "b": [2, (3, "x")], "c": True}
    assert apply_to_collection(data, int, double, plus=1, wrong_dtype=bool) == {"a": 3, "b": [5, (7, "x")], "c": True}
    assert apply_to_collection([1, 2], int, lambda v: None if v == 1 else v, include_none=False) == [2]
    assert apply_to_collection({"a": 1}, int, lambda v: None, include_none=False) == {}
    made = apply_to_collection(defaultdict(list, a=1), int, double)
    assert made["new"] == []
    assert apply_to_collection("text", int, double) == "text"


NESTED = st.recursive(
    st.integers() | st.text() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=15,
)


@given(NESTED)
def test_the_identity_changes_nothing(data: Any) -> None:
    assert apply_to_collection(data, int, lambda v: v) == data
    assert move_data_to_device(data, CPU) == data

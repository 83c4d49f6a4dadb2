from __future__ import annotations

import time
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from fulmen.data.batch_size import batch_size_of, explain

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Item:
    x: Tensor
    name: str = "a long name"


class Graph:
    """Says how many graphs it holds, but that is for the sampler to tell."""

    num_graphs = 3
    batch_size = 3

    def __init__(self) -> None:
        self.x = torch.ones(9, 2)


def t(*shape: int) -> Tensor:
    return torch.zeros(*shape)


CASES: list[tuple[Any, int | None]] = [
    (t(4, 3), 4),
    (t(0, 3), 0),
    (torch.tensor(1.0), 1),
    ((t(5, 2), t(5)), 5),
    ([t(5, 2), torch.tensor(2.0)], 5),
    ([torch.tensor(1.0), torch.tensor(2.0)], 1),
    ({"x": t(6, 2), "names": ["a", "bb"], "n": 3, "none": None}, 6),
    ({"x": {"y": [t(7), (t(7, 1), "text")]}}, 7),
    (UserDict(x=t(2)), 2),
    (OrderedDict(x=t(2), y=t(3)), None),
    (Pair(t(3), None), 3),
    (Item(t(8)), 8),
    ([Item(t(8)), t(8, 8)], 8),
    ((np.zeros((4, 2)), t(4)), 4),
    (np.zeros((4, 2)), 4),
    ((t(4), t(5)), None),
    ("some text", None),
    (["a", "b"], None),
    ([1, 2, 3], None),
    ([], None),
    ({}, None),
    (None, None),
    (7, None),
    (Graph(), None),
    ((Graph(), t(3)), 3),
    (pack_sequence([t(3, 2), t(2, 2)]), None),
    (torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (5,), check_invariants=True), 5),
    (Item, None),
]


@pytest.mark.feature("L-02")
@pytest.mark.parametrize(("batch", "expected"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_batch_size(batch: Any, expected: int | None) -> None:
    assert batch_size_of(batch) == expected


def test_explain_names_the_sizes() -> None:
    assert explain({"x": t(4, 2), "y": t(5), "z": t(4)}) == "first dimensions in the batch: 4 (2 tensors), 5 (1 tensor)"
    assert explain(Graph()) == "no tensors were found in the batch (Graph)"
    assert explain([t(i) for i in range(12)]).endswith("7 (1 tensor) and 4 other sizes")


trees = st.recursive(
    st.sampled_from(["text", 3, None]) | st.just("TENSOR"),
    lambda child: st.lists(child, max_size=4) | st.dictionaries(st.text(max_size=2), child, max_size=4),
    max_leaves=12,
)


@given(trees, st.integers(1, 9))
def test_any_nesting_of_equal_tensors_has_their_size(tree: Any, size: int) -> None:
    found = [0]

    def fill(value: Any) -> Any:
        if value == "TENSOR":
            found[0] += 1
            return torch.zeros(size, 2)
        if isinstance(value, list):
            return [fill(item) for item in value]
        return {key: fill(item) for key, item in value.items()} if isinstance(value, dict) else value

    batch = fill(tree)
    assert batch_size_of(batch) == (size if found[0] else None)
    if found[0]:
        assert batch_size_of([batch, torch.zeros(size + 1)]) is None


def test_long_lists_of_numbers_are_not_walked() -> None:
    batch = {"x": t(4), "ids": list(range(1_000_000))}
    started = time.perf_counter()
    for _ in range(20):
        assert batch_size_of(batch) == 4
    assert time.perf_counter() - started < 0.5  # walking them takes seconds

"""The rest of a sampler without its beginning: the same indices, and the same random numbers afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from fulmen.data import skipping
from fulmen.data.skipping import indices_after

pytestmark = pytest.mark.feature("C-03")


class Own(RandomSampler):
    """A subclass may do anything."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(super().__iter__(), key=lambda index: -index))


KINDS: dict[str, Callable[[int, torch.Generator], Any]] = {
    "sequential": lambda n, g: SequentialSampler(range(n)),
    "random": lambda n, g: RandomSampler(range(n)),
    "random, own generator": lambda n, g: RandomSampler(range(n), generator=g),
    "fewer": lambda n, g: RandomSampler(range(n), num_samples=max(1, n // 2)),
    "more": lambda n, g: RandomSampler(range(n), num_samples=2 * n + 1, generator=g),
    "replacement": lambda n, g: RandomSampler(range(n), replacement=True),
    "weighted": lambda n, g: WeightedRandomSampler([1.0] * n, n, generator=g),
    "subset": lambda n, g: SubsetRandomSampler(range(n), generator=g),
    "subclass": lambda n, g: Own(range(n)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(length=st.integers(1, 40), share=st.floats(0, 1.3), more=st.integers(0, 3), seed=st.integers(0, 99))
def test_the_rest_and_the_random_numbers_are_the_samplers_own(
    kind: str, length: int, share: float, more: int, seed: int
) -> None:
    count, seen = int(share * length), []
    for cut in (False, True):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        sampler = KINDS[kind](length, generator)
        if cut:
            indices = indices_after(sampler, count)
        else:
            indices = iter(sampler)
            assert len(list(islice(indices, count))) <= count
        asked = range(length + more)  # some ask on after the end
        states = [(next(indices, None), torch.get_rng_state(), generator.get_state()) for _ in asked]
        seen.append([(index, a.tolist(), b.tolist()) for index, a, b in states])
    assert seen[0] == seen[1]


def test_another_torch_that_draws_otherwise_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "_permutes_as_torch_does", lambda: False)
    sampler = RandomSampler(range(9))
    asked = []
    monkeypatch.setattr(RandomSampler, "__iter__", lambda self: asked.append(1) or iter(range(9)))
    assert list(indices_after(sampler, 4)) == [4, 5, 6, 7, 8]
    assert asked == [1]


def test_the_check_finds_a_torch_that_draws_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    skipping._permutes_as_torch_does.cache_clear()
    assert skipping._permutes_as_torch_does()
    skipping._permutes_as_torch_does.cache_clear()
    monkeypatch.setattr(RandomSampler, "__iter__", lambda self: iter(range(7)))
    assert not skipping._permutes_as_torch_does()
    skipping._permutes_as_torch_does.cache_clear()

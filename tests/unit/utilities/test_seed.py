"""Seeds give Lightning's numbers; states come back bit for bit."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest
import torch

from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning
from fulmen.utilities.seed import (
    collect_rng_states,
    current_seed,
    isolate_rng,
    pl_worker_init_function,
    reset_seed,
    seed_calls,
    seed_everything,
    seed_rank,
    seed_sequence,
    set_rng_states,
    workers_are_seeded,
)


def draw() -> tuple[Any, ...]:
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(3).tolist()


@pytest.mark.feature("T-16")
def test_seed_sets_all_generators_and_the_environment() -> None:
    calls = seed_calls()
    assert seed_everything(7, workers=True, verbose=False) == 7
    first = draw()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert draw() == first
    for name in ("PL_GLOBAL_SEED", "FULMEN_GLOBAL_SEED"):
        assert os.environ[name] == "7"
    for name in ("PL_SEED_WORKERS", "FULMEN_SEED_WORKERS"):
        assert os.environ[name] == "1"
    assert workers_are_seeded()
    assert current_seed() == 7
    assert seed_calls() == calls + 1
    seed_everything(7, verbose=False)
    assert not workers_are_seeded()


@pytest.mark.feature("T-16")
def test_seed_is_taken_from_either_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "11")
    assert seed_everything(verbose=False) == 11
    monkeypatch.delenv("PL_GLOBAL_SEED")
    monkeypatch.setenv("FULMEN_GLOBAL_SEED", "12")
    assert seed_everything(verbose=False) == 12


@pytest.mark.feature("T-16")
def test_without_any_seed_it_is_zero_and_says_so() -> None:
    with pytest.warns(FulmenWarning, match="took 0"):
        assert seed_everything() == 0


@pytest.mark.feature("T-16")
@pytest.mark.parametrize(
    ("seed", "error", "words"),
    [
        (-1, ArgumentValueError, "-1 is out of range"),
        (2**32, ArgumentValueError, "4294967296 is out of range"),
        ("many", ArgumentValueError, "'many' is not a whole number"),
        ([1], ArgumentTypeError, r"\[1\] is not a whole number"),
    ],
)
def test_bad_seeds(seed: Any, error: type[Exception], words: str) -> None:
    before = torch.get_rng_state()
    with pytest.raises(error, match=words):
        seed_everything(seed)
    assert torch.equal(torch.get_rng_state(), before)
    assert "PL_GLOBAL_SEED" not in os.environ


@pytest.mark.feature("T-16")
def test_bad_seed_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "x1")
    with pytest.raises(ArgumentValueError, match="PL_GLOBAL_SEED: 'x1'"):
        seed_everything()


@pytest.mark.feature("T-16")
def test_the_seed_is_said_on_rank_zero_only(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    seed_everything(3)
    assert "Seed set to 3" in caplog.text
    caplog.clear()
    monkeypatch.setenv("RANK", "1")
    seed_everything(3)
    seed_everything(3, verbose=False)
    assert "Seed set" not in caplog.text


def test_reset_seed_goes_back_to_the_start() -> None:
    before = torch.get_rng_state()
    reset_seed()
    assert torch.equal(torch.get_rng_state(), before)
    seed_everything(5, verbose=False)
    first = draw()
    reset_seed()
    assert draw() == first


@pytest.mark.feature("T-16")
def test_ranks_have_one_stream_unless_asked_otherwise() -> None:
    seed_everything(5, verbose=False)
    start = torch.get_rng_state()
    assert not seed_rank(1)
    assert torch.equal(torch.get_rng_state(), start)
    seed_everything(5, verbose=False, per_rank=True)
    assert not seed_rank(0)
    assert torch.equal(torch.get_rng_state(), start)
    assert seed_rank(1)
    one = draw()
    assert seed_rank(2)
    assert draw() != one
    assert seed_rank(1)
    assert draw() == one


def test_states_come_back_and_are_plain(tmp_path: Any) -> None:
    random.gauss(0, 1)  # leaves a half-used pair in Python's and NumPy's generators
    np.random.randn()
    states = collect_rng_states()
    torch.save(states, tmp_path / "rng.pt")
    first = draw()
    loaded = torch.load(tmp_path / "rng.pt", weights_only=True)
    set_rng_states(loaded)
    assert draw() == first


def test_isolate_rng_also_after_an_exception() -> None:
    before = collect_rng_states()
    with isolate_rng():
        draw()
    with pytest.raises(KeyError), isolate_rng():
        draw()
        raise KeyError
    after = collect_rng_states()
    assert after["python"] == before["python"]
    assert torch.equal(after["torch"], before["torch"])
    assert torch.equal(after["numpy"][1], before["numpy"][1])


@pytest.mark.feature("T-16")
def test_worker_seeds_differ_by_worker_and_rank_and_are_lightnings() -> None:
    seen = set()
    for worker in range(3):
        for rank in range(3):
            torch.manual_seed(100 + worker)
            pl_worker_init_function(worker, rank)
            seen.add(draw()[0])
    assert len(seen) == 9
    # Recorded from Lightning 2.6.6 (lightning.fabric.utilities.seed).
    assert seed_sequence(1, 2, 3, 4) == [
        12926348068055368906,
        2205480275932171651,
        2944613188940700936,
        4697769420924359273,
    ]

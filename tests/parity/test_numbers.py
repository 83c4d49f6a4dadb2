"""The same seed gives the same numbers as Lightning, bit for bit on CPU.

Every step's loss, gradients at each update, rates, counters, logged values after each batch and at each end, final
weights and optimizer states are compared. Epoch means may differ by 1e-6: they are summed in float64 here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework
from tests.parity.scenarios import SCENARIOS, Kept, train

Trained = Callable[[str, str], Kept]

MEAN = ("mean_a", "mean_b", "val_loss", "val_both")
"""Keys (without loader) that hold an epoch's mean, besides those that end in `_epoch`."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A scenario trained by a framework, once."""

    @cache
    def run(framework: str, name: str) -> Kept:
        return train(Framework(framework), SCENARIOS[name], tmp_path_factory.mktemp("run"))

    return run


def is_mean(where: str, key: str) -> bool:
    plain = key.split("/dataloader_idx_")[0]
    # What is logged for step and epoch holds the epoch's value under its own name once the epoch has ended.
    return plain in MEAN or plain.endswith("_epoch") or (plain == "both" and where.startswith(("epoch", "end")))


def assert_same_values(peer: list[tuple[str, dict[str, Tensor]]], ours: list[tuple[str, dict[str, Tensor]]]) -> None:
    assert [where for where, _ in ours] == [where for where, _ in peer]
    for (where, expected), (_, values) in zip(peer, ours, strict=True):
        assert values.keys() == expected.keys(), where
        for key, value in values.items():
            if is_mean(where, key):
                close = torch.allclose(value.double(), expected[key].double(), rtol=1e-6, atol=1e-7)
                assert close, f"{where}: {key} {value} {expected[key]}"
            else:
                assert torch.equal(value, expected[key]), f"{where}: {key} {value} {expected[key]}"


def assert_same_tensors(peer: Any, ours: Any, where: str) -> None:
    """Equal bit for bit, in nested dicts and lists."""
    if isinstance(peer, dict):
        assert ours.keys() == peer.keys(), where
        for key in peer:
            assert_same_tensors(peer[key], ours[key], f"{where}.{key}")
    elif isinstance(peer, list | tuple):
        assert len(ours) == len(peer), where
        for index, (a, b) in enumerate(zip(peer, ours, strict=True)):
            assert_same_tensors(a, b, f"{where}[{index}]")
    elif isinstance(peer, Tensor):
        assert torch.equal(ours, peer), f"{where}: {ours} instead of {peer}"
    else:
        assert ours == peer, where


def assert_same_run(peer: Kept, ours: Kept) -> None:
    assert_same_tensors(peer.losses, ours.losses, "losses")
    assert ours.rates == peer.rates
    assert ours.counters == peer.counters
    assert_same_tensors(peer.gradients, ours.gradients, "gradients")
    assert_same_values(peer.values, ours.values)
    assert_same_tensors(peer.weights, ours.weights, "weights")
    assert_same_tensors(peer.optimizer_states, ours.optimizer_states, "optimizer states")
    assert ours.end == peer.end


@pytest.mark.feature(
    "M-01", "O-01", "O-02", "O-03", "O-04", "O-05", "O-07", "O-08", "O-09", "L-01", "L-03", "T-03", "T-04"
)
@pytest.mark.parametrize("name", SCENARIOS)
def test_strict_numbers_are_the_peers(name: str, trained: Trained) -> None:
    peer = trained(LIGHTNING, name)
    assert len(peer.losses) >= 2 and len(peer.values) >= 2
    assert_same_run(peer, trained(STRICT, name))


@pytest.mark.feature("O-01", "O-03", "O-07")
@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if not scenario.listed])
def test_right_numbers_are_the_peers_where_nothing_is_listed(name: str, trained: Trained) -> None:
    assert_same_run(trained(LIGHTNING, name), trained(RIGHT, name))

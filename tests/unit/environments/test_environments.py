"""Ranks and addresses without a cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from fulmen.engine.environments import ClusterEnvironment, LightningEnvironment
from fulmen.errors import ArgumentValueError
from fulmen.utilities.rank_zero import rank_zero_only

pytestmark = pytest.mark.feature("H-05")


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield
    del rank_zero_only.rank


def test_one_machine() -> None:
    environment = LightningEnvironment()
    assert LightningEnvironment.detect()
    assert not environment.creates_processes_externally
    assert environment.main_address == "127.0.0.1"
    port = environment.main_port
    assert environment.main_port == port
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
    ranks = (environment.world_size(), environment.global_rank(), environment.local_rank(), environment.node_rank())
    assert ranks == (1, 0, 0, 0)
    environment.validate_settings(num_devices=1, num_nodes=1)
    environment.set_world_size(4)
    environment.set_global_rank(3)
    assert (environment.world_size(), environment.global_rank(), rank_zero_only.rank) == (4, 3, 3)


def test_processes_started_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234", "LOCAL_RANK": "2", "GROUP_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    environment = LightningEnvironment()
    assert environment.creates_processes_externally
    assert (environment.main_address, environment.main_port) == ("10.0.0.1", 1234)
    assert (environment.local_rank(), environment.node_rank()) == (2, 1)
    monkeypatch.setenv("NODE_RANK", "5")
    assert environment.node_rank() == 5
    monkeypatch.setenv("WORLD_SIZE", "8")
    environment.teardown()
    assert "WORLD_SIZE" not in os.environ


@pytest.mark.parametrize("name", ["MASTER_PORT", "LOCAL_RANK", "NODE_RANK"])
def test_nonsense_names_the_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "first")
    environment = LightningEnvironment()
    with pytest.raises(ArgumentValueError, match=f"{name}='first' is not a whole number"):
        _ = environment.main_port, environment.local_rank(), environment.node_rank()


def test_an_environment_of_ones_own_says_what_it_lacks() -> None:
    class Half(ClusterEnvironment):
        pass

    with pytest.raises(TypeError, match="global_rank"):
        Half()  # type: ignore[abstract]  # the error is the test

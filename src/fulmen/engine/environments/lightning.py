"""One machine, or processes started by hand."""

from __future__ import annotations

import os
import socket

from fulmen.engine.environments.cluster_environment import ClusterEnvironment
from fulmen.errors import ArgumentValueError
from fulmen.utilities.rank_zero import rank_zero_only


class LightningEnvironment(ClusterEnvironment):
    """The environment where no cluster manager is at work.

    Either the launcher here starts the processes of this machine, or the user started each of them by hand and gave
    it ``LOCAL_RANK`` (and ``NODE_RANK``, ``MASTER_ADDR``, ``MASTER_PORT`` for several machines).
    """

    def __init__(self) -> None:
        self._port: int | None = None
        self._rank = 0
        self._world_size = 1

    @property
    def creates_processes_externally(self) -> bool:
        """Whether the user gave this process its rank."""
        return "LOCAL_RANK" in os.environ

    @property
    def main_address(self) -> str:
        """``MASTER_ADDR``, else this machine."""
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        """``MASTER_PORT``, else a port that was free when first asked."""
        text = os.environ.get("MASTER_PORT")
        if text is not None:
            return _number("MASTER_PORT", text)
        if self._port is None:
            self._port = find_free_port()
        return self._port

    @staticmethod
    def detect() -> bool:
        """Return `True`: this is what is left when no cluster is found."""
        return True

    def world_size(self) -> int:
        """Return the number of processes that was set, 1 before."""
        return self._world_size

    def set_world_size(self, size: int) -> None:
        """Set the number of processes."""
        self._world_size = size

    def global_rank(self) -> int:
        """Return the rank that was set, 0 before."""
        return self._rank

    def set_global_rank(self, rank: int) -> None:
        """Set the rank, also for `rank_zero_only`."""
        self._rank = rank
        rank_zero_only.rank = rank

    def local_rank(self) -> int:
        """Return ``LOCAL_RANK``, else 0."""
        return _number("LOCAL_RANK", os.environ.get("LOCAL_RANK", "0"))

    def node_rank(self) -> int:
        """Return ``NODE_RANK`` or ``GROUP_RANK``, else 0."""
        name = "NODE_RANK" if "NODE_RANK" in os.environ else "GROUP_RANK"
        return _number(name, os.environ.get(name, "0"))

    def teardown(self) -> None:
        """Forget the world size that launched processes find."""
        os.environ.pop("WORLD_SIZE", None)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentValueError(f"environment variable {name}={text!r} is not a whole number.") from None


def find_free_port() -> int:
    """Return a port that is free on this machine now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port

"""What every environment answers."""

from __future__ import annotations

from abc import ABC, abstractmethod


class ClusterEnvironment(ABC):
    """Where the processes of a run live; subclass it for a scheduler of one's own."""

    @property
    @abstractmethod
    def creates_processes_externally(self) -> bool:
        """Whether somebody else starts the processes, so that nothing is to be launched here."""

    @property
    @abstractmethod
    def main_address(self) -> str:
        """Address of the machine of rank 0."""

    @property
    @abstractmethod
    def main_port(self) -> int:
        """A free port on the machine of rank 0, the same answer in all processes."""

    @staticmethod
    @abstractmethod
    def detect() -> bool:
        """Return whether this process runs in such an environment."""

    @abstractmethod
    def world_size(self) -> int:
        """Return the number of all processes."""

    @abstractmethod
    def set_world_size(self, size: int) -> None:
        """Set the number of all processes; ignored where the environment knows it."""

    @abstractmethod
    def global_rank(self) -> int:
        """Return the number of this process among all."""

    @abstractmethod
    def set_global_rank(self, rank: int) -> None:
        """Set the number of this process; ignored where the environment knows it."""

    @abstractmethod
    def local_rank(self) -> int:
        """Return the number of this process on its machine."""

    @abstractmethod
    def node_rank(self) -> int:
        """Return the number of this machine."""

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Check the trainer's arguments against what the environment says.

        Raises:
            ArgumentValueError: They contradict each other.
        """
        return None

    def teardown(self) -> None:
        """Take back what was put into the environment."""
        return None

"""What every kind of hardware offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch


class Accelerator(ABC):
    """A kind of hardware; subclass it and register the class to add one."""

    @abstractmethod
    def setup_device(self, device: torch.device) -> None:
        """Make `device` the current one of this process.

        Raises:
            ArgumentValueError: The device is of another kind.
        """

    def setup(self, trainer: Any) -> None:
        """Run when a trainer starts (for code written against Lightning)."""
        return None

    def teardown(self) -> None:
        """Release what was acquired."""
        return None

    @staticmethod
    @abstractmethod
    def parse_devices(devices: Any) -> Any:
        """Return what the argument `devices` means: a number of processes or a list of indices.

        Raises:
            ArgumentTypeError: It is of the wrong kind.
            ArgumentValueError: It asks for what is not there.
        """

    @staticmethod
    @abstractmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return the devices for what `parse_devices` returned, one per process."""

    @staticmethod
    @abstractmethod
    def auto_device_count() -> int:
        """Return how many devices ``devices="auto"`` means."""

    @staticmethod
    @abstractmethod
    def is_available() -> bool:
        """Return whether such hardware can be used here."""

    @staticmethod
    @abstractmethod
    def name() -> str:
        """Return the name, as in ``Trainer(accelerator=...)``."""

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Return what can be measured about a device; empty if nothing can."""
        return {}

    @classmethod
    def register_accelerators(cls, accelerator_registry: Any) -> None:
        """Register the class under its name."""
        accelerator_registry.register(cls.name(), cls, description=cls.__name__)

    @classmethod
    def missing(cls) -> str:
        """Return why the hardware cannot be used, for messages."""
        return f"{cls.__name__}.is_available() is False"

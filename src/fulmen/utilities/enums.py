"""Enumerations whose members are strings and compare without regard to case, `-` and `_`."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any


def _folded(value: str) -> str:
    return value.lower().replace("-", "_")


class LightningEnum(StrEnum):
    """Base of the string enumerations (Lightning's name for it)."""

    @classmethod
    def from_str(cls, value: str, source: str = "key") -> LightningEnum | None:
        """Return the member that fits by name (``source="key"``), by value (``"value"``) or by either (``"any"``)."""
        for member in cls:
            if source in ("key", "any") and _folded(member.name) == _folded(value):
                return member
            if source in ("value", "any") and _folded(member.value) == _folded(value):
                return member
        return None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Enum):
            other = other.value
        return isinstance(other, str) and _folded(self.value) == _folded(other)

    def __hash__(self) -> int:
        return hash(_folded(self.value))


class GradClipAlgorithmType(LightningEnum):
    """How `gradient_clip_val` is used: as the largest norm, or as the largest absolute value."""

    VALUE = "value"
    NORM = "norm"

    @staticmethod
    def supported_type(val: Any) -> bool:
        """Return whether `val` names an algorithm."""
        return any(member.value == val for member in GradClipAlgorithmType)

    @staticmethod
    def supported_types() -> list[str]:
        """Return the names of all algorithms."""
        return [member.value for member in GradClipAlgorithmType]

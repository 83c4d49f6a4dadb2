"""Read the argument `devices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError


def parse_process_count(devices: Any, kind: str = "cpu") -> int:
    """Return a number of processes for hardware whose devices have no index.

    Args:
        devices: A number above 0, also as a string; ``"auto"`` is 1.
        kind: Name of the accelerator, for messages.
    """
    fix = f"accelerator={kind!r} takes a number of processes, 1 or more, or 'auto'"
    if isinstance(devices, str):
        text = devices.strip()
        if text == "auto":
            return 1
        if not text.lstrip("+-").isdigit():
            raise ArgumentValueError(f"devices={devices!r}: {fix}.")
        devices = int(text)
    if isinstance(devices, bool) or not isinstance(devices, int):
        raise ArgumentTypeError(f"devices={devices!r}: {fix}.")
    if devices < 1:
        raise ArgumentValueError(f"devices={devices!r}: {fix}.")
    return devices


def parse_indices(devices: Any, available: Sequence[int], kind: str) -> list[int]:
    """Return indices of devices.

    Args:
        devices: A number n above 0 for the first n devices; -1 or ``"auto"`` for all; a list of indices; a string
            with a number, or with indices and commas (``"1,3"``, ``"0,"``).
        available: Indices of the devices that are there.
        kind: Name of the accelerator, for messages.

    Raises:
        ArgumentTypeError: It is of the wrong kind.
        ArgumentValueError: It is malformed, repeats an index, or asks for what is not there.
    """
    fix = "give a number of devices, -1 or 'auto' for all, or a list of indices"
    if isinstance(devices, str):
        devices = _from_text(devices, fix)
    if isinstance(devices, bool) or not isinstance(devices, int | Sequence):
        raise ArgumentTypeError(f"devices={devices!r}: {fix}.")
    if isinstance(devices, int):
        if devices < -1 or devices == 0:
            raise ArgumentValueError(f"devices={devices!r}: {fix}.")
        wanted = list(available) if devices == -1 else list(available)[:devices]
        if not wanted or len(wanted) < devices:
            raise ArgumentValueError(f"devices={devices!r}: {_what_is_there(available, kind)}.")
        return wanted
    wanted = list(devices)
    if not wanted:
        raise ArgumentValueError(f"devices={devices!r} is empty: {fix}.")
    if any(isinstance(index, bool) or not isinstance(index, int) for index in wanted):
        raise ArgumentTypeError(f"devices={devices!r}: indices are whole numbers.")
    if len(set(wanted)) != len(wanted):
        raise ArgumentValueError(f"devices={devices!r} names a device twice.")
    if missing := [index for index in wanted if index not in available]:
        raise ArgumentValueError(f"devices={devices!r}: {missing} not found; {_what_is_there(available, kind)}.")
    return wanted


def _from_text(text: str, fix: str) -> int | list[int]:
    stripped = text.strip()
    if stripped == "auto":
        return -1
    try:
        if "," in stripped:
            return [int(part) for part in stripped.split(",") if part.strip()]
        return int(stripped)
    except ValueError:
        raise ArgumentValueError(f"devices={text!r}: {fix}.") from None


def _what_is_there(available: Sequence[int], kind: str) -> str:
    if not available:
        return f"no {kind} device is there"
    return f"this machine has {len(available)} {kind} device{'s' * (len(available) > 1)}: {list(available)}"

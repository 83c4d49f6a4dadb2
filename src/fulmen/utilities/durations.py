"""Durations as users write them: a text, a timedelta, or a dict of its arguments."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest

UNITS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")


def read_duration(duration: Any, where: str) -> timedelta | None:
    """Read a duration given as text, timedelta, dict or `None`.

    Args:
        duration: ``"DD:HH:MM:SS"``, a timedelta, a dict of its arguments, or `None`.
        where: Stands in front of an error, such as ``"Timer(duration=5)"``.

    Raises:
        ArgumentTypeError: Another type.
        ArgumentValueError: Text or dict that cannot be read; a negative duration.
    """
    if duration is None:
        return None
    if isinstance(duration, str):
        match = re.fullmatch(r"(\d+):(\d\d?):(\d\d?):(\d\d?)", duration.strip())
        if match is None:
            raise ArgumentValueError(f"{where}: text has the form DD:HH:MM:SS, such as '00:12:00:00' for 12 hours.")
        days, hours, minutes, seconds = map(int, match.groups())
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    elif isinstance(duration, dict):
        for unit, count in duration.items():
            if unit not in UNITS:
                raise ArgumentValueError(f"{where}: {unit!r} is no unit.{suggest(str(unit), UNITS)} Units: {UNITS}.")
            if isinstance(count, bool) or not isinstance(count, (int, float)):
                raise ArgumentTypeError(f"{where}: {unit}={count!r} is no number.")
        span = timedelta(**duration)
    elif isinstance(duration, timedelta):
        span = duration
    else:
        raise ArgumentTypeError(f"{where}: give text DD:HH:MM:SS, a timedelta, a dict of its arguments, or None.")
    if span < timedelta(0):
        raise ArgumentValueError(f"{where}: a duration must not be negative.")
    return span

"""One hierarchy of exceptions and warnings for all of Fulmen.

An error says what was wrong (with the value), where, and what to do. A warning has a code (``FULMEN-W012``), comes
once per process and key, and can be silenced by code (`silence`) or through Python's own warning filters.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterable


class FulmenError(Exception):
    """Base class of all errors that Fulmen raises on its own account."""


class MisconfigurationException(FulmenError):
    """Something was configured or used in a way that cannot work (Lightning's name for it)."""


class ArgumentTypeError(MisconfigurationException, TypeError):
    """An argument has a type that is not accepted."""


class ArgumentValueError(MisconfigurationException, ValueError):
    """An argument has an accepted type, but a value that is not."""


class StepOutputError(MisconfigurationException):
    """A step returned something that training cannot go on with."""


class LoggingError(MisconfigurationException):
    """`self.log` was called with values, flags or in a place that is not allowed."""


class DataError(MisconfigurationException):
    """A data loader or a batch is missing, empty or of the wrong kind."""


class CheckpointError(FulmenError):
    """A checkpoint could not be written or read."""


class CorruptCheckpointError(CheckpointError):
    """A checkpoint file is torn, truncated or does not match its recorded digest."""


class UnsafeCheckpointError(CheckpointError):
    """Reading a value would need unpickling of code that was not allowed."""


class SIGTERMException(SystemExit):
    """Raised at a batch boundary after the process received SIGTERM."""


class FulmenWarning(UserWarning):
    """Base class of all warnings that Fulmen gives."""


class PossibleUserWarning(FulmenWarning):
    """A warning about something that may be intended (Lightning's name for it)."""


_SEEN: set[tuple[str, str]] = set()
_SILENCED: set[str] = {c.strip() for c in os.environ.get("FULMEN_SILENCE", "").split(",") if c.strip()}


def silence(*codes: str) -> None:
    """Switch warnings off by code, for example ``silence("FULMEN-W012")``."""
    _SILENCED.update(codes)


def forget_warnings() -> None:
    """Let every warning come once more (for tests and interactive sessions)."""
    _SEEN.clear()


def warn(
    code: str,
    message: str,
    *,
    key: str = "",
    category: type[Warning] = FulmenWarning,
    stacklevel: int = 2,
) -> None:
    """Give a warning once per process for this code and key.

    Args:
        code: Number of the warning, ``"W012"``; shown as ``FULMEN-W012``.
        message: What is wrong and what to do.
        key: Distinguishes warnings of one code (a metric's name, a loader's); each comes once.
        category: Class of the warning.
        stacklevel: As in `warnings.warn`, counted from the caller.
    """
    full = f"FULMEN-{code}"
    if full in _SILENCED or (full, key) in _SEEN:
        return
    _SEEN.add((full, key))
    warnings.warn(f"{message} [{full}]", category, stacklevel=stacklevel + 1)


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest candidate, or an empty string."""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""

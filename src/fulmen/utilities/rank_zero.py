"""Run, print and warn on one process only.

The rank is read from the environment when it is asked for, so that launchers may set it late; a strategy (or a test)
may also set `rank_zero_only.rank` itself.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")

# LOCAL_RANK goes before SLURM_PROCID: a job started by hand inside an allocation inherits SLURM's variables.
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")

log = logging.getLogger("fulmen")


class FulmenDeprecationWarning(DeprecationWarning):
    """Something works now and will not in a later version."""


def rank_from_env() -> int | None:
    """Return the rank that the environment gives to this process, or `None` where it says nothing."""
    for name in _RANK_VARIABLES:
        value = os.environ.get(name, "")
        if value.strip().isdigit():
            return int(value)
    return None


class _RankZeroOnly:
    """The decorator `rank_zero_only` together with the rank it asks for."""

    def __init__(self) -> None:
        self._rank: int | None = None

    @property
    def rank(self) -> int:
        """Global rank of this process: what was set, else the environment's, else 0."""
        return self._rank if self._rank is not None else (rank_from_env() or 0)

    @rank.setter
    def rank(self, value: int) -> None:
        self._rank = int(value)

    @rank.deleter
    def rank(self) -> None:
        self._rank = None

    @overload
    def __call__(self, fn: Callable[P, T], default: None = None) -> Callable[P, T | None]: ...

    @overload
    def __call__(self, fn: Callable[P, T], default: T) -> Callable[P, T]: ...

    def __call__(self, fn: Callable[P, T], default: T | None = None) -> Callable[P, T | None]:
        """Return a function that calls `fn` on rank 0 and returns `default` on all others."""

        @functools.wraps(fn)
        def on_rank_zero(*args: P.args, **kwargs: P.kwargs) -> T | None:
            return fn(*args, **kwargs) if rank_zero_only.rank == 0 else default

        return on_rank_zero

    def __reduce__(self) -> str:
        return "rank_zero_only"


rank_zero_only = _RankZeroOnly()


class _FallbackHandler(logging.Handler):
    """Writes to `sys.stderr` as long as the program has not configured logging itself."""

    def emit(self, record: logging.LogRecord) -> None:
        # Looked up per record: a program may configure logging after the first message.
        if logging.getLogger().handlers:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError, TypeError, AttributeError):
            self.handleError(record)


@functools.cache
def _configure_logging() -> Literal[True]:
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(_FallbackHandler())
    return True


@rank_zero_only
def rank_zero_info(*args: Any, stacklevel: int = 3, **kwargs: Any) -> None:
    """Log at level INFO to the logger ``fulmen``, on rank 0 only."""
    _configure_logging()
    log.info(*args, stacklevel=stacklevel, **kwargs)


@rank_zero_only
def rank_zero_debug(*args: Any, stacklevel: int = 3, **kwargs: Any) -> None:
    """Log at level DEBUG to the logger ``fulmen``, on rank 0 only."""
    _configure_logging()
    log.debug(*args, stacklevel=stacklevel, **kwargs)


@rank_zero_only
def rank_zero_warn(message: str | Warning, stacklevel: int = 3, **kwargs: Any) -> None:
    """Give a Python warning on rank 0 only; the keywords are those of `warnings.warn`."""
    warnings.warn(message, stacklevel=stacklevel, **kwargs)


def rank_zero_deprecation(message: str | Warning, stacklevel: int = 4, **kwargs: Any) -> None:
    """Give a deprecation warning on rank 0 only."""
    rank_zero_warn(
        message,
        stacklevel=stacklevel,
        category=kwargs.pop("category", FulmenDeprecationWarning),
        **kwargs,
    )


def rank_prefixed_message(message: str, rank: int | None) -> str:
    """Return the message with the rank in front, or unchanged if there is none."""
    return message if rank is None else f"[rank: {rank}] {message}"


class WarningCache(set[str]):
    """Messages given so far; each method gives a message the first time only."""

    def warn(self, message: str, stacklevel: int = 4, **kwargs: Any) -> None:
        """Warn once about `message`, on rank 0."""
        if message not in self:
            self.add(message)
            rank_zero_warn(message, stacklevel=stacklevel, **kwargs)

    def deprecation(self, message: str, stacklevel: int = 5, **kwargs: Any) -> None:
        """Give a deprecation warning once, on rank 0."""
        if message not in self:
            self.add(message)
            rank_zero_deprecation(message, stacklevel=stacklevel, **kwargs)

    def info(self, message: str, stacklevel: int = 4, **kwargs: Any) -> None:
        """Log `message` once at level INFO, on rank 0."""
        if message not in self:
            self.add(message)
            rank_zero_info(message, stacklevel=stacklevel, **kwargs)

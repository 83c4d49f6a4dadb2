"""Which failures are worth another try, how often, and how long to wait in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from fulmen.utilities.system import is_out_of_memory

_HOPELESS: tuple[type[BaseException], ...] = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    MisconfigurationException,
)
_WORDS = ("NCCL", "DataLoader worker (pid", "Connection reset", "Connection closed", "timed out", "Timed out")


def is_transient(error: BaseException) -> bool:
    """Whether a failure may not come again: I/O, network, memory, a lost worker process; never a programming error."""
    if isinstance(error, _HOPELESS) or not isinstance(error, Exception):
        return False
    if isinstance(error, (OSError, TimeoutError)) or is_out_of_memory(error):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


@dataclass(frozen=True)
class RetryPolicy:
    """How a fit that failed is tried again: `Trainer(retry=RetryPolicy(...))`.

    The n-th further try begins after ``wait * factor**(n - 1)`` seconds, at most `longest`. It goes on from the newest
    whole checkpoint of the run, or from the beginning if there is none. A fit that got further than the last time
    counts its tries anew.

    Args:
        attempts: Further tries in a row without progress.
        wait: Seconds before the first of them.
        factor: By which the waiting grows.
        longest: Longest waiting, seconds.
        transient: Which exceptions are worth it: types, or a function of the exception; `is_transient` if not given.
        sleep: What waits.

    Raises:
        ArgumentTypeError: For a wrong type.
        ArgumentValueError: For a value out of range.
    """

    attempts: int = 3
    wait: float = 10.0
    factor: float = 2.0
    longest: float = 300.0
    transient: tuple[type[BaseException], ...] | Callable[[BaseException], bool] = is_transient
    sleep: Callable[[float], Any] = time.sleep

    def __post_init__(self) -> None:
        number: Any = self.attempts
        if isinstance(number, bool) or not isinstance(number, int):
            raise ArgumentTypeError(f"RetryPolicy(attempts={number!r}): must be an int of at least 0.")
        if number < 0:
            raise ArgumentValueError(f"RetryPolicy(attempts={number!r}): must be an int of at least 0.")
        for name, least in (("wait", 0.0), ("factor", 1.0), ("longest", 0.0)):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ArgumentTypeError(f"RetryPolicy({name}={value!r}): must be a number of at least {least:g}.")
            if not value >= least:
                raise ArgumentValueError(f"RetryPolicy({name}={value!r}): must be a number of at least {least:g}.")
        kinds: Any = self.transient
        types = isinstance(kinds, tuple) and all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds)
        if not types and (isinstance(kinds, tuple) or not callable(kinds) or isinstance(kinds, type)):
            raise ArgumentTypeError(
                f"RetryPolicy(transient={kinds!r}): must be a tuple of exception types, or a function that takes an "
                "exception and returns whether to try again."
            )

    def wants(self, error: BaseException) -> bool:
        """Whether to try again after this exception, if tries are left."""
        if isinstance(self.transient, tuple):
            return isinstance(error, self.transient)
        return bool(self.transient(error))

    def pause(self, attempt: int) -> float:
        """Seconds to wait before a try; `attempt` counts from 1."""
        return float(min(self.longest, self.wait * self.factor ** (attempt - 1)))

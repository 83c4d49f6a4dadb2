"""Measure, over a few batches, what share of the time training waits for its loader, and say what to set."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from fulmen.errors import PossibleUserWarning, warn
from fulmen.utilities.system import suggested_max_num_workers

MEASURED = 24
SHARE = 0.5
LEAST_WAIT_S = 0.01


class WaitWatch:
    """Stands in for a run's fetch during its first batches, then takes itself out.

    Args:
        fetch: What gives the next batch.
        replace: Called with `fetch` once enough was measured.
        loader: The loader, whose ``num_workers`` the warning is about.
        name: The loader's name in the warning.
    """

    def __init__(
        self, fetch: Callable[[], Any], replace: Callable[[Callable[[], Any]], None], loader: Any, name: str
    ) -> None:
        self._fetch = fetch
        self._replace = replace
        self._workers = getattr(loader, "num_workers", None)
        self._name = name
        self._waits: list[float] = []
        self._rounds: list[float] = []
        self._last = 0.0

    def __call__(self) -> Any:
        """Fetch a batch and take the time."""
        started = perf_counter()
        batch = self._fetch()
        ended = perf_counter()
        if self._last:
            self._waits.append(ended - started)
            self._rounds.append(ended - self._last)
        self._last = ended
        if len(self._waits) == MEASURED:
            self._replace(self._fetch)
            judge(self._waits, self._rounds, self._workers, self._name)
        return batch


def judge(waits: list[float], rounds: list[float], workers: int | None, name: str) -> None:
    """Give warning W105 if the median wait is long in itself and most of the median batch.

    Args:
        waits: Seconds spent in the loader, per batch.
        rounds: Seconds from one batch to the next.
        workers: The loader's ``num_workers``; `None` if it has no such thing (then nothing is said).
        name: The loader's name.
    """
    wait, whole = statistics.median(waits), statistics.median(rounds)
    best = suggested_max_num_workers(1)
    if workers is None or workers >= best or wait < LEAST_WAIT_S or wait < SHARE * whole:
        return
    warn(
        "W105",
        f"{name}: training waits {wait * 1e3:.0f} ms of every {whole * 1e3:.0f} ms per batch for its data (median of "
        f"{len(waits)} batches, num_workers={workers}). Set DataLoader(num_workers={best}, persistent_workers=True).",
        key=name,
        category=PossibleUserWarning,
    )

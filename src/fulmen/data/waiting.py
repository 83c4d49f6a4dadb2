"""Measure what training waits for: its batches, and the workers that are started anew; say what to set."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable
from time import monotonic, perf_counter, process_time
from typing import Any

import torch
from torch import Tensor

from fulmen.errors import PossibleUserWarning, warn
from fulmen.utilities.system import suggested_max_num_workers

log = logging.getLogger(__name__)

MEASURED = 24
SHARE = 0.5
LEAST_WAIT_S = 0.01
START_SHARE = 0.1
LEAST_START_S = 0.5
MOST_READERS = 16


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
        self._busy = 0.0
        self._last = 0.0

    def __call__(self) -> Any:
        """Fetch a batch and take the time."""
        started, busy = perf_counter(), process_time()
        batch = self._fetch()
        ended = perf_counter()
        if self._last:
            self._waits.append(ended - started)
            self._rounds.append(ended - self._last)
            self._busy += process_time() - busy
        self._last = ended
        if len(self._waits) == MEASURED:
            self._replace(self._fetch)
            computes = self._workers != 0 or self._busy > SHARE * sum(self._waits)
            judge(self._waits, self._rounds, self._workers, self._name, computes=computes)
        return batch


def judge(
    waits: list[float], rounds: list[float], workers: int | None, name: str, *, computes: bool = True
) -> int | None:
    """Give warning W105 if the median wait is long in itself and most of the median batch, and workers would help.

    A batch takes as long to read as was waited for it (with workers, which all were busy: their number times the
    time per batch); as many workers as that is of the rest of the time keep up with training.

    Args:
        waits: Seconds spent in the loader, per batch.
        rounds: Seconds from one batch to the next.
        workers: The loader's ``num_workers``; `None` if it has no such thing (then nothing is said).
        name: The loader's name.
        computes: Reading is work for the CPU, so that more workers than cores do not help; else it is waiting for
            disks or the network.

    Returns:
        The number of workers to set; `None` if nothing was said.
    """
    wait, whole = statistics.median(waits), statistics.median(rounds)
    if workers is None or wait < LEAST_WAIT_S or wait < SHARE * whole:
        return None
    reading = workers * whole if workers else wait
    training = max(whole - wait, 1e-6)
    enough = max(math.ceil(reading / training - 0.05), workers + 1)
    most = suggested_max_num_workers(1) if computes else MOST_READERS
    number = min(enough, most)
    if number <= workers:
        return None
    reason = f"{enough} would keep up"
    if number < enough:
        reason = f"this machine has cores for {most}" if computes else f"more than {most} seldom help"
        reason += "; the rest must come from a faster data set"
    warn(
        "W105",
        f"{name}: training waits {wait * 1e3:.0f} ms of every {whole * 1e3:.0f} ms per batch for its data (median of "
        f"{len(waits)} batches, num_workers={workers}). Set DataLoader(num_workers={number}): a batch takes "
        f"{reading * 1e3:.0f} ms to read and {training * 1e3:.0f} ms to train on ({reason}).",
        key=name,
        category=PossibleUserWarning,
    )
    return number


class StartClock:
    """Measures how long a loader's workers take from `begin` until each is ready for its first batch.

    Args:
        workers: Their number.
        name: The loader's name in the warning.

    Attributes:
        ready: When each worker was ready (``time.monotonic``), in shared memory.
    """

    def __init__(self, workers: int, name: str) -> None:
        self.ready: Tensor = torch.zeros(workers, dtype=torch.float64).share_memory_()
        self._name = name
        self._begun = self._period = 0.0

    def begin(self) -> None:
        """The workers are about to be started."""
        self.ready.zero_()
        self._begun = monotonic()

    def seconds(self) -> float | None:
        """Return how long the start took; `None` as long as not all workers are ready."""
        if not self._begun or not bool(self.ready.all()):
            return None
        return float(self.ready.max()) - self._begun

    def took_long(self) -> bool | None:
        """The next epoch begins: was the start long, and a good part of the time since then? `None`: not known."""
        took = self.seconds()
        if took is None:
            return None
        self._period = monotonic() - self._begun
        return took >= LEAST_START_S and took >= START_SHARE * self._period

    def tell(self, *, kept: bool) -> None:
        """Say what the start took, if it was long: warning W116, or a line in the log if workers are kept now.

        Args:
            kept: From now on workers are kept, and begin each epoch as new ones would.
        """
        if not self.took_long():
            return
        took, number = self.seconds() or 0.0, len(self.ready)
        told = (
            f"{self._name}: starting its {number} worker{'s' if number > 1 else ''} took {took:.1f} s of the "
            f"{self._period:.1f} s from the start of one epoch to that of the next ({took / self._period:.0%}, "
            "measured)."
        )
        if kept:
            log.info("%s They are kept from now on, and begin each epoch with the numbers of new ones.", told)
            return
        warn(
            "W116",
            f"{told} Set DataLoader(persistent_workers=True) to keep them. Their random numbers then go on from epoch "
            "to epoch, and changes of the data set in the main process no longer reach them.",
            key=self._name,
            category=PossibleUserWarning,
        )

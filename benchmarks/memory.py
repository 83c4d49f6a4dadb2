"""Resident memory over a long fit that logs twenty values per step.

python -m benchmarks.memory [--steps 200000] [--keys 20]
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset

import fulmen as L
from benchmarks.contenders import bare_trainer, settled

MARKS = 10


def resident_mb() -> float:
    """Resident memory of this process in MB."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # without /proc: the peak, in bytes on macOS
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


class Endless(IterableDataset[Any]):
    """One small batch again and again."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.batch = torch.ones(4)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.steps):
            yield self.batch

    def __len__(self) -> int:
        return self.steps


class ManyKeys(L.LightningModule):
    """Logs `keys` values per step in turns: of the step, of the epoch (mean, sum, max), of both; notes the memory."""

    def __init__(self, keys: int, every: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))
        self.ways: list[dict[str, Any]] = [
            {"on_step": True, "on_epoch": False},
            {"on_step": False, "on_epoch": True},
            {"on_step": True, "on_epoch": True, "prog_bar": True},
            {"on_step": False, "on_epoch": True, "reduce_fx": "sum"},
            {"on_step": False, "on_epoch": True, "reduce_fx": "max"},
        ]
        self.names = [f"key_{number}" for number in range(keys)]
        self.every = every
        self.resident: list[float] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = (self.weight * batch).sum()
        for number, name in enumerate(self.names):
            value = loss if number % 2 else float(batch_idx)
            self.log(name, value, **self.ways[number % len(self.ways)])
        if batch_idx % self.every == self.every - 1:
            gc.collect()
            self.resident.append(resident_mb())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def resident_over(steps: int, keys: int) -> list[float]:
    """Resident memory in MB at `MARKS` points of a fit, with bar off and a CSV logger on."""
    from fulmen.loggers import CSVLogger

    module = ManyKeys(keys, steps // MARKS)
    with tempfile.TemporaryDirectory() as folder, settled():
        logger = CSVLogger(folder)
        bare_trainer(L, Path(folder), logger=logger).fit(
            module, torch.utils.data.DataLoader(Endless(steps), batch_size=None)
        )
    return module.resident


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    marks = resident_over(args.steps, args.keys)
    for number, mark in enumerate(marks, 1):
        print(f"{number * args.steps // MARKS:>9,} steps  {mark:8.1f} MB")
    print(f"growth after the first tenth: {marks[-1] - marks[0]:+.1f} MB ({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()

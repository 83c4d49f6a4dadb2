"""What saving and resuming cost: `python -m benchmarks.checkpoints [--gates] [--megabytes N] [--rounds N]`.

Each row is a ratio to the same work by hand, the median over interleaved rounds: a synchronous save to `torch.save` and
fsync, the stall of a background save to a copy of the state into memory that was used before, and the way to batch
100,000 of an epoch to drawing the index lists up to there in a plain loop.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler, WeightedRandomSampler

from fulmen.data.plan import LoaderPlan
from fulmen.engine.storage import TorchCheckpointIO
from fulmen.engine.storage.async_io import AsyncCheckpointIO


@dataclass
class Row:
    """A ratio with its goal's gate; medians in seconds."""

    name: str
    by_hand: float
    own: float
    gate: float

    @property
    def ratio(self) -> float:
        return self.own / self.by_hand

    @property
    def holds(self) -> bool:
        return self.ratio <= self.gate


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(rounds: int, by_hand: Callable[[], float], own: Callable[[], float]) -> tuple[float, float]:
    """Medians of both, measured in turn; the first round warms up."""
    pairs = []
    for number in range(rounds + 1):
        pair = (by_hand(), own()) if number % 2 else (own(), by_hand())[::-1]
        if number:
            pairs.append(pair)
    ratios = sorted(pairs, key=lambda pair: pair[1] / pair[0])
    return ratios[len(ratios) // 2]


def state_of(megabytes: int) -> dict[str, Any]:
    """A state of many tensors of several sizes."""
    rows = megabytes * 2**20 // (4 * 1024 * 8)
    weights = {f"layer{i}.weight": torch.randn(rows, 1024) for i in range(8)}
    return {"state_dict": weights, "optimizer_states": [], "epoch": 1, "global_step": 10, "fulmen": {"run_id": "bench"}}


def plain_save(state: dict[str, Any], path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def saving(folder: Path, megabytes: int, rounds: int) -> list[Row]:
    state = state_of(megabytes)
    io, background = TorchCheckpointIO(), AsyncCheckpointIO()

    def fresh(name: str) -> Path:
        path = folder / name
        path.unlink(missing_ok=True)
        return path

    def by_hand() -> float:
        path = fresh("hand.ckpt")
        return seconds(lambda: plain_save(state, path))

    def own() -> float:
        path = fresh("own.ckpt")
        return seconds(lambda: io.save_checkpoint(state, path))

    rows = [Row(f"save {megabytes} MB / torch.save and fsync", *interleaved(rounds, by_hand, own), gate=1.10)]
    warm = {name: torch.empty_like(value) for name, value in state["state_dict"].items()}

    def copy() -> float:
        return seconds(lambda: [warm[name].copy_(value) for name, value in state["state_dict"].items()])

    def stall() -> float:
        path = fresh("background.ckpt")
        taken = seconds(lambda: background.save_checkpoint(state, path))
        background.wait()
        return taken

    stall()  # two sets of buffers are made once
    rows.append(Row(f"background save, stall / copy of {megabytes} MB", *interleaved(rounds, copy, stall), gate=1.3))
    background.teardown()
    return rows


class Numbers(Dataset[int]):
    """Counts what is read; nothing may be."""

    reads = 0

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        Numbers.reads += 1
        return index


def skipping(batches: int, rounds: int) -> list[Row]:
    data = Numbers(batches * 32 + 64)
    samplers: dict[str, tuple[Callable[[], Any], float]] = {
        "random": (lambda: RandomSampler(data), 0.5),
        "sequential": (lambda: SequentialSampler(data), 0.5),
        "weighted": (lambda: WeightedRandomSampler(torch.ones(len(data)), len(data)), 1.5),
    }
    rows = []
    for name, (make, gate) in samplers.items():
        loader: DataLoader[int] = DataLoader(data, batch_size=32, sampler=make())

        def by_hand(make: Callable[[], Any] = make) -> float:
            lists = iter(BatchSampler(make(), 32, drop_last=False))
            return seconds(lambda: sum(1 for _ in islice(lists, batches + 1)))

        def own(loader: DataLoader[int] = loader) -> float:
            Numbers.reads = 0
            plan = LoaderPlan(loader, by_count=False)
            taken = seconds(lambda: next(plan.start(skip=batches)))
            assert Numbers.reads == 32, Numbers.reads
            plan.close()
            return taken

        rows.append(Row(f"skip {batches} batches, {name} / index lists", *interleaved(rounds, by_hand, own), gate=gate))
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gates", action="store_true", help="exit with 1 if a gate fails")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("FULMEN_BENCH_FOLDER")) as folder:
        rows = saving(Path(folder), options.megabytes, options.rounds)
    rows += skipping(options.batches, options.rounds)
    print(f"{'':56} {'by hand s':>10} {'Fulmen s':>10} {'ratio':>7} {'gate':>6}")
    for row in rows:
        fails = "" if row.holds else "  FAILS"
        print(f"{row.name:56} {row.by_hand:10.3f} {row.own:10.3f} {row.ratio:7.2f} {row.gate:6.2f}{fails}")
    return int(options.gates and not all(row.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""A small training loop, by hand and over a `LoaderPlan`, whose every drawn number is recorded."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from fulmen.data.plan import LoaderPlan
from fulmen.data.rng import main_state, set_main_state

Trace = list[Any]


class Augmented(Dataset):
    """Each sample depends on its index and on draws from all three global generators."""

    def __init__(self, size: int = 14) -> None:
        self.size = size
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read.append(index)
        return torch.tensor([float(index), torch.rand(()).item(), random.random(), np.random.rand()])


class EagerBatches:
    """A batch sampler of the user's own, without `drop_last`, that draws its order in ``__iter__`` at once."""

    def __init__(self, size: int, generator: torch.Generator | None = None) -> None:
        self.size = size
        self.generator = generator

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.size, generator=self.generator).tolist()
        return iter([order[:3], order[3:4], order[4:9], order[9:]])

    def __len__(self) -> int:
        return 4


class OwnRandom(Sampler[int]):
    """Draws lazily, one index at a time, from a `random.Random` of its own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rng = random.Random(5)

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.size):
            yield self.rng.randrange(self.size)

    def __len__(self) -> int:
        return self.size


class SharedRandom(Augmented):
    """Draws from the generator that its sampler draws from, too."""

    def __init__(self, sampler: OwnRandom) -> None:
        super().__init__(sampler.size)
        self.rng = sampler.rng

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.cat([super().__getitem__(index), torch.tensor([self.rng.random()])])


def seed(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def step(batch: Any, trace: Trace) -> None:
    """Record the batch, and draw as dropout would."""
    trace.append((batch.tolist(), torch.rand(()).item(), random.random()))


def by_hand(make: Callable[[], Any], epochs: int = 3) -> Trace:
    seed(1)
    loader = make()
    trace: Trace = []
    for _ in range(epochs):
        for batch in loader:
            step(batch, trace)
        trace.append(torch.rand(()).item())
    return trace


def through_file(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def planned(
    make: Callable[[], DataLoader],
    epochs: int = 3,
    *,
    save_at: tuple[int, int] | None = None,
    resume: dict[str, Any] | None = None,
    close_first: bool = False,
    **options: Any,
) -> tuple[Trace, dict[str, Any] | None, LoaderPlan]:
    """Train over a plan; ``save_at=(epoch, batches)`` stops there and returns the checkpoint.

    ``close_first`` takes the checkpoint after the epoch was closed, as a save at the epoch's end would.
    """
    seed(1 if resume is None else 99)
    plan = LoaderPlan(make(), track_workers=True, **options)
    trace: Trace = []
    first = resume["epoch"] if resume else 0
    for epoch in range(first, epochs):
        if resume is not None:
            stream = resume["stream"]
            run = plan.start(skip=stream["batches"], stream=stream)
            set_main_state(resume["main"])
            resume = None
        else:
            run = plan.start()
        if save_at == (epoch, 0):
            return trace, checkpoint(epoch, run), plan
        for batch in run:
            step(batch, trace)
            if save_at == (epoch, run.batch_idx + 1):
                if close_first:
                    run.close()
                return trace, checkpoint(epoch, run), plan
        trace.append(torch.rand(()).item())
    return trace, None, plan


def checkpoint(epoch: int, run: Any) -> dict[str, Any]:
    return through_file({"epoch": epoch, "stream": run.stream_state(), "main": main_state()})

"""Training batches are read one ahead on an accelerator, where that changes nothing but time."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.data.plan import LoaderPlan
from fulmen.data.prefetch import DevicePrefetcher
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.loops.control import RunControl
from fulmen.engine.loops.loaders import Loaders

pytestmark = pytest.mark.feature("D-05")


class Boundary:
    """Streams that only note what is asked of them."""

    def __init__(self, device: torch.device) -> None:
        self.notes: list[str] = []

    def side(self) -> Any:
        self.notes.append("side")
        return contextlib.nullcontext()

    def join(self) -> None:
        self.notes.append("join")

    def keep(self, tensor: torch.Tensor) -> None:
        self.notes.append("keep")


class Hooked(L.LightningModule):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


def loaders(module: Any, device: str) -> Loaders:
    made = Loaders(module, None, {}, RunControl(), torch.device(device), None, lambda transfer: moved, cursor=Cursor())
    made.boundary = Boundary
    return made


def moved(batch: Any, dataloader_idx: int) -> Any:
    return [tensor + 1000 for tensor in batch]


def plan(**options: Any) -> LoaderPlan:
    pinned = options.pop("pinned", True)
    loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2, **options)
    loader.__dict__["pin_memory"] = pinned  # pinning itself needs a device
    return LoaderPlan(loader)


class Run:
    """Three batches, with what the prefetcher reads of a run."""

    def __init__(self) -> None:
        self.batch_idx, self.is_last, self.exhausted = -1, False, False

    def __next__(self) -> Any:
        if self.batch_idx == 2:
            self.exhausted = True
            raise StopIteration
        self.batch_idx += 1
        self.is_last = self.batch_idx == 2
        return [torch.tensor(float(self.batch_idx))]

    def indices_count(self) -> int:
        return 1

    def stream_state(self) -> dict[str, Any]:
        return {"batches": self.batch_idx + 1}

    def close(self) -> None:
        self.exhausted = True


def test_batches_are_read_ahead_and_on_the_device_when_the_loop_gets_them() -> None:
    room = loaders(L.LightningModule(), "cuda")
    run = room.prefetched(Run(), plan(num_workers=2))
    assert isinstance(run, DevicePrefetcher)
    transfer = room.transfer_of(run)
    got = [transfer(batch, 0)[0].item() for batch in run]
    assert got == [1000.0, 1001.0, 1002.0]  # moved once, not twice
    assert run.is_last


@pytest.mark.parametrize(
    ("device", "module", "options"),
    [
        ("cpu", L.LightningModule, {"num_workers": 2}),
        ("cuda", L.LightningModule, {"num_workers": 0}),
        ("cuda", L.LightningModule, {"num_workers": 2, "pinned": False}),
        ("cuda", Hooked, {"num_workers": 2}),
    ],
    ids=["cpu", "no workers", "not pinned", "own hook"],
)
def test_the_run_is_left_alone_elsewhere(device: str, module: Any, options: dict[str, Any]) -> None:
    room = loaders(module(), device)
    run = Run()
    assert room.prefetched(run, plan(**options)) is run
    assert room.transfer_of(run) is moved

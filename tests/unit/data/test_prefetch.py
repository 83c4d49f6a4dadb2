from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from fulmen.data.plan import LoaderPlan
from fulmen.data.prefetch import CudaBoundary, DevicePrefetcher
from fulmen.data.transfer import BatchTransfer
from fulmen.errors import ArgumentValueError
from tests.unit.data.streams import Augmented


class FakeDevice:
    """Notes what an accelerator would be told."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    @contextmanager
    def side(self) -> Iterator[None]:
        self.notes.append("side")
        yield
        self.notes.append("back")

    def join(self) -> None:
        self.notes.append("join")

    def keep(self, tensor: torch.Tensor) -> None:
        self.notes.append("keep")


def moved(batch: Any, dataloader_idx: int) -> Any:
    return batch


@pytest.mark.feature("D-05")
def test_the_next_batch_is_copied_on_the_side_before_the_current_one_is_used() -> None:
    device = FakeDevice()
    notes = device.notes

    def transfer(batch: Any, dataloader_idx: int) -> Any:
        notes.append(("copy", int(batch[0]), dataloader_idx))
        return [batch, {"again": batch}]

    ahead = DevicePrefetcher(LoaderPlan([torch.tensor([i]) for i in range(2)]).start(), transfer, device, 4)
    for batch in ahead:
        notes.append(("use", int(batch[0])))
    assert notes == [
        *("side", ("copy", 0, 4), "back"),
        *("join", "keep", "keep", "side", ("copy", 1, 4), "back", ("use", 0)),
        *("join", "keep", "keep", ("use", 1)),
    ]


@pytest.mark.feature("D-05")
@pytest.mark.parametrize("sized", [True, False])
def test_position_and_end_are_those_of_the_batch_returned(sized: bool) -> None:
    loader = DataLoader(Augmented(10), batch_size=4) if sized else (batch for batch in range(3))
    ahead = DevicePrefetcher(LoaderPlan(loader).start(), moved, FakeDevice())
    assert ahead.batch_idx == -1
    found = []
    for _ in ahead:
        state = ahead.stream_state()
        found.append((ahead.batch_idx, ahead.is_last, ahead.indices_count(), state["batches"], state["complete"]))
    counts = [4, 4, 2] if sized else [None] * 3
    assert found == [(i, i == 2, counts[i], i + 1, i == 2) for i in range(3)]
    assert list(ahead) == []


def test_empty_and_closed() -> None:
    assert list(DevicePrefetcher(LoaderPlan([1], limit=0).start(), moved, FakeDevice())) == []
    run = LoaderPlan([1, 2, 3]).start()
    ahead = DevicePrefetcher(run, moved, FakeDevice())
    ahead.close()
    assert list(ahead) == [] and list(run) == []


def test_streams_need_a_device_that_has_them() -> None:
    with pytest.raises(ArgumentValueError, match=r"device=device.type='cpu'. has no streams"):
        CudaBoundary(torch.device("cpu"))


def test_with_a_batch_transfer() -> None:
    ahead = DevicePrefetcher(LoaderPlan([torch.ones(2)]).start(), BatchTransfer(device="meta"), FakeDevice())
    assert next(ahead).device.type == "meta"

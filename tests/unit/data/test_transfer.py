from __future__ import annotations

import sys
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fulmen.data.transfer import BatchTransfer
from fulmen.errors import ArgumentTypeError, DataError

Pair = namedtuple("Pair", ["left", "right"])
META = torch.device("meta")


@dataclass
class Item:
    x: Tensor
    name: str


class Own:
    """A batch class with its own way to a device."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = torch.device(device)

    def to(self, device: torch.device) -> Own:
        return Own(device)


class Hooks:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def before(self, batch: Any, dataloader_idx: int) -> Any:
        self.calls.append(("before", dataloader_idx))
        return batch + 1

    def transfer(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        self.calls.append(("transfer", device, dataloader_idx))
        return batch * 2

    def after(self, batch: Any, dataloader_idx: int) -> Any:
        self.calls.append(("after", dataloader_idx))
        return batch - 3

    def convert(self, batch: Any) -> Any:
        self.calls.append("convert")
        return batch.double()

    def forgets(self, *args: Any) -> None:
        """Has no return."""


@pytest.mark.feature("D-05")
def test_nested_batches_are_moved() -> None:
    batch = {
        "a": [torch.ones(2), (torch.ones(1), "text", 3)],
        "b": Pair(torch.ones(1), None),
        "c": Item(torch.ones(1), "n"),
        "d": Own(),
    }
    moved = BatchTransfer(device="meta")(batch)
    assert moved["a"][0].device == moved["a"][1][0].device == META
    assert moved["a"][1][1:] == ("text", 3)
    assert type(moved["b"]) is Pair and moved["b"].left.device == META and moved["b"].right is None
    assert type(moved["c"]) is Item and moved["c"].x.device == META and moved["c"].name == "n"
    assert moved["d"].device == META
    assert batch["c"].x.device.type == "cpu"  # the user's batch is left as it was


@pytest.mark.feature("D-05")
def test_hooks_run_in_order_on_the_way() -> None:
    hooks = Hooks()
    transfer = BatchTransfer(hooks.before, hooks.transfer, hooks.after, device="cpu", convert_input=hooks.convert)
    result = transfer(torch.tensor(1.0), 2)
    assert result.item() == (1 + 1) * 2 - 3 and result.dtype is torch.float64
    assert hooks.calls == ["convert", ("before", 2), ("transfer", torch.device("cpu"), 2), ("after", 2)]


@pytest.mark.feature("D-05")
def test_without_a_transfer_hook_the_batch_is_moved_between_the_others() -> None:
    seen: list[str] = []

    def before(batch: Any, dataloader_idx: int) -> Any:
        seen.append(batch.device.type)
        return batch

    BatchTransfer(before, None, before, device=META)(torch.ones(1))
    assert seen == ["cpu", "meta"]


@pytest.mark.parametrize("place", range(3))
def test_a_hook_that_returns_nothing_is_named(place: int) -> None:
    hooks: list[Any] = [None, None, None]
    hooks[place] = Hooks().forgets
    with pytest.raises(DataError, match=r"Hooks.forgets returned None.*`return batch`"):
        BatchTransfer(*hooks, device="cpu")(torch.ones(1))
    assert BatchTransfer(*hooks, device="cpu")(None) is None  # a batch that is None may stay so


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"before": 3}, "before=3 is a int; give a bound method or None"),
        ({"transfer": "x"}, "transfer='x' is a str"),
        ({"after": []}, r"after=\[\] is a list"),
        ({"convert_input": 1.0}, "convert_input=1.0 is a float"),
        ({"device": 0}, "device=0 is a int; give a torch.device or its name"),
        ({"device": None}, "device=None"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        BatchTransfer(**{"device": "cpu", **arguments})


@pytest.mark.parametrize(
    "batch", [(torch.ones(2), torch.ones(2)), [torch.ones(2)], {"x": torch.ones(2)}, torch.ones(2)]
)
def test_plain_batch_costs_two_calls_and_stays_itself(batch: Any) -> None:
    transfer = BatchTransfer(device="cpu")
    calls: list[str] = []

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        result = transfer(batch, 0)
    finally:
        sys.setprofile(None)
    assert result is batch
    assert calls == ["__call__", "move_data_to_device"]

"""An error about dtypes names the layer and what it got."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fulmen.engine.precision import DoublePrecision, Precision, dtype_note


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        self.conv = nn.Conv1d(1, 1, 1)
        self.scale = nn.Parameter(torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x)


def failure(call: Any, *args: Any) -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        call(*args)
    return caught.value


@pytest.mark.feature("H-02")
def test_the_layer_and_both_dtypes_are_named() -> None:
    net = Net()
    note = dtype_note(failure(net, torch.rand(2, 2, dtype=torch.float64)), net, Precision())
    assert note is not None
    assert "Layer 'body.0' (Linear) has weights of float32 and got float64, with precision='32-true'" in note
    net.body[2].double()
    note = dtype_note(failure(net, torch.rand(2, 2)), net, DoublePrecision())
    assert note is not None
    assert "Layer 'body.2' (Linear) has weights of float64 and got float32, with precision='64-true'" in note
    note = dtype_note(failure(net.conv, torch.rand(1, 1, 4, dtype=torch.float16)), net, Precision())
    assert note is not None
    assert "Layer 'conv' (Conv1d)" in note
    note = dtype_note(failure(nn.Linear(1, 1), torch.arange(1)), net, Precision())
    assert note is not None
    assert "Layer 'Linear' (Linear) has weights of float32 and got int64" in note


@pytest.mark.feature("H-02")
def test_other_errors_get_none() -> None:
    net = Net()
    assert dtype_note(ValueError("dtype"), net, Precision()) is None
    assert dtype_note(failure(net, torch.rand(2, 5)), net, Precision()) is None  # about shapes
    error = failure(lambda: torch.mm(torch.ones(1, 1), torch.ones(1, 1).double()))
    assert dtype_note(error, net, Precision()) is None  # no layer in sight

"""A step that returns tensors with their graph is told what, where and how much."""

from __future__ import annotations

import warnings

import pytest
import torch

from fulmen.engine.loops.step_output import loss_of
from fulmen.errors import FulmenWarning

pytestmark = pytest.mark.feature("L-06")


class Net(torch.nn.Module):
    pass


def test_tensors_with_graph_are_named_with_their_size() -> None:
    weight = torch.ones(2**18, requires_grad=True)
    output = {"loss": weight.sum(), "hidden": weight * 2, "labels": torch.ones(3), "name": "x"}
    with pytest.warns(FulmenWarning, match=r"Net\.training_step returned 'hidden' with graph \(1\.00 MB.*W604"):
        loss_of(output, Net(), needs_grad=True)


def test_detached_ones_are_fine() -> None:
    weight = torch.ones(4, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loss_of({"loss": weight.sum(), "hidden": (weight * 2).detach()}, Net(), needs_grad=True) is not None

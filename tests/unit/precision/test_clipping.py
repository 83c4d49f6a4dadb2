"""Clipping is torch's, wrong arguments are said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fulmen.engine.precision import Precision, clip_gradients
from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.utilities.enums import GradClipAlgorithmType


def parameters(*gradients: list[float] | None) -> list[nn.Parameter]:
    made = []
    for values in gradients:
        parameter = nn.Parameter(torch.zeros(len(values) if values else 2))
        parameter.grad = None if values is None else torch.tensor(values)
        made.append(parameter)
    return made


@pytest.mark.feature("O-07")
@pytest.mark.parametrize("algorithm", ["norm", "NORM", None, GradClipAlgorithmType.NORM])
def test_by_norm(algorithm: Any) -> None:
    made = parameters([3.0, 0.0], None, [4.0])
    norm = clip_gradients(made, 1.0, algorithm)
    assert norm is not None
    assert norm.item() == 5.0
    torch.testing.assert_close(made[0].grad, torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(made[2].grad, torch.tensor([0.8]))


@pytest.mark.feature("O-07")
@pytest.mark.parametrize("algorithm", ["value", GradClipAlgorithmType.VALUE])
def test_by_value(algorithm: Any) -> None:
    made = parameters([3.0, -0.25], [-4.0])
    assert clip_gradients(made, 0.5, algorithm) is None
    assert made[0].grad is not None
    assert made[1].grad is not None
    assert made[0].grad.tolist() == [0.5, -0.25]
    assert made[1].grad.tolist() == [-0.5]


@pytest.mark.feature("O-07")
@pytest.mark.parametrize("limit", [None, 0, 0.0])
def test_no_limit_does_nothing(limit: Any) -> None:
    made = parameters([3.0])
    assert clip_gradients(made, limit) is None
    assert made[0].grad is not None
    assert made[0].grad.tolist() == [3.0]


@pytest.mark.feature("O-07")
def test_only_the_optimizers_own_parameters_are_clipped() -> None:
    mine, other = parameters([3.0], [4.0])
    more = parameters([4.0])[0]
    optimizer = torch.optim.SGD([{"params": [mine]}, {"params": [more]}], lr=1.0)
    assert list(Precision().main_params(optimizer)) == [mine, more]
    norm = Precision().clip(optimizer, 1.0)
    assert norm is not None
    assert norm.item() == 5.0
    assert other.grad is not None
    assert other.grad.tolist() == [4.0]


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8), st.floats(0.01, 100))
def test_the_limit_holds(values: list[float], limit: float) -> None:
    made = parameters(values)
    clip_gradients(made, limit, "norm")
    assert made[0].grad is not None
    assert made[0].grad.norm() <= limit * 1.001
    made = parameters(values)
    clip_gradients(made, limit, "value")
    assert made[0].grad is not None
    assert made[0].grad.abs().max() <= limit * 1.001


@pytest.mark.feature("O-07")
@pytest.mark.parametrize(
    ("limit", "algorithm", "error", "words"),
    [
        (1.0, "nrm", ArgumentValueError, "'nrm' is not known: give 'norm' or 'value'.*Did you mean 'norm'"),
        (1.0, "l2", ArgumentValueError, "gradient_clip_algorithm='l2'"),
        (1.0, 2, ArgumentTypeError, "gradient_clip_algorithm=2.*not a int"),
        (-1.0, "norm", ArgumentValueError, "gradient_clip_val=-1.0"),
        (float("nan"), "norm", ArgumentValueError, "gradient_clip_val=nan"),
        ("1", "norm", ArgumentTypeError, "gradient_clip_val='1'"),
        (True, "norm", ArgumentTypeError, "gradient_clip_val=True"),
    ],
)
def test_bad_arguments(limit: Any, algorithm: Any, error: type[Exception], words: str) -> None:
    made = parameters([3.0])
    with pytest.raises(error, match=words):
        clip_gradients(made, limit, algorithm)

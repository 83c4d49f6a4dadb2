"""Gradient norms, tied parameters, enumerations, overridden methods, machine facts, registries."""

from __future__ import annotations

import functools
import math
import os
import warnings
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

import fulmen.utilities as utilities
from fulmen.engine.precision import MixedPrecision, Precision
from fulmen.errors import ArgumentTypeError, ArgumentValueError, PossibleUserWarning
from fulmen.utilities.enums import GradClipAlgorithmType
from fulmen.utilities.grads import grad_norm
from fulmen.utilities.imports import module_available, package_version
from fulmen.utilities.model_helpers import is_overridden
from fulmen.utilities.parameter_tying import find_shared_parameters, set_shared_parameters
from fulmen.utilities.registry import Registry
from fulmen.utilities.system import (
    garbage_collection_cuda,
    is_out_of_memory,
    is_shared_filesystem,
    is_writable_folder,
    suggested_max_num_workers,
)
from fulmen.utilities.warnings import disable_possible_user_warnings


def test_every_listed_name_is_there() -> None:
    for name in utilities.__all__:
        assert getattr(utilities, name) is not None
    assert set(utilities.__all__) <= set(dir(utilities))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        utilities.nothing  # noqa: B018  # the access is the test


@pytest.mark.feature("O-07")
@pytest.mark.parametrize("order", [1, 2, "inf", 3.5])
def test_grad_norm_is_torchs(order: Any) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    net[0].bias.requires_grad_(False)
    net(torch.rand(5, 3)).sum().backward()
    norms = grad_norm(net, order, group_separator=".")
    key = f"grad_{float(order)}_norm"
    assert set(norms) == {f"{key}.0.weight", f"{key}.1.weight", f"{key}.1.bias", f"{key}_total"}
    total = torch.nn.utils.clip_grad_norm_(net.parameters(), math.inf, norm_type=float(order))
    torch.testing.assert_close(norms[f"{key}_total"], total)
    assert grad_norm(nn.Linear(1, 1), order) == {}


@pytest.mark.parametrize(
    ("order", "error", "words"),
    [
        (0, ArgumentValueError, "norm_type=0.*above 0"),
        (-1, ArgumentValueError, "norm_type=-1.*above 0"),
        (float("nan"), ArgumentValueError, "above 0"),
        ("two", ArgumentTypeError, "norm_type='two'"),
        (None, ArgumentTypeError, "norm_type=None"),
    ],
)
def test_bad_orders(order: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        grad_norm(nn.Linear(1, 1), order)


def test_shared_parameters_are_found_and_tied_again() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.inner = nn.Sequential(nn.Linear(3, 3))
            self.inner[0].weight = self.a.weight

    net = Tied()
    groups = find_shared_parameters(net)
    assert groups == [["a.weight", "inner.0.weight"]]
    net.inner[0].weight = nn.Parameter(torch.rand(3, 3))
    assert find_shared_parameters(net) == []
    assert set_shared_parameters(net, groups) is net
    assert net.inner[0].weight is net.a.weight


def test_enumerations_compare_by_folded_text() -> None:
    assert GradClipAlgorithmType.NORM == "NORM"
    assert GradClipAlgorithmType("value") is GradClipAlgorithmType.VALUE
    assert GradClipAlgorithmType.from_str("norm") is GradClipAlgorithmType.NORM
    assert GradClipAlgorithmType.from_str("Value", source="value") is GradClipAlgorithmType.VALUE
    assert GradClipAlgorithmType.from_str("both", source="any") is None
    assert str(GradClipAlgorithmType.NORM) == "norm"
    assert hash(GradClipAlgorithmType.NORM) == hash("norm")
    assert GradClipAlgorithmType.NORM != 3
    assert GradClipAlgorithmType.supported_types() == ["value", "norm"]
    assert GradClipAlgorithmType.supported_type("norm")
    assert not GradClipAlgorithmType.supported_type("l2")


class _Mine(Precision):
    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * 2


class _Wrapped(Precision):
    @functools.wraps(Precision.scale)
    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return super().scale(loss)


def test_is_overridden_sees_classes_instances_and_wrappers() -> None:
    assert not is_overridden("scale", Precision())
    assert not is_overridden("scale", MixedPrecision("bf16-mixed", "cpu"))
    assert is_overridden("scale", MixedPrecision("bf16-mixed", "cpu"), parent=Precision)
    assert is_overridden("scale", _Mine())
    assert not is_overridden("scale", _Wrapped())  # a decorator around the original changes nothing
    patched = Precision()
    patched.scale = lambda loss: loss  # type: ignore[method-assign]  # what users do in notebooks
    assert is_overridden("scale", patched)
    patched.scale = functools.partial(Precision.scale, patched)  # type: ignore[method-assign]  # still the original
    assert not is_overridden("scale", patched)
    patched.scale = Mock(wraps=Precision().scale)  # type: ignore[method-assign]  # what tests do
    assert not is_overridden("scale", patched)
    assert not is_overridden("nothing", Precision(), parent=Precision)


def test_is_overridden_needs_something_to_compare_with() -> None:
    with pytest.raises(ArgumentValueError, match="no base of Linear"):
        is_overridden("forward", nn.Linear(1, 1))
    with pytest.raises(ArgumentValueError, match="Precision has no such method"):
        is_overridden("forward", nn.Linear(1, 1), parent=Precision)


def test_what_is_installed() -> None:
    assert module_available("torch.nn")
    assert not module_available("torch.nothing.here")
    assert not module_available("no_such_package")
    assert package_version("torch")
    assert package_version("no-such-distribution") is None


@pytest.mark.parametrize(("cores", "processes", "workers"), [(8, 1, 7), (8, 2, 3), (8, 8, 1), (1, 4, 1)])
def test_suggested_workers(monkeypatch: pytest.MonkeyPatch, cores: int, processes: int, workers: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert suggested_max_num_workers(processes) == workers


def test_suggested_workers_refuses_nonsense() -> None:
    with pytest.raises(ArgumentValueError, match="at least one"):
        suggested_max_num_workers(0)
    with pytest.raises(ArgumentTypeError, match="whole number"):
        suggested_max_num_workers(1.5)  # type: ignore[arg-type]  # the error is the test


class _TwoRanks:
    """The answers of a second rank on the same (or another) file system."""

    world_size = 2

    def __init__(self, rank: int = 0, seen: bool = True) -> None:
        self.global_rank = rank
        self.seen = seen
        self.barriers = 0

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return obj

    def barrier(self, name: str | None = None) -> None:
        self.barriers += 1

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return decision and self.seen


def test_shared_file_systems(tmp_path: Any) -> None:
    assert is_shared_filesystem(_TwoRanks(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not is_shared_filesystem(_TwoRanks(seen=False), tmp_path)
    assert not is_shared_filesystem(_TwoRanks(rank=1), tmp_path, timeout=0)
    assert not is_shared_filesystem(_TwoRanks(), tmp_path / "missing")
    assert is_shared_filesystem(_TwoRanks(), "s3://bucket/folder")


def test_memory_errors_and_folders(tmp_path: Any) -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("x"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert not is_out_of_memory(RuntimeError("shape"))
    assert not is_out_of_memory(ValueError("out of memory"))
    garbage_collection_cuda()
    assert is_writable_folder(tmp_path)
    assert not is_writable_folder(tmp_path / "missing")


def test_possible_user_warnings_can_be_switched_off() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        disable_possible_user_warnings()
        warnings.warn("maybe", PossibleUserWarning, stacklevel=1)


def test_registry() -> None:
    table = Registry("thing")
    table.register("List", list, "a list")

    @table.register("pair", first=1)
    def pair(first: int, second: int = 2) -> tuple[int, int]:
        return first, second

    assert table.get("LIST") == []
    assert table.get("pair", second=5) == (1, 5)
    assert table["pair"] == {"thing": pair, "description": "", "init_params": {"first": 1}}
    assert list(table) == table.names() == ["list", "pair"]
    assert "Pair" in table
    assert 3 not in table
    assert len(table) == 2
    assert repr(table) == "Registry(list, pair)"
    with pytest.raises(ArgumentValueError, match="'list' is already a registered thing"):
        table.register("list", tuple)
    table.register("list", tuple, override=True)
    assert table.get("list") == ()
    table.remove("list")
    with pytest.raises(
        ArgumentValueError, match=r"thing 'pear' is not registered; there are pair\. Did you mean 'pair'"
    ):
        table.get("pear")
    with pytest.raises(ArgumentTypeError, match="name of a thing is a string"):
        table.register(3, list)  # type: ignore[arg-type]  # the error is the test

"""Prefixes and hyperparameters: flat, plain, safe."""

from __future__ import annotations

import dataclasses
import enum
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fulmen.errors import ArgumentTypeError
from fulmen.loggers.hparams_file import save_hparams_to_yaml
from fulmen.utilities.logger import add_prefix, convert_params, flatten_params, plain_params, sanitize_params

pytestmark = pytest.mark.feature("G-02", "G-09")


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    inner: Any = None


class Color(enum.Enum):
    RED = "r"


def test_add_prefix() -> None:
    metrics = {"a": 1, "b": 2}
    assert add_prefix(metrics, "", "-") is metrics
    assert add_prefix(metrics, "x", "-") == {"x-a": 1, "x-b": 2}
    assert metrics == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (None, {}),
        ({"a": 1}, {"a": 1}),
        (Namespace(a=1), {"a": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (Config(0.2, 3), {"lr": 0.2, "inner": 3}),
    ],
)
def test_convert(params: Any, expected: dict[str, Any]) -> None:
    converted = convert_params(params)
    assert converted == expected
    assert type(converted) is dict
    assert converted is not params


@pytest.mark.parametrize("params", [3, "lr=1", [("a", 1)], Config])
def test_convert_refuses(params: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="must be a mapping"):
        convert_params(params)


def test_flatten() -> None:
    nested = {
        "a": {"b": 1, 2: {"c": 3}},
        "ns": Namespace(x=1),
        "dc": Config(inner=Config(lr=2.0)),
        "list": [{"u": 1}, {"v": 2}],
        "plain": [1, 2],
        "empty": [],
    }
    assert flatten_params(nested) == {
        "a/b": 1,
        "a/2/c": 3,
        "ns/x": 1,
        "dc/lr": 0.1,
        "dc/inner/lr": 2.0,
        "dc/inner/inner": None,
        "list/0/u": 1,
        "list/1/v": 2,
        "plain": [1, 2],
        "empty": [],
    }
    assert flatten_params({"a": {"b": 1}}, delimiter=".") == {"a.b": 1}


def test_sanitize() -> None:
    given: dict[str, Any] = {"b": True, "n": np.int64(3), "t": torch.tensor(2.0), "m": torch.ones(2), "x": None}
    clean = sanitize_params(given)
    assert clean["b"] is True
    assert (clean["n"], type(clean["n"])) == (3, int)
    assert clean["t"] is given["t"]
    assert clean["m"] == str(torch.ones(2))
    assert clean["x"] == "None"
    assert given["x"] is None, "the caller's mapping is not changed"


def test_plain_and_yaml(tmp_path: Path) -> None:
    class Odd:
        pass

    class Text(str):
        pass

    given: dict[Any, Any] = {
        "path": Path("a") / "b",
        "color": Color.RED,
        "tuple": (1, 2),
        "set": {3, 1},
        "np": np.float64(0.5),
        "array": np.arange(3),
        "tensor": torch.tensor([1.0, 2.0]),
        "huge": torch.zeros(100, 100),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "cls": torch.nn.ReLU,
        "fn": test_flatten,
        "lambda": lambda x: x,
        "odd": Odd(),
        "text": Text("t"),
        "config": Config(),
        5: "number as key",
    }
    plain = plain_params(given)
    assert plain["color"] == "RED"
    assert plain["tuple"] == [1, 2]
    assert plain["set"] == [1, 3]
    assert (plain["np"], plain["array"], plain["tensor"]) == (0.5, [0, 1, 2], [1.0, 2.0])
    assert plain["huge"] == "<Tensor of shape (100, 100)>"
    assert (plain["dtype"], plain["device"]) == ("torch.float16", "cpu")
    assert plain["cls"] == "torch.nn.modules.activation.ReLU"
    assert plain["fn"].endswith("test_params.test_flatten")
    assert plain["odd"].startswith("<")
    assert plain["odd"].endswith("Odd>")
    assert type(plain["text"]) is str
    save_hparams_to_yaml(tmp_path / "h.yaml", given)
    assert yaml.safe_load((tmp_path / "h.yaml").read_text()) == plain


def test_omegaconf(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"a": 1, "b": "${a}", "c": {"d": [1, "${a}"]}})
    expected = {"a": 1, "b": 1, "c": {"d": [1, 1]}}
    assert convert_params(config) == expected
    assert flatten_params({"cfg": config}) == {"cfg/a": 1, "cfg/b": 1, "cfg/c/d": [1, 1]}
    assert plain_params({"cfg": config, "l": config.c.d}) == {"cfg": expected, "l": [1, 1]}
    save_hparams_to_yaml(tmp_path / "h.yaml", config)
    assert yaml.safe_load((tmp_path / "h.yaml").read_text()) == expected

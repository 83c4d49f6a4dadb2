"""No file runs code when it is loaded, in whatever place and form the code is hidden."""

from __future__ import annotations

import functools
import os
import pathlib
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fulmen.engine.storage import TorchCheckpointIO, UnsafeValue, add_safe_types, encode, find_unsafe
from fulmen.errors import CheckpointError, UnsafeCheckpointError

pytestmark = pytest.mark.feature("C-07")


class Reduce:
    """The classic: a callable and its argument."""

    def __init__(self, trap: str) -> None:
        self.trap = trap

    def __reduce__(self) -> Any:
        return os.mkdir, (self.trap,)


class Eval(Reduce):
    def __reduce__(self) -> Any:
        return eval, (f"__import__('os').mkdir({self.trap!r})",)


class Build(Reduce):
    """Calls through a state setter instead of a constructor."""

    def __reduce__(self) -> Any:
        return functools.partial, (os.mkdir,), (os.mkdir, (self.trap,), {}, None)


class ListItems(Reduce):
    """Calls through the list items of a reduce value."""

    def __reduce__(self) -> Any:
        return Appender, (), None, iter([self.trap])


class Appender(list):
    def append(self, item: str) -> None:
        os.mkdir(item)

    def extend(self, items: Any) -> None:
        for item in items:
            os.mkdir(item)


class State(Reduce):
    def __reduce__(self) -> Any:
        return State, ("",), {"trap": self.trap}

    def __setstate__(self, state: Any) -> None:
        os.mkdir(state["trap"])


class Lookup(Reduce):
    """Finds its function by getattr on an allowed class."""

    def __reduce__(self) -> Any:
        return getattr, (Reduce(self.trap), "x")


class Key(Reduce):
    """Runs when it becomes a key."""

    def __hash__(self) -> int:
        if os.path.isabs(self.trap):
            os.mkdir(self.trap)
        return 1

    def __reduce__(self) -> Any:
        return Key, (self.trap,)


ATTACKS = [Reduce, Eval, Build, ListItems, State, Lookup, Key]
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "top": lambda x: {"state_dict": {}, "x": x},
    "hparams": lambda x: {"state_dict": {}, "hyper_parameters": {"deep": [{"er": (x,)}]}},
    "callbacks": lambda x: {"callbacks": {"ModelCheckpoint": {"best_k_models": {"a": x}}}},
    "optimizer": lambda x: {"optimizer_states": [{"state": {0: {"exp_avg": x}}, "param_groups": [{"lr": x}]}]},
    "state_dict": lambda x: {"state_dict": {"w": x}},
}


@pytest.fixture
def trap(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "trap"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("attack", ATTACKS)
class TestPickles:
    def test_in_a_foreign_file(self, attack: Any, place: str, trap: pathlib.Path, tmp_path: pathlib.Path) -> None:
        torch.save(PLACES[place](attack(str(trap))), tmp_path / "a.ckpt")
        with pytest.raises(UnsafeCheckpointError) as caught:
            TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")
        assert not trap.exists()
        assert "weights_only=False" in str(caught.value)
        assert "add_safe_types" in str(caught.value)

    def test_in_a_file_of_fulmens_form(
        self, attack: Any, place: str, trap: pathlib.Path, tmp_path: pathlib.Path, another_process: Any
    ) -> None:
        TorchCheckpointIO().save_checkpoint(PLACES[place](attack(str(trap))), tmp_path / "a.ckpt")
        another_process()
        back = TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt", weights_only=True)
        assert not trap.exists()
        assert find_unsafe(back)


def test_they_would_run_if_they_were_let(trap: pathlib.Path, tmp_path: pathlib.Path, another_process: Any) -> None:
    TorchCheckpointIO().save_checkpoint({"x": Reduce(str(trap))}, tmp_path / "a.ckpt")
    another_process()
    TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    assert trap.exists()


def test_registering_one_type_lets_no_other_in(
    trap: pathlib.Path, tmp_path: pathlib.Path, another_process: Any
) -> None:
    add_safe_types(torch.nn.Linear, torch.nn.Sequential)
    module = torch.nn.Sequential(torch.nn.Linear(1, 1))
    module.extra = Reduce(str(trap))
    checkpoint = encode({"x": module})
    # The list of names in the file is a courtesy; a lying one must not matter.
    checkpoint["fulmen"]["objects"]["x"]["needs"] = []
    checkpoint["fulmen"]["objects"]["x"]["seal"] = "0" * 64
    torch.save(checkpoint, tmp_path / "a.ckpt")
    another_process()
    back = TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")
    assert isinstance(back["x"], UnsafeValue)
    assert not trap.exists()


@pytest.mark.parametrize("mark", [None, "", "é", "0" * 64, 3, b"x", ["a"]])
def test_a_forged_seal(mark: Any, trap: pathlib.Path, tmp_path: pathlib.Path, another_process: Any) -> None:
    checkpoint = encode({"x": Reduce(str(trap))})
    checkpoint["fulmen"]["objects"]["x"]["seal"] = mark
    torch.save(checkpoint, tmp_path / "a.ckpt")
    assert isinstance(TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")["x"], UnsafeValue)
    assert not trap.exists()


def test_a_seal_of_this_process_on_another_pickle(trap: pathlib.Path, tmp_path: pathlib.Path) -> None:
    checkpoint = encode({"x": torch.nn.ReLU(), "y": Reduce(str(trap))})
    records = checkpoint["fulmen"]["objects"]
    records["y"]["seal"] = records["x"]["seal"]
    torch.save(checkpoint, tmp_path / "a.ckpt")
    assert isinstance(TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")["y"], UnsafeValue)
    assert not trap.exists()


@pytest.mark.parametrize(
    "payload",
    [
        lambda trap: pickle.dumps(Reduce(trap), protocol=2),
        lambda trap: pickle.dumps(Reduce(trap), protocol=4),
        lambda trap: f"cos\nmkdir\n(V{trap}\ntR.".encode(),
        lambda trap: f"cposix\nmkdir\n(V{trap}\ntR.".encode(),
        lambda trap: f"(V{trap}\nios\nmkdir\n.".encode(),
        lambda trap: f"c__builtin__\neval\n(V__import__('os').mkdir('{trap}')\ntR.".encode(),
        lambda trap: f"ctorch.serialization\nload\n(V{trap}\ntR.".encode(),
    ],
)
@pytest.mark.parametrize("form", ["zip", "bare"])
def test_crafted_files(payload: Any, form: str, trap: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data = payload(str(trap))
    path = tmp_path / "a.ckpt"
    if form == "bare":
        path.write_bytes(data)
    else:
        torch.save({"state_dict": {"w": torch.ones(2)}}, tmp_path / "whole")
        with zipfile.ZipFile(tmp_path / "whole") as whole, zipfile.ZipFile(path, "w") as crafted:
            for name in whole.namelist():
                crafted.writestr(name, data if name.endswith("data.pkl") else whole.read(name))
    with pytest.raises(CheckpointError):
        TorchCheckpointIO().load_checkpoint(path)
    assert not trap.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_script_module_is_no_checkpoint(tmp_path: pathlib.Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), tmp_path / "a.ckpt")
    with pytest.raises(UnsafeCheckpointError, match="TorchScript"):
        TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")


def test_an_object_that_runs_code_when_pickled_cannot_break_saving(tmp_path: pathlib.Path) -> None:
    class Bad:
        def __reduce__(self) -> Any:
            raise ValueError("no")

    with pytest.warns(UserWarning, match="W071"):
        TorchCheckpointIO().save_checkpoint({"a": 1, "bad": Bad()}, tmp_path / "a.ckpt")
    assert TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")["a"] == 1


def test_lists_of_names_come_with_the_error(tmp_path: pathlib.Path) -> None:
    torch.save({"x": Reduce("t"), "y": torch.nn.ReLU()}, tmp_path / "a.ckpt")
    with pytest.raises(UnsafeCheckpointError, match=r"(?s)posix\.mkdir.*torch\.nn\.modules\.activation\.ReLU"):
        TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")


def test_registered_types_help_with_foreign_files(tmp_path: pathlib.Path) -> None:
    torch.save({"y": torch.nn.ReLU()}, tmp_path / "a.ckpt")
    before = set(torch.serialization.get_safe_globals())
    add_safe_types(torch.nn.ReLU)
    assert isinstance(TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")["y"], torch.nn.ReLU)
    assert set(torch.serialization.get_safe_globals()) == before


def test_foreign_files_with_harmless_values(tmp_path: pathlib.Path) -> None:
    value = {"p": pathlib.Path("p"), "f": frozenset([1]), "r": range(3), "s": slice(1)}
    torch.save(value, tmp_path / "a.ckpt")
    assert TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt") == value

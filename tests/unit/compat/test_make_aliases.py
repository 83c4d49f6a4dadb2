"""The alias files are what the tool writes, and lead to what Lightning has under that name."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest

from fulmen.compat.homes import HOMES
from tools import make_aliases


@pytest.fixture(scope="module")
def wanted() -> dict[Path, str]:
    return make_aliases.files()


@pytest.mark.feature("P-01")
def test_tree_is_what_the_tool_writes(wanted: dict[Path, str]) -> None:
    assert make_aliases.stale(wanted) == [], "run python -m tools.make_aliases"


def test_stale_files_are_found(wanted: dict[Path, str]) -> None:
    first, second, *_ = sorted(wanted)
    changed = {**wanted, first: wanted[first] + "# more\n"}
    del changed[second]
    missing = make_aliases.COMPAT / "path" / "lightning" / "missing.py"
    found = make_aliases.stale({**changed, missing: ""})
    assert len(found) == 3
    assert [line.rpartition(": ")[2] for line in sorted(found)] != []
    assert {line.rpartition(": ")[2] for line in found} == {"differs", "is missing", "would not be written"}


def test_all_families_have_the_same_modules(wanted: dict[Path, str]) -> None:
    path = make_aliases.COMPAT / "path"
    names = {p.relative_to(path).as_posix() for p in wanted if path in p.parents and p.suffix == ".py"}
    for long, short in (("lightning/pytorch/", "pytorch_lightning/"), ("lightning/fabric/", "lightning_fabric/")):
        below = {n.removeprefix(long) for n in names if n.startswith(long)}
        assert below == {n.removeprefix(short) for n in names if n.startswith(short)}
        assert below


def test_homes_name_classes_that_are_there() -> None:
    for module, classes in HOMES.items():
        for name in classes:
            kind = getattr(importlib.import_module(module), name)
            assert inspect.isclass(kind)
            assert kind.__module__ == module


def test_a_name_that_two_modules_define_must_be_settled() -> None:
    names = {"lightning.pytorch.core.thing": {"Thing": "lightning.pytorch.core.thing"}}
    with pytest.raises(SystemExit, match="say in SETTLED"):
        make_aliases.Book(names, {"Thing": ["fulmen.a", "fulmen.b"]}).tree()


def test_only_modules_with_something_of_their_own_get_a_file() -> None:
    names = {
        "lightning.pytorch.one": {"Callback": "lightning.pytorch.one"},
        "lightning.pytorch.two": {"Callback": "lightning.pytorch.one", "Two": "lightning.pytorch.two"},
        "lightning.pytorch.again": {"Callback": "lightning.pytorch.one"},
        "lightning.pytorch.loops.three": {"Callback": "lightning.pytorch.one"},
    }
    tree = make_aliases.Book(names, {"Callback": ["fulmen.callbacks.callback"]}).tree()
    assert set(tree) == {"lightning.pytorch.one", "lightning.pytorch.again"}


@pytest.mark.slow
@pytest.mark.feature("P-02")
def test_names_are_those_of_the_installed_lightning() -> None:
    """In this process the real package is the only one of its name."""
    import warnings

    with warnings.catch_warnings():
        found = make_aliases.read_lightning()
    recorded = json.loads(make_aliases.NAMES.read_text("utf-8"))
    assert found.keys() - recorded.keys() == set()
    for module in ("lightning", "lightning.pytorch.callbacks", "lightning.pytorch.utilities.types"):
        assert found[module] == recorded[module]

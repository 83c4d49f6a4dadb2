"""The rules of the house hold for the source; tests/architecture/test_checks.py shows that each rule can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.architecture import checks
from tools.architecture.exceptions import Exceptions
from tools.architecture.floors import House, edges_against_the_table, import_cycles
from tools.architecture.source import Finding, Source, load
from tools.features import FEATURES
from tools.features import load as load_features

ROOT = Path(__file__).resolve().parents[2]
# The alias files mirror Lightning's paths; they are data, held by the parity tests.
SOURCES = load(ROOT / "src" / "fulmen", skip=("compat/path",))
EXCEPTIONS = ROOT / "tests" / "architecture" / "exceptions.toml"


# Hook names that are also everyday words: of torch, of checkpoints, of plugins and launchers.
EVERYDAY = {"state_dict", "load_state_dict", "backward", "setup", "teardown"}


def _hook_strings(source: Source) -> list[Finding]:
    from fulmen.engine.hooks.spec import HOOK_NAMES

    return checks.hook_strings(source, HOOK_NAMES - EVERYDAY)


RULES: dict[str, Callable[[Source], list[Finding]]] = {
    "private": checks.private_attributes,
    "strategy": checks.strategy_tests,
    "hook_string": _hook_strings,
    "constructor": checks.wide_constructors,
    "file": checks.long_files,
    "function": checks.long_functions,
}


def _judge(rule: str, findings: list[Finding]) -> None:
    exceptions = Exceptions.read(EXCEPTIONS)
    left = exceptions.apply(rule, findings)
    assert not left, "\n" + "\n".join(map(str, left))
    assert not (unused := exceptions.unused(rule)), f"exceptions that nothing needs any more: {unused}"


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    _judge(rule, [finding for source in SOURCES for finding in RULES[rule](source)])


def test_no_import_against_the_table() -> None:
    _judge("edge", edges_against_the_table(SOURCES, House.from_pyproject(ROOT / "pyproject.toml")))


# The floors of the house, each left to right; several in one entry are independent of each other.
FLOORS: list[list[str]] = [
    ["version", "errors", "types", "utilities"],
    ["accelerators", "engine.environments", "engine.precision", "engine.storage", "profilers"],
    ["engine.launch", "strategies", "export"],
    ["engine.runtime", "loggers", "data"],
    ["engine.hooks", "engine.results", "core", "callbacks.callback"],
    ["engine.loops fabric"],
    ["tuner", "callbacks"],
    ["trainer"],
    ["integrations testing diagnostics serve deploy report"],
    ["cli"],
    ["plugins", "fabric.strategies", "pytorch", "demos", "", "compat"],
]


def test_contract_is_the_agreed_table() -> None:
    house = House.from_pyproject(ROOT / "pyproject.toml")
    ranks: list[float] = []
    for entry in (entry for floor in FLOORS for entry in floor):
        rooms = [f"fulmen.{room}".rstrip(".") for room in entry.split()] or ["fulmen"]
        assert len({house.rank[room] for room in rooms}) == 1, f"{rooms} are not side by side"
        ranks.append(house.rank[rooms[0]])
    assert ranks == sorted(set(ranks))
    named = {f"fulmen.{room}" for floor in FLOORS for entry in floor for room in entry.split()}
    assert house.rank.keys() - named == {"fulmen", "fulmen.fabric.plugins", "fulmen.fabric.utilities"}


def test_no_import_cycle() -> None:
    assert import_cycles(SOURCES) == []


def test_every_suppression_has_a_code_and_a_reason() -> None:
    bare = [finding for source in SOURCES for finding in checks.bare_suppressions(source)]
    assert not bare, "\n" + "\n".join(map(str, bare))


def test_few_suppressions() -> None:
    assert checks.too_many_suppressions(SOURCES) is None


def test_every_room_has_a_readme() -> None:
    house = House.from_pyproject(ROOT / "pyproject.toml")
    folders = [ROOT / "src" / Path(*room.split(".")) for room in house.rank if room != "fulmen"]
    missing = [str(f.relative_to(ROOT)) for f in folders if any(f.glob("*.py")) and not (f / "README.md").exists()]
    assert not missing


def test_list_of_features_is_the_agreed_one() -> None:
    agreed = ROOT.parent / "shared" / "features.md"
    if not agreed.exists():
        pytest.skip("the agreed list lies beside the checkout only where the project is built")
    assert FEATURES.read_text("utf-8") == agreed.read_text("utf-8"), "copy shared/features.md to docs/features.md"


def test_every_feature_is_known_to_the_matrix() -> None:
    import re

    mentioned = set(re.findall(r"^\| ([A-Z]-\d\d) \|", FEATURES.read_text("utf-8"), re.MULTILINE))
    mentioned |= set(re.findall(r"\b([KGVPRW]-\d\d)\b", FEATURES.read_text("utf-8")))
    assert mentioned == set(load_features())
    assert len(mentioned) > 150

"""The examples of the pages run, and generated parts are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import check_docs, policy_table

PAGES = check_docs.pages()


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(check_docs.ROOT)) for p in PAGES])
def test_examples_run(page: Path) -> None:
    assert check_docs.check(page) is None


def test_readme_has_examples() -> None:
    assert check_docs.ROOT / "README.md" in PAGES


def test_table_of_differences_is_current() -> None:
    assert policy_table.main(["--check"]) == 0


_TRACE = re.compile(r"^```text trace=(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LISTS = _TRACE.findall((check_docs.ROOT / "docs" / "hooks.md").read_text("utf-8"))


def follows(listed: list[str], recorded: list[str]) -> bool:
    """Whether all lines of a list come in a recording, in this order (other lines may lie between)."""
    rest = iter(recorded)
    return all(line in rest for line in listed)


@pytest.mark.parametrize(("trace", "lines"), LISTS, ids=[f"{i}-{name}" for i, (name, _) in enumerate(LISTS)])
def test_lists_of_hooks_are_in_the_recorded_order(trace: str, lines: str) -> None:
    recorded = check_docs.ROOT / "tests" / "parity" / "hooks" / "lightning" / f"{trace}.txt"
    assert follows(lines.split("\n")[:-1], recorded.read_text("utf-8").splitlines())


def test_a_wrong_order_is_found() -> None:
    assert follows(["a", "c"], ["a", "b", "c"])
    assert not follows(["c", "a"], ["a", "b", "c"])
    assert len(LISTS) > 5

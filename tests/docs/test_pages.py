"""The examples of the pages run, and generated parts are current."""

from __future__ import annotations

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

"""Paths and names in ARCHITECTURE.md and the pages exist, and the path of a batch is the one that runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.test_path_of_a_batch import Plain, fit, own_frames

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fulmen"
PAGE = ROOT / "ARCHITECTURE.md"
PAGES = [PAGE, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_FOLDERS = "|".join(sorted([*(p.name for p in PACKAGE.iterdir() if p.is_dir()), "src", "tests", "tools", "benchmarks"]))
_NAMED = re.compile(r"`([\w./-]+\.py):([\w.]+)`")
_PATH = re.compile(rf"`((?:{_FOLDERS})/[\w./-]*)`")
_FRAME = re.compile(r"^\d+\. `([\w/]+\.py):([\w.]+)`", re.MULTILINE)


def located(path: str) -> Path | None:
    """The file or folder that a path means, relative to the package or to the repository."""
    return next((base / path for base in (PACKAGE, ROOT) if (base / path).exists()), None)


def defines(file: Path, name: str) -> bool:
    """Whether a file defines a class, function, method or variable of a dotted name."""
    scope: ast.AST = ast.parse(file.read_text("utf-8"))
    for part in name.split("."):
        body = getattr(scope, "body", [])
        found = [
            node
            for node in body
            if getattr(node, "name", None) == part
            or (isinstance(node, ast.Assign) and part in {getattr(target, "id", None) for target in node.targets})
        ]
        if not found:
            return False
        scope = found[-1]
    return True


def missing(text: str) -> list[str]:
    """What a page names and the repository does not have."""
    wrong = []
    for path, name in _NAMED.findall(text):
        file = located(path)
        if file is None or not defines(file, name):
            wrong.append(f"{path}:{name}")
    return wrong + [path for path in _PATH.findall(text) if located(path) is None]


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_what_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text("utf-8")) == []


def test_the_page_names_much() -> None:
    assert len(_NAMED.findall(PAGE.read_text("utf-8"))) > 60


def test_what_is_missing_is_found() -> None:
    text = "`trainer/run.py:run` `trainer/run.py:RunGuard.fail` `data/` `tests/parity` `errors.py:warn`"
    assert missing(text) == []
    wrong = [
        "trainer/run.py:walk",
        "trainer/run.py:RunGuard.run",
        "trainer/walk.py:run",
        "engine/nothing/",
        "tests/x.py",
    ]
    assert missing(" ".join(f"`{name}`" for name in wrong)) == wrong


@pytest.mark.filterwarnings("ignore::fulmen.errors.FulmenWarning")  # advice about workers is not the subject here
def test_the_path_of_a_batch_is_the_one_that_runs() -> None:
    seen: list[list[str]] = []
    fit(Plain(lambda batch_idx: seen.append(own_frames())))
    told = [
        f"{path.rpartition('/')[2]}:{name.rpartition('.')[2]}" for path, name in _FRAME.findall(PAGE.read_text("utf-8"))
    ]
    assert told == seen[0][::-1]

"""Slow tests: least recently passed first, within the budget, and what was left is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.slow_tests import Budget, order, read_state

ROOT = Path(__file__).resolve().parents[3]


def test_order() -> None:
    state = {"b": {"passed_at": 20, "seconds": 1}, "d": {"passed_at": 10, "seconds": 1}}
    assert order(["a", "b", "c", "d"], state) == ["a", "c", "d", "b"]


def test_checkout_state_wins_over_the_committed_one(tmp_path: Path) -> None:
    (tmp_path / "evidence.json").write_text(json.dumps({"a": {"passed_at": 1}, "b": {"passed_at": 2}}))
    (tmp_path / "state.json").write_text(json.dumps({"b": {"passed_at": 3}}))
    read = read_state(tmp_path / "state.json", tmp_path / "evidence.json")
    assert read == {"a": {"passed_at": 1}, "b": {"passed_at": 3}}
    assert read_state(tmp_path / "none", tmp_path / "none") == {}


def test_a_test_that_does_not_fit_is_not_started() -> None:
    budget = Budget(100, {"known": {"passed_at": 1, "seconds": 30}})
    assert budget.fits("known", 70)
    assert not budget.fits("known", 71)
    assert budget.fits("new", 100)
    assert not budget.fits("new", 101)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -p no:cacheprovider\n")
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom pathlib import Path\nfrom tools import slow_tests as s\n"
        "s.ROOT = Path.cwd(); s.STATE = s.ROOT / '.cache/slow.json'; s.EVIDENCE = s.ROOT / 'docs/evidence/slow.json'\n"
        "sys.exit(s.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_no_slow_tests_is_no_failure(project: Path) -> None:
    (project / "test_a.py").write_text("def test_quick(): pass\n")
    done = run(project)
    assert (done.returncode, done.stdout) == (0, "There are no slow tests.\n")


def test_broken_collection_is_a_failure(project: Path) -> None:
    (project / "test_a.py").write_text("import nothing_of_the_kind\n")
    done = run(project)
    assert done.returncode == 1
    assert "nothing_of_the_kind" in done.stderr


def test_run_keeps_passes_and_leaves_what_does_not_fit(project: Path) -> None:
    (project / "test_a.py").write_text(
        "import pytest, time\npytestmark = pytest.mark.slow\n"
        "def test_one(): pass\ndef test_two(): assert False\ndef test_three(): pass\n"
    )
    done = run(project, "--record", "-k", "one or two")
    assert done.returncode == 1
    kept = json.loads((project / ".cache/slow.json").read_text())
    assert list(kept) == ["test_a.py::test_one"]
    assert json.loads((project / "docs/evidence/slow.json").read_text()) == kept
    done = run(project, "--budget", "0")
    assert done.returncode == 0
    assert "3 in all, 3 left" in done.stdout
    assert "test_a.py::test_three" in done.stdout

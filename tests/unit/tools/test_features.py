"""The list of features is read whole, and the matrix says what tests prove."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import feature_matrix, features
from tools.feature_matrix import FeaturePlugin, render, status

ROOT = Path(__file__).resolve().parents[3]

LIST = """# Title
An id in the introduction, Z-01, is none.

## M. Tables
| id | behaviour |
|---|---|
| M-01 | First, see M-02 and K-09. |
| M-02 | Second. |

## K. Prose
K-01 one. ModelCheckpoint (M-01), K-02 two, K-03…K-05 three to five; again K-01 more.

## R. Ranges
R-01–03 dashes, R-07...R-08 dots.
"""


def test_parse() -> None:
    found = features.parse(LIST)
    assert list(found) == [
        "M-01", "M-02", "K-01", "K-02", "K-03", "K-04", "K-05", "R-01", "R-02", "R-03", "R-07", "R-08",
    ]  # fmt: skip
    assert found["M-02"].text == "Second."
    assert found["K-01"].text.startswith("one. ModelCheckpoint")
    assert found["K-02"].section == "Prose"


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        ([], "not yet proven"),
        (["passed"], "proven"),
        (["passed", "skipped"], "proven"),
        (["passed", "failed"], "failing"),
        (["skipped"], "skipped"),
    ],
)
def test_status(outcomes: list[str], word: str) -> None:
    assert status({"outcome": o} for o in outcomes) == word


def test_render_names_tests_and_counts() -> None:
    results = {
        "tests/a/test_x.py::test_1": {"features": ["M-01"], "outcome": "passed"},
        "tests/a/test_x.py::test_2": {"features": ["M-01", "K-01"], "outcome": "passed"},
        "tests/b/test_y.py::test_3": {"features": ["K-01"], "outcome": "failed"},
    }
    text = render(features.parse(LIST), results)
    assert "1 proven, 1 failing, 0 skipped, 10 not yet proven, of 12." in text
    assert "| M-01 | proven | a/test_x.py (2) |" in text
    assert "| K-01 | failing | a/test_x.py (1); b/test_y.py (1)<br>failing: b/test_y.py::test_3 |" in text
    assert "| M-02 | not yet proven | – |" in text


def test_strict_fails_while_a_feature_is_unproven(tmp_path: Path) -> None:
    output = tmp_path / "matrix.md"
    arguments = ["--results", str(tmp_path / "none.json"), "--output", str(output)]
    assert feature_matrix.main(arguments) == 0
    assert feature_matrix.main([*arguments, "--strict"]) == 1
    assert output.read_text().count("not yet proven") > 100


CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tools.feature_matrix import FeaturePlugin

def pytest_configure(config):
    config.pluginmanager.register(FeaturePlugin(Path("results.json")))
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def test_plugin_records_outcomes_and_forgets_tests_that_are_gone(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    test_file = tmp_path / "test_sample.py"
    body = """
import pytest
pytestmark = pytest.mark.feature("M-01")

def test_good(): pass

@pytest.mark.feature("M-02", "M-03")
def test_bad(): assert False

@pytest.mark.skip(reason="not here")
def test_skipped(): pass

@pytest.fixture
def broken():
    yield
    raise RuntimeError

def test_bad_teardown(broken): pass
"""
    test_file.write_text(body)
    assert run_pytest(tmp_path).returncode == 1
    outcomes = {k.split("::")[1]: (v["outcome"], v["features"]) for k, v in results_of(tmp_path).items()}
    assert outcomes == {
        "test_good": ("passed", ["M-01"]),
        "test_bad": ("failed", ["M-01", "M-02", "M-03"]),
        "test_skipped": ("skipped", ["M-01"]),
        "test_bad_teardown": ("failed", ["M-01"]),
    }
    # A run of one test keeps what is known of the others, and so does one with -k.
    test_file.write_text(body.replace("assert False", "pass"))
    run_pytest(tmp_path, "test_sample.py::test_bad")
    run_pytest(tmp_path, "-k", "good")
    assert {v["outcome"] for k, v in results_of(tmp_path).items() if "test_bad" in k} == {"passed", "failed"}
    assert len(results_of(tmp_path)) == 4
    # A test that is gone from its file is forgotten.
    test_file.write_text("import pytest\n\n@pytest.mark.feature('M-01')\ndef test_good(): pass\n")
    run_pytest(tmp_path)
    assert list(results_of(tmp_path)) == ["test_sample.py::test_good"]


def test_plugin_refuses_unknown_ids(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n\n@pytest.mark.feature('M-99')\ndef test_good(): pass\n",
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 4
    assert "test_sample.py::test_good: M-99" in done.stdout + done.stderr


def test_plugin_is_loaded_here(pytestconfig: pytest.Config) -> None:
    assert isinstance(pytestconfig.pluginmanager.get_plugin("fulmen-features"), FeaturePlugin)

"""The Makefile has its targets, and .ci/run runs all steps, fails when one does, and repeats pytest's closing lines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TARGETS = ["demo", "test", "test-slow", "test-all", "lint", "types", "bench", "docs", "matrix", "clean"]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.mark.parametrize("target", TARGETS)
def test_target_exists_and_makes_the_environment(target: str) -> None:
    command = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("-m venv .venv" in done.stdout) == (target != "clean")


def run_ci(folder: Path, **recipes: str) -> subprocess.CompletedProcess[str]:
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    rules = [f"{name.replace('_', '-')}:\n\t@{recipe}\n" for name, recipe in recipes.items()]
    (folder / "Makefile").write_text("\n".join([".PHONY: lint types test test-slow", *rules]))
    # Started from elsewhere: the script finds its own checkout.
    return subprocess.run(
        ["bash", str(folder / ".ci" / "run")], cwd=folder.parent, capture_output=True, text=True, check=False
    )


GOOD = {
    "lint": "echo linted",
    "types": "echo typed",
    "test": "echo '===== 9 passed, 1 skipped, 3 deselected in 4.56s ====='",
    "test_slow": "echo '===== 2 passed in 60.00s (0:01:00) ====='; echo 'Slow tests: 2 in all'",
}


def test_ci_passes_and_closes_with_the_counts(tmp_path: Path) -> None:
    done = run_ci(tmp_path, **GOOD)
    assert done.returncode == 0
    lines = done.stdout.strip().splitlines()
    assert lines[-3:-1] == [
        "===== 2 passed in 60.00s (0:01:00) =====",
        "===== 9 passed, 1 skipped, 3 deselected in 4.56s =====",
    ]
    assert lines[-1].startswith("All checks passed")


def test_ci_without_slow_tests_passes(tmp_path: Path) -> None:
    done = run_ci(tmp_path, **GOOD | {"test_slow": "echo 'There are no slow tests.'"})
    assert done.returncode == 0
    assert done.stdout.strip().splitlines()[-2].startswith("===== 9 passed")


@pytest.mark.parametrize("step", list(GOOD))
def test_ci_fails_when_a_step_does_but_runs_the_others(step: str, tmp_path: Path) -> None:
    done = run_ci(tmp_path, **GOOD | {step: "echo broken; exit 1"})
    assert done.returncode == 1
    assert f"Failed: {step.replace('_', '-')}" in done.stdout
    for name, recipe in GOOD.items():
        assert name == step or recipe.split("'")[-2 if "'" in recipe else 0].removeprefix("echo ") in done.stdout

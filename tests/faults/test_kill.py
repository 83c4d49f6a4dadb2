"""Kill -9 at any moment, the same command again: the run ends as the one that nobody killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.feature("S-01", "C-03", "C-05", "T-11"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
]

ROOT = Path(__file__).parents[2]


def rounds(first: int, number: int, folder: Path) -> list[dict[str, object]]:
    """Play in a fresh process, which has no threads when it forks."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.rounds", str(first), str(number), str(folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def judge(played: list[dict[str, object]], least: int) -> None:
    assert [line for line in played if line["differences"]] == []
    assert sum(len(line["kills"]) for line in played) >= least  # type: ignore[arg-type]  # a list


def test_some_rounds(tmp_path: Path) -> None:
    judge(rounds(100, 3, tmp_path), 3)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_fifty_rounds(tmp_path: Path) -> None:
    played = rounds(0, 50, tmp_path)
    assert len(played) == 50
    judge(played, 60)

"""What a run's record says about code and machine: right where it can be told, silent where not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fulmen.utilities import machine
from fulmen.utilities.machine import git_state, hardware, packages


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    git_state.cache_clear()
    yield
    git_state.cache_clear()


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "model.py").write_text("width = 1\n")
    git(folder, "add", "model.py")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.mark.feature("C-10")
def test_clean_and_changed_code(repository: Path) -> None:
    clean = git_state(str(repository))
    assert clean == {"commit": git(repository, "rev-parse", "HEAD"), "branch": "trunk", "dirty": False, "diff": None}
    seen = []
    for text in ("width = 2\n", "width = 3\n", "width = 2\n"):
        (repository / "model.py").write_text(text)
        git_state.cache_clear()
        state = git_state(str(repository))
        assert state is not None and state["dirty"] is True and state["commit"] == clean["commit"]
        seen.append(state["diff"])
    assert seen[0] == seen[2] != seen[1]  # the digest says which changes, not only that there are some
    assert len(seen[0]) == len(hashlib.sha256().hexdigest())


def test_untracked_files_do_not_count(repository: Path) -> None:
    (repository / "notes.txt").write_text("x")
    state = git_state(str(repository))
    assert state is not None and state["dirty"] is False


def test_asked_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    run = subprocess.run

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return run(*args, **kwargs)

    monkeypatch.setattr(machine.subprocess, "run", counted)
    assert git_state(str(repository)) == git_state(str(repository))
    assert len(calls) == 2


def test_no_repository_no_git_and_no_commit_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(str(tmp_path)) is None
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    assert git_state(str(empty)) is None
    monkeypatch.setenv("PATH", "")
    assert git_state(str(tmp_path / "other")) is None


def test_a_git_that_hangs_is_given_up(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    monkeypatch.setattr(machine, "_SECONDS", 0.3)
    assert git_state(str(repository)) is None


@pytest.mark.parametrize("option", ["diff.external", "core.fsmonitor"])
def test_programs_that_a_repository_names_are_not_run(repository: Path, tmp_path: Path, option: str) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    (repository / "model.py").write_text("width = 2\n")
    git(repository, "config", option, str(program))
    state = git_state(str(repository))
    assert state is not None and state["dirty"]
    assert not (tmp_path / "ran").exists()


def test_packages_and_hardware() -> None:
    found = packages()
    assert found["torch"] == torch.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    facts = hardware("cpu")
    assert facts["device"] == "cpu" and facts["cpus"] >= 1 and "gpu" not in facts
    if os.path.exists("/proc/meminfo"):
        kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
        assert abs(facts["memory"] / 1024 / kilobytes - 1) < 0.01

"""Programs in processes of their own: aliases and the real package cannot both be imported in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def python(*arguments: str | Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the current folder, with warnings as errors off and one thread."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FULMEN_", "PYTHONPATH"))}
    env |= {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=env, timeout=120)
    if check and done.returncode:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def answers(code: str, **environment: str) -> dict[str, Any]:
    """Run a program that fills the dictionary `said`; return it."""
    whole = f"said = {{}}\n{code}\nimport json; print('SAID' + json.dumps(said))"
    line = python("-c", whole, **environment).stdout.rpartition("SAID")[2]
    return json.loads(line)

"""What a run's record says about the machine and the code: hardware, packages, git. Each is looked up once per process.

Nothing here raises: what cannot be found out is left out.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import sys
from typing import Any

import torch

from fulmen.utilities.system import available_cpus

# Packages whose versions belong to a run, as far as the process has imported them.
_PACKAGES = (
    "accelerate",
    "datasets",
    "deepspeed",
    "hydra",
    "jsonargparse",
    "lightning",
    "numpy",
    "omegaconf",
    "peft",
    "scipy",
    "sklearn",
    "torch_geometric",
    "torchaudio",
    "torchmetrics",
    "torchvision",
    "transformers",
)
_SECONDS = 2.0  # for each call of git
# Nothing that the repository's own configuration names is run, nothing is asked, and no lock is taken.
_QUIET = ("--no-optional-locks", "-c", "core.fsmonitor=false")
_PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")


@functools.cache
def git_state(folder: str | None = None) -> dict[str, Any] | None:
    """Return the commit that the code was at when this was first asked.

    Runs `git` twice, at most two seconds each. Files that git does not track do not count.

    Args:
        folder: A folder of the repository; by default that of the script that runs, or the working folder.

    Returns:
        ``commit``; ``branch``; ``dirty``, whether tracked files differ from it; and ``diff``, a SHA-256 of the
        difference (`None` without one). `None` outside of a repository, without git, or if it takes too long.
    """
    where = folder if folder is not None else _code_folder()
    head = _git(where, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    if head is None:
        return None
    commit, _, branch = head.decode(errors="replace").strip().partition("\n")
    diff = _git(where, "diff", *_PLAIN_DIFF, "HEAD")
    state: dict[str, Any] = {"commit": commit, "branch": branch}
    if diff is not None:
        state["dirty"] = bool(diff)
        state["diff"] = hashlib.sha256(diff).hexdigest() if diff else None
    return state


def _code_folder() -> str:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.dirname(os.path.abspath(script)) if script else os.getcwd()


def _git(folder: str, *arguments: str) -> bytes | None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *_QUIET, "-C", folder, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
            env=environment,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout


@functools.cache
def packages() -> dict[str, str]:
    """Return the versions of Python, torch, and of known packages that the process has imported by now."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in _PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found


@functools.cache
def hardware(device: str) -> dict[str, Any]:
    """Return what the machine has, and the device that is used.

    Args:
        device: Device as a text, such as ``"cuda:0"``; other devices are not looked at, which would start them.

    Returns:
        ``system``, ``processor``, ``cpus`` that the process may use, ``memory`` in bytes; a GPU's name and memory.
    """
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": available_cpus(),
        "memory": _memory(),
        "device": device,
    }
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(torch.device(device))
        found |= {"gpu": properties.name, "gpu_memory": properties.total_memory, "cuda": torch.version.cuda}
    return {name: value for name, value in found.items() if value is not None}


def _processor() -> str | None:
    """The processor's name; `platform.processor` would start a process."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read(4096)
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return None

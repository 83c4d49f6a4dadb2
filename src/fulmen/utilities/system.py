"""What the machine offers: workers, shared folders, memory errors."""

from __future__ import annotations

import gc
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from fulmen.errors import ArgumentTypeError, ArgumentValueError


def suggested_max_num_workers(local_world_size: int) -> int:
    """Return how many loader workers each process of this machine may have without crowding the CPU.

    Args:
        local_world_size: Number of training processes on this machine.

    Returns:
        The cores this process may use, less one for each process, shared evenly; at least 1.
    """
    if isinstance(local_world_size, bool) or not isinstance(local_world_size, int):
        raise ArgumentTypeError(f"suggested_max_num_workers({local_world_size!r}): give a whole number of processes.")
    if local_world_size < 1:
        raise ArgumentValueError(f"suggested_max_num_workers({local_world_size}): there is at least one process.")
    return max(1, available_cpus() // local_world_size - 1)


def available_cpus() -> int:
    """Return the number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_shared_filesystem(strategy: Any, path: str | os.PathLike[str] | None = None, timeout: int = 3) -> bool:
    """Return whether all processes see the same files under `path`.

    Args:
        strategy: Gives `world_size`, `global_rank`, `broadcast`, `barrier` and `reduce_boolean_decision`; three
            collectives run when there is more than one process.
        path: The folder to test; by default the current one. URLs of remote file systems count as shared.
        timeout: Seconds to wait for a file to appear.
    """
    import time

    if path is not None and len(urlsplit(str(path)).scheme) > 1 and urlsplit(str(path)).scheme != "file":
        return True
    folder = Path(path if path is not None else Path.cwd())
    folder = Path(str(strategy.broadcast(str(folder))))
    if not strategy.reduce_boolean_decision(folder.exists(), all=True):
        return False
    if getattr(strategy, "world_size", 1) == 1:
        return True
    directory = folder if folder.is_dir() else folder.parent
    probe = directory / str(strategy.broadcast(f".fulmen-probe-{uuid.uuid4().hex}"))
    if strategy.global_rank == 0:
        probe.touch()
    strategy.barrier("is_shared_filesystem")
    deadline = time.monotonic() + timeout
    while not (found := probe.exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    everywhere: bool = strategy.reduce_boolean_decision(found, all=True)
    if strategy.global_rank == 0:
        probe.unlink(missing_ok=True)
    return everywhere


def is_out_of_memory(exception: BaseException) -> bool:
    """Return whether an exception says that a device or the CPU ran out of memory."""
    if isinstance(exception, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(exception)
    return isinstance(exception, RuntimeError) and (
        "out of memory" in text
        or "CUDNN_STATUS_NOT_SUPPORTED" in text
        or "can't allocate memory" in text
        or "not enough memory: you tried to allocate" in text
    )


def garbage_collection_cuda() -> None:
    """Collect garbage in Python, then give cached device memory back."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def is_writable_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a file can really be created in a local folder."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False

"""The folder's list of files: digest, size and run of each, so that a torn or altered file is noticed.

The list is written before its file is renamed into place and names the digests of the file before as well. A process
that dies between the two leaves a folder in which old and new both verify.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Any, TypeAlias

from fulmen.engine.storage import filesystem
from fulmen.errors import warn

MANIFEST_NAME = ".fulmen-manifest.json"
VERSION = 1
FACTS = ("run_id", "step", "epoch", "module", "command", "logs", "resumable")
"""What an entry says of a file besides digest, size and time: run, counters, program, logs, whether a fit can go on."""

_FORMER = 3

Entry: TypeAlias = dict[str, Any]
Options: TypeAlias = dict[str, Any] | None

_lock = threading.RLock()


def _fresh_lock() -> None:
    global _lock
    _lock = threading.RLock()


# A fork while another thread holds the lock would leave the child with a lock that nobody opens.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


def read_manifest(folder: str, options: Options = None) -> dict[str, Entry]:
    """Return the entries by file name; a missing or unreadable list is empty (FULMEN-W073 for the latter)."""
    path = filesystem.join(folder, MANIFEST_NAME)
    try:
        if filesystem.is_local(path):
            with open(filesystem.local_path(path), "rb") as file:
                content = file.read()
        else:
            with filesystem.fetch(path, options) as file:
                content = file.read()
    except FileNotFoundError:
        return {}
    try:
        files = json.loads(content)["files"]
        return {name: entry for name, entry in files.items() if isinstance(entry, dict)}
    except (ValueError, KeyError, TypeError, AttributeError):
        warn("W073", f"{path} is unreadable and taken as empty; files there are checked without it.", key=path)
        return {}


def digests(entry: Entry) -> list[tuple[str, int]]:
    """Return the digests and sizes that a file may have, the newest first."""
    return [(str(e.get("digest")), int(e.get("size", -1))) for e in (entry, *entry.get("former", ()))]


def new_entry(digest: str, size: int, info: Mapping[str, Any] | None) -> Entry:
    """Return an entry for a file that was just written; `info` may hold what `FACTS` names."""
    facts = {key: (info or {}).get(key) for key in FACTS}
    return {"digest": digest, "size": size, "time": time.time(), **facts}


def publish(folder: str, name: str, entry: Entry, move: Callable[[], None], options: Options = None) -> None:
    """Enter a file into its folder's list and move it into place.

    Args:
        folder: The folder, path or URL.
        name: Name of the file in it.
        entry: Its new entry.
        move: Moves the complete file to its name.
        options: For fsspec.
    """
    with _locked(folder):
        files = read_manifest(folder, options)
        present = set(filesystem.list_names(folder, options))
        if name in files and name in present:
            former = [{"digest": d, "size": s} for d, s in digests(files[name])]
            entry = {**entry, "former": former[:_FORMER]}
        files = {known: e for known, e in files.items() if known in present}
        _write(folder, {**files, name: entry}, options)
        move()
        sync_folder(folder)


def forget(folder: str, name: str, options: Options = None) -> None:
    """Take a file out of its folder's list."""
    with _locked(folder):
        files = read_manifest(folder, options)
        if files.pop(name, None) is not None:
            _write(folder, files, options)


def _write(folder: str, files: dict[str, Entry], options: Options) -> None:
    path = filesystem.join(folder, MANIFEST_NAME)
    content = json.dumps({"version": VERSION, "files": files}, indent=1, default=str).encode()
    if not filesystem.is_local(path):
        filesystem.upload(BytesIO(content), path, options)
        return
    target = filesystem.local_path(path)
    temporary = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def sync_folder(folder: str) -> None:
    """Make renames in a local folder durable, on platforms and file systems that can."""
    if not filesystem.is_local(folder) or not hasattr(os, "O_DIRECTORY"):
        return
    # Some network file systems refuse; there the rename itself is all there is.
    with suppress(OSError):
        handle = os.open(filesystem.local_path(folder), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keep other threads, and other processes where the file system can, off a folder's list."""
    with _lock:
        handle = -1
        # Without such locks (Windows, some network file systems) only threads of this process are kept off.
        with suppress(ImportError, OSError):
            if filesystem.is_local(folder):
                import fcntl

                handle = os.open(filesystem.local_path(folder), os.O_RDONLY)
                fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if handle >= 0:
                # A child forked meanwhile has the handle too: closing ours alone would leave the folder locked.
                fcntl.flock(handle, fcntl.LOCK_UN)
                os.close(handle)

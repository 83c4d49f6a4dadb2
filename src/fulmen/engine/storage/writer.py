"""Writing files whole: temporary file, fsync, manifest, rename, fsync of the folder; and reading them back checked."""

from __future__ import annotations

import io
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, TypeAlias

import torch

from fulmen.engine.storage import filesystem, manifest
from fulmen.engine.storage.digest import digest_of, size_of
from fulmen.errors import CheckpointError
from fulmen.types import PathOrStr

Content: TypeAlias = "Mapping[str, Any] | bytes | Callable[[IO[bytes]], object] | Any"

_STALE_AFTER = 3600.0
_HOST = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:32] or "host"
_TEMPORARY = re.compile(r"^\..+\.(?P<host>[A-Za-z0-9]+)-(?P<pid>\d+)-[0-9a-f]{8}\.tmp$")
_swept: set[str] = set()


class _RawFile(io.FileIO):
    """The temporary file; keeps the first error, since torch replaces it by one that says less."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "x+")
        self.failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.failure = self.failure or error
            raise


class _NewFile:
    """A file under a temporary name, removed again unless it was moved into place."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._raw = _RawFile(path)
        self.file = io.BufferedWriter(self._raw, buffer_size=2**20)

    def __enter__(self) -> _NewFile:
        return self

    def seal(self) -> tuple[str, int]:
        """Flush, fsync and close; return digest and size."""
        self.file.flush()
        os.fsync(self._raw.fileno())
        facts = digest_of(self._raw), size_of(self._raw)
        self.file.close()
        return facts

    @property
    def failure(self) -> OSError | None:
        return self._raw.failure

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Below the buffer: closing that would try to write the rest once more.
        self._raw.close()
        with suppress(FileNotFoundError):
            os.unlink(self.path)


def write_atomic(
    content: Content,
    path: PathOrStr,
    *,
    info: Mapping[str, Any] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Write a file so that its name holds the old content or the whole new one, at any moment, also after a crash.

    Args:
        content: Bytes; or a function that writes to the open file it is given; or anything else, for `torch.save`.
        path: A path or fsspec URL. Missing folders are made.
        info: What the folder's manifest shall say besides digest and size: ``run_id``, ``step``, ``epoch``.
        storage_options: For fsspec, when `path` is a URL.

    Returns:
        The digest of the file, see `digest`.

    Raises:
        CheckpointError: It could not be written (no space, no rights, a folder of that name). What was there under
            this name is untouched; nothing temporary is left.
    """
    folder, name = filesystem.split(path)
    if not name or name == manifest.MANIFEST_NAME:
        raise CheckpointError(f"cannot write a checkpoint to {os.fspath(path)!r}: that is no name for a file.")
    try:
        if filesystem.is_local(path):
            return _write_local(content, folder, name, info)
        return _write_remote(content, path, folder, name, info, storage_options)
    except OSError as error:
        raise CheckpointError(
            f"could not write {os.fspath(path)}: {error.strerror or error}. What was there before is untouched."
        ) from error


def _write_local(content: Content, folder: str, name: str, info: Mapping[str, Any] | None) -> str:
    target = os.path.join(folder, name)
    os.makedirs(folder, exist_ok=True)
    if os.path.isdir(target) and not os.path.islink(target):
        raise IsADirectoryError(f"{target} is a folder")
    _sweep(folder)
    # A file name has at most 255 bytes, and the rest needs some of them.
    short = name.encode()[:150].decode(errors="ignore")
    temporary = os.path.join(folder, f".{short}.{_HOST}-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    with _NewFile(temporary) as new:
        try:
            _fill(content, new.file)
            digest, size = new.seal()
        except Exception as error:
            if new.failure is not None and error is not new.failure:
                raise new.failure from error
            raise
        entry = manifest.new_entry(digest, size, info)
        manifest.publish(folder, name, entry, lambda: os.replace(temporary, target))
    return digest


def _write_remote(
    content: Content,
    path: PathOrStr,
    folder: str,
    name: str,
    info: Mapping[str, Any] | None,
    options: dict[str, Any] | None,
) -> str:
    with filesystem.spool() as file:
        _fill(content, file)
        digest = digest_of(file)
        entry = manifest.new_entry(digest, size_of(file), info)
        manifest.publish(folder, name, entry, lambda: filesystem.upload(file, path, options), options)
    return digest


def _fill(content: Content, file: IO[bytes]) -> None:
    if isinstance(content, (bytes, bytearray, memoryview)):
        file.write(content)
    elif callable(content) and not isinstance(content, torch.nn.Module):
        content(file)
    else:
        torch.save(content, file)


def _sweep(folder: str) -> None:
    """Delete temporary files that a killed process of this machine left here, once per folder and process."""
    if folder in _swept:
        return
    _swept.add(folder)
    for name in filesystem.list_names(folder):
        found = _TEMPORARY.match(name)
        if found is None or found["host"] != _HOST or _alive(int(found["pid"])):
            continue
        path = os.path.join(folder, name)
        try:
            # The age is a second check: machines that share a folder may share a name, too.
            if time.time() - os.stat(path).st_mtime > _STALE_AFTER:
                os.unlink(path)
        except OSError:
            pass


def _alive(pid: int) -> bool:
    if os.name == "nt":  # there the call below would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

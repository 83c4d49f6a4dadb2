"""Files of loggers: local paths through `os`, URLs (``memory://``, ``s3://``) through fsspec, imported only then."""

from __future__ import annotations

import os
import re
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError

_VERSION_FOLDER = re.compile(r"version_(\d+)(?:_.*)?")
_TAIL = 1 << 16


def check_path(value: Any, argument: str, owner: str) -> str:
    """Return a path argument as text, or raise an error that names the argument.

    Raises:
        ArgumentTypeError: If it is neither text nor path-like.
    """
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        if isinstance(path, str):
            return path
    raise ArgumentTypeError(
        f"{owner}({argument}={value!r}): expected a str or a path, got {type(value).__name__}. "
        f"Pass a folder, for example {argument}='logs'."
    )


def check_version(value: Any, owner: str) -> int | str | None:
    """Return a version argument if it is a whole number, a text or `None`.

    Raises:
        ArgumentTypeError: If it is of another type.
        ArgumentValueError: If it is a negative number.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(
            f"{owner}(version={value!r}): expected an int (folder version_<n>), a str (folder of that name) or None "
            f"(next free number), got {type(value).__name__}."
        )
    if value < 0:
        raise ArgumentValueError(f"{owner}(version={value!r}): a version number counts from 0; use None for the next.")
    return value


def check_text(value: Any, argument: str, owner: str) -> str:
    """Return a text argument; `None` stands for the empty text.

    Raises:
        ArgumentTypeError: If it is of another type.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{owner}({argument}={value!r}): expected a str, got {type(value).__name__}.")
    return value


def is_url(path: str) -> bool:
    """Return whether the path belongs to fsspec; ``file://`` does not."""
    return "://" in path and not path.startswith("file://")


def local(path: str) -> str:
    """Return the path with ``file://``, ``~`` and environment variables expanded; a URL unchanged."""
    if is_url(path):
        return path
    return os.path.expanduser(os.path.expandvars(path.removeprefix("file://")))


def make_folder(path: str) -> None:
    """Create a folder and its parents."""
    if is_url(path):
        fs, inner = _remote(path)
        fs.makedirs(inner, exist_ok=True)
    else:
        os.makedirs(path, exist_ok=True)


def is_file(path: str) -> bool:
    """Return whether a file is there."""
    if is_url(path):
        fs, inner = _remote(path)
        return bool(fs.isfile(inner))
    return os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Return whether a folder is there."""
    if is_url(path):
        fs, inner = _remote(path)
        return bool(fs.isdir(inner))
    return os.path.isdir(path)


def entries(path: str) -> tuple[list[str], list[str]]:
    """Return the names of a folder's folders and of its files, both sorted; nothing if there is no such folder."""
    folders: list[str] = []
    files: list[str] = []
    if is_url(path):
        fs, inner = _remote(path)
        if fs.isdir(inner):
            for info in fs.ls(inner, detail=True):
                name = os.path.basename(str(info["name"]).rstrip("/"))
                (folders if info["type"] == "directory" else files).append(name)
    elif os.path.isdir(path):
        with os.scandir(path) as found:
            for entry in found:
                (folders if entry.is_dir() else files).append(entry.name)
    return sorted(folders), sorted(files)


def next_version(folder: str) -> int:
    """Return one more than the highest n of the folders ``version_n``, or 0."""
    folders, _ = entries(folder)
    taken = [int(match[1]) for name in folders if (match := _VERSION_FOLDER.fullmatch(name))]
    return max(taken) + 1 if taken else 0


def version_of(folder: str) -> int | str:
    """Return the version that a folder's name stands for: n of ``version_n``, else the name."""
    match = re.fullmatch(r"version_(\d+)", folder)
    return int(match[1]) if match else folder


def read_text(path: str) -> str:
    """Return a whole file as text, line ends as they are."""
    if is_url(path):
        fs, inner = _remote(path)
        return bytes(fs.cat_file(inner)).decode("utf-8")
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def replace_text(path: str, text: str) -> None:
    """Write a whole file so that a crash leaves either the old content or the new one."""
    data = text.encode("utf-8")
    if is_url(path):
        fs, inner = _remote(path)
        fs.pipe_file(inner, data)  # object stores publish a file when it is complete
        return
    partial = f"{path}.part"
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def cut_torn_line(path: str) -> None:
    """Drop what follows the last line end: a line that a crash left incomplete."""
    if is_url(path):
        text = read_text(path)
        if text and not text.endswith("\n"):
            replace_text(path, text[: text.rfind("\n") + 1])
        return
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - _TAIL)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                position = start + found + 1
                break
            position = start
        if position < end:
            file.truncate(position)


class AppendFile:
    """A text file that grows by whole lines.

    A local file is held open in append mode and each `append` is one `write` call, so that a line is never mixed with
    another's; the handle is closed by `close`, on pickling, and in a forked child, and opened again when needed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle: int | None = None
        self._pid = 0

    def append(self, text: str) -> None:
        """Add text, which should end with a line end."""
        data = text.encode("utf-8")
        if is_url(self.path):
            fs, inner = _remote(self.path)
            with fs.open(inner, "ab") as file:
                file.write(data)
            return
        if self._handle is None or self._pid != os.getpid():
            self._handle = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666
            )
            self._pid = os.getpid()
        written = os.write(self._handle, data)
        while written < len(data):  # a full disk or a signal
            data = data[written:]
            written = os.write(self._handle, data)

    def close(self) -> None:
        """Close the handle; the next `append` opens it again."""
        handle, self._handle = self._handle, None
        if handle is not None and self._pid == os.getpid():
            os.close(handle)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None}

    def __del__(self) -> None:
        # A run that was never finalized must not leave an open descriptor behind. At exit `os` may be gone.
        if self._handle is not None and os is not None:
            self.close()


def _remote(path: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    fs, inner = url_to_fs(path)
    return fs, str(inner)

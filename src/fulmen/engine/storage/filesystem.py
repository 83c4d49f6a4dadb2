"""Paths and URLs: where a file lives, through fsspec when it is not on this machine."""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from contextlib import suppress
from typing import IO, Any

from fulmen.types import PathOrStr

# These publish an object only when its upload is complete, and renaming there is a copy.
_ATOMIC_PUT = frozenset(["s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "r2"])
_SPOOL = 256 * 2**20
_BLOCK = 16 * 2**20


def get_filesystem(path: PathOrStr, **storage_options: Any) -> Any:
    """Return the fsspec file system that `path` (a path or URL) lives on.

    Args:
        path: A path or a URL such as ``s3://bucket/a.ckpt``.
        storage_options: Passed on to fsspec (credentials, endpoints).
    """
    from fsspec.core import url_to_fs

    return url_to_fs(os.fspath(path), **storage_options)[0]


def protocol(path: PathOrStr) -> str:
    """Return the scheme of a URL, or ``"file"`` for a plain path."""
    text = os.fspath(path)
    head = text.partition("::")[0]
    return head.partition("://")[0].lower() if "://" in head else ("file" if "::" not in text else head.lower())


def is_local(path: PathOrStr) -> bool:
    """Return whether `path` is on a mounted file system of this machine (also ``file://`` URLs)."""
    return protocol(path) in ("file", "local")


def local_path(path: PathOrStr) -> str:
    """Return the operating system's path of a local path or ``file://`` URL."""
    text = os.fspath(path)
    if "://" not in text:
        return text
    from fsspec.core import url_to_fs

    return str(url_to_fs(text)[1])


def split(path: PathOrStr) -> tuple[str, str]:
    """Return folder and file name; the folder of a URL keeps its scheme."""
    if is_local(path):
        folder, name = os.path.split(local_path(path))
        return folder or os.curdir, name
    folder, _, name = os.fspath(path).rpartition("/")
    return folder, name


def join(folder: str, name: str) -> str:
    """Return the path or URL of `name` in `folder`."""
    return os.path.join(folder, name) if is_local(folder) else f"{folder.rstrip('/')}/{name}"


def exists(path: PathOrStr, options: dict[str, Any] | None = None) -> bool:
    """Return whether a file or folder is there."""
    if is_local(path):
        return os.path.exists(local_path(path))
    return bool(get_filesystem(path, **(options or {})).exists(os.fspath(path)))


def list_names(folder: str, options: dict[str, Any] | None = None) -> list[str]:
    """Return the names in a folder; an absent folder has none."""
    if is_local(folder):
        try:
            return os.listdir(local_path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
    fs = get_filesystem(folder, **(options or {}))
    if not fs.isdir(folder):
        return []
    fs.invalidate_cache(folder)
    return [posixpath.basename(str(name).rstrip("/")) for name in fs.ls(folder, detail=False)]


def remove(path: PathOrStr, options: dict[str, Any] | None = None) -> None:
    """Delete a file, a link or a checkpoint folder; nothing happens when it is not there."""
    if not is_local(path):
        fs = get_filesystem(path, **(options or {}))
        if fs.exists(os.fspath(path)):
            fs.rm(os.fspath(path), recursive=True)
        return
    target = local_path(path)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
        return
    with suppress(FileNotFoundError):
        os.unlink(target)


def upload(source: IO[bytes], path: PathOrStr, options: dict[str, Any] | None = None) -> None:
    """Copy an open file to a URL so that a reader sees the old file or the whole new one.

    Object stores publish at the end of the upload; elsewhere the file is uploaded beside and moved into place.
    """
    url = os.fspath(path)
    fs = get_filesystem(url, **(options or {}))
    folder, name = split(url)
    fs.makedirs(folder, exist_ok=True)
    direct = protocol(url) in _ATOMIC_PUT
    target = url if direct else join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    source.seek(0)
    try:
        with fs.open(target, "wb") as file:
            shutil.copyfileobj(source, file, _BLOCK)
        if not direct:
            fs.mv(target, url)
    except BaseException:
        if not direct and fs.exists(target):
            fs.rm(target)
        raise


def spool() -> IO[bytes]:
    """Return a file that stays in memory up to 256 MiB and goes to a temporary file beyond."""
    return tempfile.SpooledTemporaryFile(max_size=_SPOOL)


def fetch(path: PathOrStr, options: dict[str, Any] | None = None) -> IO[bytes]:
    """Return the content of a URL as an open file that can seek.

    Raises:
        FileNotFoundError: There is no such file.
    """
    url = os.fspath(path)
    target = spool()
    try:
        with _reading(url, options) as file:
            shutil.copyfileobj(file, target, _BLOCK)
    except BaseException:
        target.close()
        raise
    target.seek(0)
    return target


def _reading(url: str, options: dict[str, Any] | None) -> Any:
    if protocol(url) in ("http", "https"):
        import urllib.request  # only here: it brings email and http along

        return urllib.request.urlopen(url)
    return get_filesystem(url, **(options or {})).open(url, "rb")

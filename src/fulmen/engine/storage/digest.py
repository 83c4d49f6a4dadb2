"""Digests of files: what a folder's manifest records, and how it is checked.

torch writes a zip archive, in whose directory every record has its CRC-32, computed while writing anyway. SHA-256 over
that directory stands for all of the content at no cost; checking it means reading every record against its CRC, at
several GB/s. Other files, and torch's with the CRC switched off, get SHA-256 of the whole.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
import zlib
from typing import IO

import torch

_BLOCK = 4 * 2**20
_HEAD = b"PK\x03\x04"
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")


def is_zip(file: IO[bytes]) -> bool:
    """Return whether an open file begins as a zip archive, torch's format, does."""
    file.seek(0)
    return file.read(4) == _HEAD


def size_of(file: IO[bytes]) -> int:
    """Return the size of an open file."""
    file.seek(0, os.SEEK_END)
    return file.tell()


def digest_of(file: IO[bytes]) -> str:
    """Return the digest of a complete file: ``zip:...`` over its directory, or ``sha256:...`` over all of it."""
    if _crc_is_on() and is_zip(file) and (start := _directory_start(file)) is not None:
        return f"zip:{_sha256(file, start)}"
    return f"sha256:{_sha256(file, 0)}"


def matches(file: IO[bytes], digest: str) -> bool:
    """Return whether a file has a digest; for ``zip:`` this is its directory only, see `zip_problem`."""
    kind, _, wanted = digest.partition(":")
    start = _directory_start(file) if kind == "zip" else 0
    return kind in ("zip", "sha256") and start is not None and _sha256(file, start) == wanted


def zip_problem(file: IO[bytes]) -> str:
    """Read all of a zip file against its checksums; return what is wrong, or an empty string."""
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                with archive.open(member) as part:
                    while part.read(_BLOCK):
                        pass
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, struct.error) as error:
        return f"its content does not match its checksums ({error})"
    return ""


def _crc_is_on() -> bool:
    get = getattr(torch.serialization, "get_crc32_options", None)
    return get is None or bool(get())


def _sha256(file: IO[bytes], start: int) -> str:
    file.seek(start)
    total = hashlib.sha256()
    while block := file.read(_BLOCK):
        total.update(block)
    return total.hexdigest()


def _directory_start(file: IO[bytes]) -> int | None:
    """Return where a zip archive's directory begins, or `None` if its end is not that of an archive of torch's."""
    size = size_of(file)
    tail = _END.size + _LOCATOR.size
    if size < tail:
        return None
    file.seek(size - tail)
    data = file.read(tail)
    mark, *_, start, _ = _END.unpack(data[_LOCATOR.size :])
    if mark != b"PK\x05\x06":
        return None
    mark64, _, at, _ = _LOCATOR.unpack(data[: _LOCATOR.size])
    if mark64 == b"PK\x06\x07":
        file.seek(min(at, size))
        found = file.read(_END64.size)
        if len(found) < _END64.size or found[:4] != b"PK\x06\x06":
            return None
        start = _END64.unpack(found)[-1]
    return start if 0 < start < size else None

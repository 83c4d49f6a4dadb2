"""Reading checkpoints: verified first, through torch's restricted unpickler unless told otherwise."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from typing import IO, Any

import torch

from fulmen.engine.storage import filesystem, foreign, manifest
from fulmen.engine.storage.digest import is_zip, matches, size_of, zip_problem
from fulmen.engine.storage.safe_types import allowed_in_torch, as_table
from fulmen.errors import CheckpointError, CorruptCheckpointError, UnsafeCheckpointError, suggest, warn
from fulmen.types import MapLocation, PathOrStr


def read_verified(
    path: PathOrStr,
    map_location: MapLocation = None,
    weights_only: bool | None = None,
    *,
    safe_types: Iterable[Any] = (),
    storage_options: dict[str, Any] | None = None,
) -> Any:
    """Check a checkpoint file and load it; the values are still in the form that `format.encode` made.

    A file in its folder's manifest is compared with the digest there. Any other torch file is checked against the
    checksums inside it, which `torch.load` itself does not do.

    Args:
        path: A path or URL (fsspec's, ``http``, ``https``).
        map_location: As for `torch.load`.
        weights_only: ``False`` lets the file run code. `None` is ``True``.
        safe_types: Types allowed for this call, besides the registered ones.
        storage_options: For fsspec, when `path` is a URL.

    Raises:
        FileNotFoundError: There is no such file.
        CorruptCheckpointError: It is torn, truncated, altered or no torch file.
        UnsafeCheckpointError: It holds what the restricted unpickler refuses; the message lists the names.
        CheckpointError: It is a folder, or cannot be read.
    """
    where = os.fspath(path)
    file = _open(path, storage_options)
    with file:
        check_file(file, where, storage_options)
        file.seek(0)
        try:
            return _load(file, map_location, weights_only, as_table(safe_types))
        except pickle.UnpicklingError as error:
            if weights_only is False:
                raise _corrupt(where, str(error)) from error
            raise _unpickling_error(file, where, error) from error
        except Exception as error:
            better = _load_error(where, error, weights_only)
            if better is error:
                raise
            raise better from error


def _load_error(where: str, error: Exception, weights_only: bool | None) -> Exception:
    """Return what to raise for an error of torch's; a damaged or hostile pickle can make it raise anything."""
    first = (str(error).splitlines() or [""])[0][:300]
    if "TorchScript" in str(error):
        return UnsafeCheckpointError(f"{where} is a TorchScript program, not a checkpoint ({first})")
    torn = any(word in str(error) for word in ("PytorchStreamReader", "zip archive", "storage"))
    if weights_only is False or (isinstance(error, RuntimeError) and not torn):
        return error  # code of the file's own, or a device that is not here
    return _corrupt(where, f"{type(error).__name__}: {first}")


def _load(file: IO[bytes], map_location: MapLocation, weights_only: bool | None, table: Mapping[str, Any]) -> Any:
    if weights_only is False:
        return torch.load(file, map_location=map_location, weights_only=False)
    with allowed_in_torch({**foreign.stand_ins(), **table}):
        return torch.load(file, map_location=map_location, weights_only=True)


def _open(path: PathOrStr, options: dict[str, Any] | None) -> IO[bytes]:
    where = os.fspath(path)
    try:
        if filesystem.is_local(path):
            return open(filesystem.local_path(path), "rb")
        return filesystem.fetch(path, options)
    except FileNotFoundError as error:
        folder, name = filesystem.split(path)
        raise FileNotFoundError(f"Checkpoint file not found: {where}.{_hint(folder, name, options)}") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"{where} is a folder, not a checkpoint file. Name a file in it.") from error
    except OSError as error:
        raise CheckpointError(f"could not read {where}: {error.strerror or error}") from error


def _hint(folder: str, name: str, options: dict[str, Any] | None) -> str:
    if filesystem.protocol(folder) in ("http", "https"):
        return ""
    names = [n for n in filesystem.list_names(folder, options) if not n.startswith(".")]
    if not names:
        return f" The folder {folder} has no files." if filesystem.exists(folder, options) else " Nor is its folder."
    return suggest(name, names) or f" The folder has: {', '.join(sorted(names)[:8])}."


def check_file(file: IO[bytes], where: PathOrStr, storage_options: dict[str, Any] | None = None) -> None:
    """Check an open checkpoint file against its folder's manifest, or else against the checksums inside it.

    Raises:
        CorruptCheckpointError: It does not match. A file that was replaced by another intact one is taken, with a
            warning (FULMEN-W074).
    """
    where = os.fspath(where)
    folder, name = filesystem.split(where)
    size = size_of(file)
    if size == 0:
        raise _corrupt(where, "it is empty")
    web = filesystem.protocol(where) in ("http", "https")
    entry = {} if web else manifest.read_manifest(folder, storage_options).get(name, {})
    known = manifest.digests(entry) if entry else []
    found = next((digest for digest, wanted in known if size == wanted and matches(file, digest)), "")
    if found.startswith("sha256:"):
        return
    problem = zip_problem(file) if is_zip(file) else ("it is no torch file" if known else "")
    if problem:
        raise _corrupt(where, problem if found or not known else f"it is not the file that was written, and {problem}")
    if known and not found:
        warn(
            "W074",
            f"{where} is intact, but not the file that Fulmen wrote under this name; somebody replaced it since.",
            key=where,
        )


def _corrupt(where: str, why: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"The checkpoint {where} is damaged: {why}. Use another one of its folder;"
        " fulmen.engine.storage.newest_good(path) finds the newest that is whole."
    )


def _unpickling_error(file: IO[bytes], where: str, error: Exception) -> CheckpointError:
    if not is_zip(file):
        return _corrupt(where, f"it is no torch file ({str(error).splitlines()[0][:200]})")
    try:
        file.seek(0)
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:  # the scan gives up on pickles that are odd enough, and the message must come all the same
        names = []
    listed = "".join(f"\n  {name}" for name in sorted(names)) or f"\n  {str(error).splitlines()[-1][:300]}"
    return UnsafeCheckpointError(
        f"The checkpoint {where} was not written by Fulmen and holds values that only unpickling could bring back,"
        f" which can run code. It names:{listed}\n"
        "Either allow these types with fulmen.add_safe_types(...) if they only hold values, or, if you trust the file,"
        " load it with weights_only=False (that runs code from it)."
    )


def newest_good(path: PathOrStr, storage_options: dict[str, Any] | None = None) -> str | None:
    """Return the newest whole checkpoint in the folder of a broken one, or `None`.

    Of the same run, if the manifest knows the broken file's run; `path` itself is not considered.

    Args:
        path: The broken file, or a folder.
        storage_options: For fsspec, when `path` is a URL.
    """
    folder, name = filesystem.split(path)
    if filesystem.is_local(path) and os.path.isdir(filesystem.local_path(path)):
        folder, name = filesystem.local_path(path), ""
    entries = manifest.read_manifest(folder, storage_options)
    run = entries.get(name, {}).get("run_id")
    ending = os.path.splitext(name)[1] or ".ckpt"
    found: list[tuple[float, str]] = []
    for other in filesystem.list_names(folder, storage_options):
        entry = entries.get(other)
        if other == name or other.startswith("."):
            continue
        if (entry is None and not other.endswith(ending)) or (run is not None and (entry or {}).get("run_id") != run):
            continue
        found.append((_written_at(folder, other, entry), filesystem.join(folder, other)))
    return next((p for _, p in sorted(found, reverse=True) if _is_good(p, storage_options)), None)


def manifest_entry(path: PathOrStr, storage_options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the folder's manifest says of a file; empty if it does not know it."""
    folder, name = filesystem.split(path)
    return manifest.read_manifest(folder, storage_options).get(name, {})


def newest_resumable(
    folders: Iterable[str], wanted: Mapping[str, str], storage_options: dict[str, Any] | None = None
) -> str | None:
    """Return the newest whole checkpoint of some folders that a fit can go on from, or `None`.

    Only files that the folders' manifests know are considered, and of these no files of weights alone.

    Args:
        folders: Paths or URLs; those that do not exist are left out.
        wanted: What the manifest must say of a file (``module``, ``command``, ``run_id``).
        storage_options: For fsspec, where a folder is a URL.
    """
    found: list[tuple[float, str]] = []
    for folder in folders:
        present = set(filesystem.list_names(folder, storage_options))
        for name, entry in manifest.read_manifest(folder, storage_options).items():
            fits = all(entry.get(key) == value for key, value in wanted.items())
            if fits and entry.get("resumable") and name in present:
                found.append((_written_at(folder, name, entry), filesystem.join(folder, name)))
    return next((p for _, p in sorted(found, reverse=True) if _is_good(p, storage_options)), None)


def _written_at(folder: str, name: str, entry: Mapping[str, Any] | None) -> float:
    if entry is not None and isinstance(entry.get("time"), (int, float)):
        return float(entry["time"])
    if not filesystem.is_local(folder):
        return 0.0
    try:
        return os.stat(filesystem.local_path(filesystem.join(folder, name))).st_mtime
    except OSError:
        return 0.0


def _is_good(path: str, options: dict[str, Any] | None) -> bool:
    try:
        with _open(path, options) as file:
            check_file(file, path, options)
            return is_zip(file)
    except (OSError, CheckpointError):
        return False

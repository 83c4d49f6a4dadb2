"""The run record: one JSON object per line about everything that happened in a run; always on, cheap."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError, warn
from fulmen.loggers import files
from fulmen.types import PathOrStr
from fulmen.utilities.logger import plain_params
from fulmen.utilities.rank_zero import rank_zero_only

_URGENT = frozenset({"start", "end", "error"})
_RESERVED = frozenset({"kind", "time", "run_id"})
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class RunRecord:
    """Writes ``run.jsonl``.

    Each line is ``{"kind": ..., "time": ..., <fields>}``, time in seconds since the epoch. Kinds are ``start``,
    ``metrics``, ``epoch``, ``checkpoint``, ``validation``, ``end`` and ``error``. The first line of each process, and
    every ``start``, also has ``"run_id"``; a resumed run appends to the file it finds. NaN and infinities are the
    texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.

    Lines wait in memory and are written at most once per second (``start``, ``end`` and ``error`` at once), always as
    whole lines in one call. Ranks other than zero write nothing. A file that cannot be written is reported by one
    warning and given up: a record must not end a run.

    Args:
        path: The file; its folder is created with the first line.
        run_id: The run's id.

    Raises:
        ArgumentTypeError: If an argument is of the wrong type.
    """

    def __init__(self, path: PathOrStr, run_id: str) -> None:
        self.path = files.local(files.check_path(path, "path", type(self).__name__))
        if not isinstance(run_id, str):
            raise ArgumentTypeError(f"RunRecord(run_id={run_id!r}): expected a str, got {type(run_id).__name__}.")
        self.run_id = run_id
        # Appending to an object in a remote store copies it, so not every second.
        self._interval = 30.0 if files.is_url(self.path) else 1.0
        self._file = files.AppendFile(self.path)
        self._lines: list[str] = []
        self._due = 0.0
        self._opened = False
        self._prepared = False
        self._broken = False

    def write(self, kind: str, /, **fields: Any) -> None:
        """Add one line.

        Args:
            kind: What happened.
            fields: Plain values, numbers, tensors with one element, and lists and mappings of such.

        Raises:
            ArgumentValueError: If a field is called ``kind``, ``time`` or ``run_id``.
        """
        if not _RESERVED.isdisjoint(fields):
            taken = sorted(_RESERVED & fields.keys())
            raise ArgumentValueError(f"RunRecord.write: the field names {taken} are taken; choose others.")
        if self._broken or rank_zero_only.rank != 0:
            return
        now = time.time()
        entry: dict[str, Any] = {"kind": kind, "time": now}
        if not self._opened or kind == "start":
            entry["run_id"] = self.run_id
        entry.update(fields)
        self._lines.append(_encode(entry))
        self._opened = True
        if now >= self._due or kind in _URGENT:
            self._due = now + self._interval
            self.flush()

    def flush(self) -> None:
        """Write the lines in memory to the file."""
        if not self._lines or self._broken:
            return
        text = "\n".join(self._lines) + "\n"
        self._lines.clear()
        try:
            if not self._prepared:
                self._prepare()
            self._file.append(text)
        except OSError as error:
            self._broken = True
            warn("W302", f"The run record {self.path} cannot be written ({error}); it ends here.", key=self.path)

    def close(self) -> None:
        """Write what is in memory and close the file; `write` may open it again."""
        self.flush()
        self._file.close()

    def _prepare(self) -> None:
        files.make_folder(os.path.dirname(self.path) or ".")
        if files.is_file(self.path):
            files.cut_torn_line(self.path)
        self._prepared = True

    def __getstate__(self) -> dict[str, Any]:
        # Waiting lines stay with the original, which writes them; a copy starts as a new one does.
        return {**self.__dict__, "_lines": [], "_due": 0.0, "_opened": False, "_prepared": False}


def read_record(path: PathOrStr) -> Iterator[dict[str, Any]]:
    """Yield the entries of a run record, oldest first.

    An incomplete last line (the run was killed, or is writing just now) is left out without a word; a damaged line
    elsewhere is left out with one warning. The texts for NaN and infinities become floats again.

    Args:
        path: File or URL, or the folder that has a ``run.jsonl``.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    where = files.local(files.check_path(path, "path", "read_record"))
    if files.is_folder(where):
        where = os.path.join(where, "run.jsonl")
    if files.is_url(where):
        yield from _entries(iter(files.read_text(where).splitlines(keepends=True)), where)
        return
    with open(where, encoding="utf-8", errors="replace", newline="\n") as lines:
        yield from _entries(lines, where)


def _entries(lines: Iterator[str], where: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            entry = None
        if isinstance(entry, dict):
            yield _with_floats(entry)
        else:
            warn("W303", f"{where}: line {number} is damaged and left out.", key=where)


def _with_floats(value: Any) -> Any:
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """What JSON has no form for; called by the encoder."""
    if hasattr(value, "item") and hasattr(value, "shape") and all(size == 1 for size in value.shape):
        return value.item()
    return plain_params(value)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain, check_circular=False)


def _encode(entry: dict[str, Any]) -> str:
    try:
        return _ENCODER.encode(entry)
    except (ValueError, TypeError):  # a number that is not finite, or a key that is not a text
        return _ENCODER.encode(_finite(entry))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if value is None or isinstance(value, (str, int)):
        return value
    return _finite(_plain(value))

"""Rows on their way to loggers: one that cannot be sent waits, and training goes on."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fulmen.errors import warn
from fulmen.loggers import files
from fulmen.utilities.retry import is_transient

_LIMIT = 10_000
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0


@dataclass
class _Backlog:
    rows: deque[tuple[dict[str, Any], int]] = field(default_factory=deque)
    wait: float = _FIRST_WAIT
    due: float = 0.0
    on_disk: int = 0


class RowSender:
    """Sends rows to loggers, in order; rows that a logger does not take for now are kept and sent later.

    A failure that may pass (network, disk; see `fulmen.utilities.retry.is_transient`) is told once and costs no
    training. Up to `limit` rows of a logger wait in memory; what is more, and what cannot be sent until the end,
    goes to a file ``unsent-<logger>.jsonl`` with one ``{"step": ..., "metrics": {...}}`` a line. Any other exception is
    the caller's.

    Args:
        survives: Whether failures are survived; if not, each is the caller's.
        folder: Gives the folder for those files, `None` for nowhere.
        limit: Rows that wait in memory, for each logger.
        clock: Seconds, for the time of the next try.
    """

    def __init__(
        self,
        *,
        survives: bool = True,
        folder: Callable[[], str | None] = lambda: None,
        limit: int = _LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.survives = survives
        self.folder = folder
        self.limit = limit
        self.clock = clock
        self._backlogs: dict[int, _Backlog] = {}

    def send(self, logger: Any, metrics: Mapping[str, Any], step: int) -> None:
        """Send a row, after those that wait."""
        backlog = self._backlogs.get(id(logger))
        if backlog is None:
            try:
                logger.log_metrics(metrics=metrics, step=step)
            except Exception as error:
                if not self._survivable(logger, error):
                    raise
                backlog = self._backlogs[id(logger)] = _Backlog(due=self.clock() + _FIRST_WAIT)
                backlog.rows.append((dict(metrics), step))
            else:
                self.call(logger, "save")  # the row is the logger's own now, also if this fails
            return
        backlog.rows.append((dict(metrics), step))
        if self.clock() >= backlog.due:
            self._catch_up(logger, backlog)
        while len(backlog.rows) > self.limit:
            self._to_disk(logger, backlog, [backlog.rows.popleft()])

    def call(self, logger: Any, method: str, *args: Any) -> None:
        """Call another method of a logger (``save``, ``finalize``); a failure that may pass is told, not raised."""
        try:
            getattr(logger, method)(*args)
        except Exception as error:
            if not self._survivable(logger, error):
                raise

    def finish(self, loggers: Iterable[Any]) -> None:
        """The run ends: send what waits; what cannot be sent goes to a file, and is told."""
        for logger in loggers:
            backlog = self._backlogs.pop(id(logger), None)
            if backlog is None:
                continue
            self._catch_up(logger, backlog)
            rows = list(backlog.rows)
            if rows:
                self._to_disk(logger, backlog, rows)
            if backlog.on_disk:
                warn(
                    "W320",
                    f"{backlog.on_disk} rows could not be sent to {_name(logger)}; they are in "
                    f"{self._path(logger) or 'no file, as this run has no folder'}.",
                    key=_name(logger),
                )

    def _survivable(self, logger: Any, error: Exception) -> bool:
        if not self.survives or not is_transient(error):
            return False
        warn(
            "W319",
            f"{_name(logger)} failed ({type(error).__name__}: {str(error)[:200]}). Training goes on; its rows are kept "
            "and sent when it works again.",
            key=_name(logger),
        )
        return True

    def _catch_up(self, logger: Any, backlog: _Backlog) -> None:
        try:
            while backlog.rows:
                metrics, step = backlog.rows[0]
                logger.log_metrics(metrics=metrics, step=step)
                backlog.rows.popleft()
        except Exception as error:
            if not self._survivable(logger, error):
                raise
            backlog.wait = min(2 * backlog.wait, _LONGEST_WAIT)
            backlog.due = self.clock() + backlog.wait
            return
        self.call(logger, "save")
        if not backlog.on_disk:
            self._backlogs.pop(id(logger), None)

    def _path(self, logger: Any) -> str | None:
        folder = self.folder()
        return None if folder is None else os.path.join(files.local(folder), f"unsent-{_name(logger)}.jsonl")

    def _to_disk(self, logger: Any, backlog: _Backlog, rows: Iterable[tuple[dict[str, Any], int]]) -> None:
        lines = [json.dumps({"step": step, "metrics": metrics}) for metrics, step in rows]
        backlog.on_disk += len(lines)
        path = self._path(logger)
        if path is None:
            return
        try:
            files.make_folder(os.path.dirname(path))
            file = files.AppendFile(path)
            file.append("\n".join(lines) + "\n")
            file.close()
        except OSError as error:
            warn("W321", f"Rows for {_name(logger)} could not be kept in {path} either ({error}).", key=path)


def _name(logger: Any) -> str:
    return type(logger).__name__

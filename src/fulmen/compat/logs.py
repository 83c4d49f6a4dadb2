"""While aliases are on, log records of Fulmen go by Lightning's logger names.

Handlers and levels that a program sets on ``lightning.pytorch``, ``pytorch_lightning`` or their children have effect;
handlers on Fulmen's own loggers get their records as before; the root logger gets each record once, under Lightning's
name.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator

from fulmen.compat.homes import HOMES
from fulmen.utilities.rank_zero import rank_zero_debug

_OWN = "fulmen"
# What Lightning's `rank_zero_info` and its likes log to.
_DEFAULT = "lightning.pytorch.utilities.rank_zero"
_PACKAGES = ("lightning", "lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")


def lightning_name(name: str) -> str:
    """Return the logger name that Lightning would use where Fulmen uses `name`."""
    if name in HOMES:
        homes = list(HOMES[name].values())
        return max(set(homes), key=homes.count)
    return _DEFAULT


def _other_spelling(name: str) -> str:
    for long, short in (("lightning.pytorch", "pytorch_lightning"), ("lightning.fabric", "lightning_fabric")):
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


def _renamed(record: logging.LogRecord, name: str) -> logging.LogRecord:
    other = copy.copy(record)
    other.name = name
    return other


def _handlers(logger: logging.Logger | None) -> Iterator[logging.Handler]:
    """Handlers from a logger up to the root logger's, without these."""
    while logger is not None and logger.parent is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


class LogBridge(logging.Handler):
    """A handler on Fulmen's logger that passes records on to Lightning's."""

    def __init__(self) -> None:
        super().__init__()
        self._logger = logging.getLogger(_OWN)
        self._parent = self._logger.parent
        self._own: list[logging.Handler] = []
        self._levels: list[logging.Logger] = []

    def install(self) -> None:
        """Put the bridge on, and let Lightning's levels also decide what is written to the console."""
        rank_zero_debug("Aliases are switched on.")  # makes Fulmen configure its console output first
        # In place of the root logger stands one that ends the way. Not `propagate = False`: pytest gives loggers that
        # do not propagate its handlers, which would then see every record twice.
        self._parent, self._logger.parent = self._logger.parent, logging.Logger(f"{_OWN}.compat")
        self._own = [h for h in self._logger.handlers if type(h).__module__.startswith("fulmen.")]
        for handler in self._own:
            handler.addFilter(self.wanted)
        for name in _PACKAGES:
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:  # Lightning sets it when it is imported
                logger.setLevel(logging.INFO)
                self._levels.append(logger)
        self._logger.addHandler(self)

    def remove(self) -> None:
        """Take the bridge off, and put levels and the way to the root logger back."""
        self._logger.removeHandler(self)
        self._logger.parent = self._parent
        for handler in self._own:
            handler.removeFilter(self.wanted)
        for logger in self._levels:
            if logger.level == logging.INFO:
                logger.setLevel(logging.NOTSET)
        self._own, self._levels = [], []

    def wanted(self, record: logging.LogRecord) -> bool:
        """Return whether both of Lightning's loggers of that name let the record pass."""
        name = lightning_name(record.name)
        return all(logging.getLogger(n).isEnabledFor(record.levelno) for n in (name, _other_spelling(name)))

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on under both of Lightning's names."""
        if not self.wanted(record):
            return
        name = lightning_name(record.name)
        short = _other_spelling(name)
        # The root logger is reached through the first name; twice would be once too often.
        for handler in _handlers(logging.getLogger(short)) if short != name else ():
            if record.levelno >= handler.level:
                handler.handle(_renamed(record, short))
        logging.getLogger(name).handle(_renamed(record, name))

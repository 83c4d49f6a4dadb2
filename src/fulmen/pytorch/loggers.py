"""`fulmen.loggers` under Lightning's longer path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fulmen.pytorch._mirror import mirror

if TYPE_CHECKING:
    from fulmen.loggers import *  # noqa: F403 - the same names, for type checkers

__getattr__, __dir__ = mirror("fulmen.loggers")

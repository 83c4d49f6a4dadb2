"""`fulmen.strategies` under Lightning's longer path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fulmen.pytorch._mirror import mirror

if TYPE_CHECKING:
    from fulmen.strategies import *  # noqa: F403 - the same names, for type checkers

__getattr__, __dir__ = mirror("fulmen.strategies")

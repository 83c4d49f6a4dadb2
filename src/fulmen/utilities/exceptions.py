"""Lightning's place for its exceptions."""

from __future__ import annotations

from fulmen.errors import MisconfigurationException, SIGTERMException

__all__ = ["MisconfigurationException", "SIGTERMException"]

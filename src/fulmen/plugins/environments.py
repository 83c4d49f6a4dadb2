"""Where the ranks of a run are read from."""

from __future__ import annotations

from fulmen.engine.environments import ClusterEnvironment, LightningEnvironment

__all__ = ["ClusterEnvironment", "LightningEnvironment"]

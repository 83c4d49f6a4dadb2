"""What a cluster says about processes, ranks and addresses."""

from __future__ import annotations

from fulmen.engine.environments.cluster_environment import ClusterEnvironment
from fulmen.engine.environments.lightning import LightningEnvironment

__all__ = ["ClusterEnvironment", "LightningEnvironment"]

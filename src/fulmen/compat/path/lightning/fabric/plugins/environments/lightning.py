"""lightning.fabric.plugins.environments.lightning, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.environments.cluster_environment import ClusterEnvironment
from fulmen.engine.environments.lightning import LightningEnvironment
from fulmen.utilities.rank_zero import rank_zero_only

__all__ = ["ClusterEnvironment", "LightningEnvironment", "rank_zero_only"]
__getattr__ = absent(__name__, __all__)

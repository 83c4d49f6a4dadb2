"""lightning_fabric.plugins.environments.cluster_environment, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.environments.cluster_environment import ClusterEnvironment

__all__ = ["ClusterEnvironment"]
__getattr__ = absent(__name__, __all__)

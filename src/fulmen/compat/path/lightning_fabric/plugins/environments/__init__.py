"""lightning_fabric.plugins.environments, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["ClusterEnvironment", "LightningEnvironment"]
_NAMES = {
    "fulmen.engine.environments.cluster_environment": "ClusterEnvironment",
    "fulmen.engine.environments.lightning": "LightningEnvironment",
}
_MODULES = "cluster_environment lightning"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

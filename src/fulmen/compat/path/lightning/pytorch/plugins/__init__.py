"""lightning.pytorch.plugins, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointIO",
    "ClusterEnvironment",
    "DoublePrecision",
    "HalfPrecision",
    "MixedPrecision",
    "Precision",
    "TorchCheckpointIO",
]
_NAMES = {
    "fulmen.engine.environments.cluster_environment": "ClusterEnvironment",
    "fulmen.engine.precision.base": "Precision",
    "fulmen.engine.precision.mixed": "MixedPrecision",
    "fulmen.engine.precision.true": "DoublePrecision HalfPrecision",
    "fulmen.engine.storage.async_io": "AsyncCheckpointIO",
    "fulmen.engine.storage.checkpoint_io": "CheckpointIO TorchCheckpointIO",
}
_MODULES = "environments io precision"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

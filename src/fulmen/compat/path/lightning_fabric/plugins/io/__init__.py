"""lightning_fabric.plugins.io, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["CheckpointIO", "TorchCheckpointIO"]
_NAMES = {
    "fulmen.engine.storage.checkpoint_io": "CheckpointIO TorchCheckpointIO",
}
_MODULES = "checkpoint_io torch_io"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

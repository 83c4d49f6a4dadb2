"""lightning.pytorch.plugins.io, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "TorchCheckpointIO"]
_NAMES = {
    "fulmen.engine.storage.async_io": "AsyncCheckpointIO",
    "fulmen.engine.storage.checkpoint_io": "CheckpointIO TorchCheckpointIO",
}
_MODULES = "async_plugin checkpoint_plugin torch_plugin"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

"""lightning.fabric.plugins.io.torch_io, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.storage.checkpoint_io import CheckpointIO, TorchCheckpointIO
from fulmen.engine.storage.filesystem import get_filesystem

__all__ = ["CheckpointIO", "TorchCheckpointIO", "get_filesystem"]
__getattr__ = absent(__name__, __all__)

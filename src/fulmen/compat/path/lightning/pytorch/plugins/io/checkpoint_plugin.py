"""lightning.pytorch.plugins.io.checkpoint_plugin, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.storage.checkpoint_io import CheckpointIO

__all__ = ["CheckpointIO"]
__getattr__ = absent(__name__, __all__)

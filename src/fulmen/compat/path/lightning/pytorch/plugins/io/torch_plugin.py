"""lightning.pytorch.plugins.io.torch_plugin, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.storage.checkpoint_io import TorchCheckpointIO

__all__ = ["TorchCheckpointIO"]
__getattr__ = absent(__name__, __all__)

"""pytorch_lightning.plugins.io.async_plugin, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.storage.async_io import AsyncCheckpointIO
from fulmen.utilities.collections import apply_to_collection

__all__ = ["AsyncCheckpointIO", "apply_to_collection"]
__getattr__ = absent(__name__, __all__)

"""lightning.fabric.utilities.cloud_io, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.storage.filesystem import get_filesystem

__all__ = ["get_filesystem"]
__getattr__ = absent(__name__, __all__)

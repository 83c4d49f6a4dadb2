"""lightning.pytorch.utilities.memory, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.collections import apply_to_collection
from fulmen.utilities.system import garbage_collection_cuda

__all__ = ["apply_to_collection", "garbage_collection_cuda"]
__getattr__ = absent(__name__, __all__)

"""lightning_fabric.utilities.apply_func, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.collections import apply_to_collection, move_data_to_device

__all__ = ["apply_to_collection", "move_data_to_device"]
__getattr__ = absent(__name__, __all__)

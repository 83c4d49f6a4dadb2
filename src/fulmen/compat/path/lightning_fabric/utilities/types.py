"""lightning_fabric.utilities.types, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.types import _DEVICE, _MAP_LOCATION_TYPE, _PATH

__all__ = ["_DEVICE", "_MAP_LOCATION_TYPE", "_PATH"]
__getattr__ = absent(__name__, __all__)

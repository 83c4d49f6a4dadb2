"""lightning.pytorch.utilities.parameter_tying, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.parameter_tying import find_shared_parameters, set_shared_parameters

__all__ = ["find_shared_parameters", "set_shared_parameters"]
__getattr__ = absent(__name__, __all__)

"""lightning.pytorch.utilities.grads, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.grads import grad_norm

__all__ = ["grad_norm"]
__getattr__ = absent(__name__, __all__)

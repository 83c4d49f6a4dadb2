"""pytorch_lightning.utilities.seed, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.seed import isolate_rng

__all__ = ["isolate_rng"]
__getattr__ = absent(__name__, __all__)

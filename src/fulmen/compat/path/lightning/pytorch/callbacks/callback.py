"""lightning.pytorch.callbacks.callback, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.compat.modules import absent
from fulmen.utilities.types import STEP_OUTPUT

__all__ = ["Callback", "STEP_OUTPUT"]
__getattr__ = absent(__name__, __all__)

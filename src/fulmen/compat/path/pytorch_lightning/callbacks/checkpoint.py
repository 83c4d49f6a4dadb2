"""pytorch_lightning.callbacks.checkpoint, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.checkpoint import Checkpoint
from fulmen.compat.modules import absent

__all__ = ["Callback", "Checkpoint"]
__getattr__ = absent(__name__, __all__)

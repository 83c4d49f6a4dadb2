"""lightning.pytorch.tuner, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = []
_NAMES = {
}
_MODULES = "lr_finder"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

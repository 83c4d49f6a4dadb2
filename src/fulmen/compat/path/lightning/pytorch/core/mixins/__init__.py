"""lightning.pytorch.core.mixins, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["HyperparametersMixin"]
_NAMES = {
    "fulmen.core.hparams": "HyperparametersMixin",
}
_MODULES = "hparams_mixin"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

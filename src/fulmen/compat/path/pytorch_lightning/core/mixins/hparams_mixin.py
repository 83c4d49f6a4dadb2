"""pytorch_lightning.core.mixins.hparams_mixin, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.hparams import HyperparametersMixin
from fulmen.utilities.parsing import AttributeDict, save_hyperparameters

__all__ = ["AttributeDict", "HyperparametersMixin", "save_hyperparameters"]
__getattr__ = absent(__name__, __all__)

"""lightning.pytorch.trainer, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["Trainer", "seed_everything"]
_NAMES = {
    "fulmen.trainer.trainer": "Trainer",
    "fulmen.utilities.seed": "seed_everything",
}
_MODULES = "states trainer"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

"""lightning.pytorch.demos, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["BoringDataModule", "BoringModel", "DemoModel"]
_NAMES = {
    "fulmen.demos.boring_classes": "BoringDataModule BoringModel DemoModel",
}
_MODULES = "boring_classes"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

"""lightning_fabric.plugins.precision, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["DoublePrecision", "HalfPrecision", "MixedPrecision", "Precision"]
_NAMES = {
    "fulmen.engine.precision.base": "Precision",
    "fulmen.engine.precision.mixed": "MixedPrecision",
    "fulmen.engine.precision.true": "DoublePrecision HalfPrecision",
}
_MODULES = "amp double half precision"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

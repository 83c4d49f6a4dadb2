"""lightning.pytorch.strategies, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["SingleDeviceStrategy", "Strategy", "StrategyRegistry"]
_NAMES = {
    "fulmen.strategies.registry": "STRATEGY_REGISTRY@StrategyRegistry",
    "fulmen.strategies.single_device": "SingleDeviceStrategy",
    "fulmen.strategies.strategy": "Strategy",
}
_MODULES = "single_device strategy"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

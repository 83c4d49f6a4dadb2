"""How a module is placed, wrapped, stepped and saved on one or more devices."""

from __future__ import annotations

from fulmen.strategies.face import overridden_hooks, route_overrides
from fulmen.strategies.registry import STRATEGY_REGISTRY, StrategyRegistry, resolve_strategy
from fulmen.strategies.single_device import SingleDeviceStrategy
from fulmen.strategies.strategy import Strategy

__all__ = [
    "STRATEGY_REGISTRY",
    "SingleDeviceStrategy",
    "Strategy",
    "StrategyRegistry",
    "overridden_hooks",
    "resolve_strategy",
    "route_overrides",
]

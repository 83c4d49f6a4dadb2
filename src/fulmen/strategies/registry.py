"""Strategies by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.strategies.single_device import SingleDeviceStrategy
from fulmen.strategies.strategy import Strategy
from fulmen.utilities.registry import Registry


class StrategyRegistry(Registry):
    """Names of strategies; `get` makes the object."""

    def __init__(self) -> None:
        super().__init__("strategy")

    def available_strategies(self) -> list[str]:
        """Return all names, sorted."""
        return self.names()


STRATEGY_REGISTRY = StrategyRegistry()
SingleDeviceStrategy.register_strategies(STRATEGY_REGISTRY)

_REFUSED = {
    "dp": "torch.nn.DataParallel is slower and has gone; use strategy='ddp'",
    "ddp2": "it has gone with torch.nn.DataParallel; use strategy='ddp'",
    "horovod": "Horovod is not supported; use strategy='ddp'",
    "bagua": "Bagua is not supported; use strategy='ddp'",
    "fairscale": "FairScale has been replaced by torch's own sharding; use strategy='fsdp'",
}


def resolve_strategy(
    value: Any,
    devices: Sequence[torch.device],
    *,
    accelerator: Any = None,
    precision: Any = None,
    checkpoint_io: Any = None,
) -> Strategy:
    """Return the strategy for an argument.

    Args:
        value: ``"auto"`` (or `None`), a registered name, or a strategy.
        devices: The devices of this machine to train on.
        accelerator: Given to the strategy if it has none.
        precision: Precision object for the strategy; `None` leaves a given strategy's own.
        checkpoint_io: Given to the strategy, if not `None`.

    Raises:
        ArgumentTypeError: The value is of the wrong kind.
        ArgumentValueError: The name is not registered, or the strategy does not fit the devices.
    """
    if isinstance(value, Strategy):
        return _completed(value, accelerator, precision, checkpoint_io)
    if value is not None and not isinstance(value, str):
        raise ArgumentTypeError(
            f"strategy={value!r}: give a name ({', '.join(STRATEGY_REGISTRY.names())}, 'auto') or a Strategy object,"
            f" not a {type(value).__name__}."
        )
    name = "auto" if value is None else value.strip().lower()
    if name in _REFUSED:
        raise ArgumentValueError(f"strategy={value!r} is not possible: {_REFUSED[name]}.")
    if name == "auto":
        name = "single_device" if len(devices) == 1 else "ddp"
        if name not in STRATEGY_REGISTRY:
            raise ArgumentValueError(
                f"devices: {len(devices)} were asked for, but no strategy for several processes is registered;"
                " use devices=1."
            )
    if name not in STRATEGY_REGISTRY:
        STRATEGY_REGISTRY.entry(name)  # raises, and says what there is
    if STRATEGY_REGISTRY.entry(name).factory is SingleDeviceStrategy:
        if len(devices) != 1:
            raise ArgumentValueError(
                f"strategy={value!r} trains on one device, but {len(devices)} were asked for; use devices=1."
            )
        strategy: Any = STRATEGY_REGISTRY.get(name, device=devices[0])
    else:
        strategy = STRATEGY_REGISTRY.get(name)
    if not isinstance(strategy, Strategy):
        raise ArgumentTypeError(f"strategy={value!r}: its registered factory made a {type(strategy).__name__}.")
    return _completed(strategy, accelerator, precision, checkpoint_io)


def _completed(strategy: Strategy, accelerator: Any, precision: Any, checkpoint_io: Any) -> Strategy:
    if precision is not None:
        strategy.precision_plugin = precision
    if checkpoint_io is not None:
        strategy.checkpoint_io = checkpoint_io
    if accelerator is not None and strategy.accelerator.name() != accelerator.name():
        raise ArgumentValueError(
            f"strategy={strategy!r} is on {strategy.root_device}, but accelerator={accelerator.name()!r} was asked"
            " for; leave one of them out."
        )
    return strategy

"""Optimizers that a module keeps as attributes: told of, and refused where they would step a batch twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer

from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import TRAINING_STEP
from fulmen.errors import MisconfigurationException, warn


def own_optimizers(module: nn.Module) -> Iterator[tuple[str, Optimizer]]:
    """Attributes of a module that hold an optimizer, also in a list, tuple or dict."""
    for name, value in vars(module).items():
        if isinstance(value, Optimizer):
            yield name, value
        elif type(value) in (list, tuple):
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(value) if isinstance(item, Optimizer))
        elif type(value) is dict and not name.startswith("_"):
            yield from ((f"{name}[{k!r}]", item) for k, item in value.items() if isinstance(item, Optimizer))


def guard_own_optimizers(module: Any, optimizers: list[Any], cursor: Cursor) -> list[Any]:
    """Watch a module's own optimizers in automatic optimization.

    One that updates parameters of the run's optimizers must not step inside of `training_step`: the batch would step
    twice. If it is none of those returned by `configure_optimizers`, a warning says so at once.

    Args:
        module: The user's module.
        optimizers: What `configure_optimizers` returned.
        cursor: Where the run is.

    Returns:
        Handles of the hooks on them; to be removed at the end of the run.
    """
    trained = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    owner, handles = type(module).__name__, []
    for name, optimizer in own_optimizers(module):
        if not any(id(p) in trained for group in optimizer.param_groups for p in group["params"]):
            continue
        if not any(optimizer is other for other in optimizers):
            warn(
                "W605",
                f"{owner}.{name} is an optimizer of parameters that `configure_optimizers` gives to another one. While "
                "`automatic_optimization` is True, do not step it; return it from `configure_optimizers` instead.",
                key=f"{owner}.{name}",
            )
        handles.append(optimizer.register_step_pre_hook(partial(_refuse, owner, name, cursor)))
    return handles


def _refuse(owner: str, name: str, cursor: Cursor, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if cursor.hook is TRAINING_STEP:
        raise MisconfigurationException(
            f"{owner}.training_step called `self.{name}.step()` while `automatic_optimization` is True, so that each "
            "batch would step twice. Leave that line out and return the loss, or set `self.automatic_optimization = "
            f"False` in `{owner}.__init__`."
        )

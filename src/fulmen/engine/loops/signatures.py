"""Which arguments a step takes, and an error at the start of a run if they cannot be given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fulmen.errors import MisconfigurationException

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def takes_iterator(function: Callable[..., Any]) -> bool:
    """Whether a bound step fetches its batches itself: it has an argument `dataloader_iter`."""
    return any(p.name == "dataloader_iter" for p in _parameters(function) or ())


def step_takes(function: Callable[..., Any], name: str, count: int) -> bool:
    """Whether a bound step takes an argument called `name`, or at least `count` positional ones."""
    parameters = _parameters(function)
    if parameters is None:
        return True
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return True
    if any(p.name == name for p in parameters):
        return True
    return sum(p.kind in _POSITIONAL for p in parameters) >= count


def takes_keywords(function: Callable[..., Any]) -> bool:
    """Whether a bound method takes any keyword arguments."""
    parameters = _parameters(function)
    return parameters is None or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def step_takes_optimizer_idx(function: Callable[..., Any]) -> bool:
    """Whether a bound `training_step` is of Lightning 1.x, called once per optimizer."""
    return any(p.name == "optimizer_idx" for p in _parameters(function) or ())


def check_step(function: Callable[..., Any], owner: str, name: str, *, loaders: int = 1, indexed: bool = False) -> None:
    """Check that a step can be called with batch, batch index and, with several loaders, the loader's index.

    Args:
        function: The bound method.
        owner: Class name, for the error.
        name: The step's name.
        loaders: Number of loaders, 0 if it is not known yet.
        indexed: Whether it may take `optimizer_idx`.

    Raises:
        MisconfigurationException: If it needs other arguments, or cannot tell several loaders apart.
    """
    parameters = _parameters(function)
    if parameters is None:
        return
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return
    given = (
        "(self, batch), (self, batch, batch_idx)"
        if name.startswith("training")
        else "(self, batch), (self, batch, batch_idx) or (self, batch, batch_idx, dataloader_idx=0)"
    )
    if indexed:
        parameters = [p for p in parameters if p.name != "optimizer_idx"]
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    required = [p.name for p in positional if p.default is inspect.Parameter.empty]
    keywords = [
        p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is inspect.Parameter.empty
    ]
    most = 2 if name.startswith("training") or loaders == 1 else 3
    if keywords or not positional or len(required) > most:
        names = ", ".join(["self", *[p.name for p in parameters]])
        hint = ""
        if "optimizer_idx" in [p.name for p in parameters]:
            hint = " For several optimizers set `self.automatic_optimization = False` and step them yourself."
        if len(required) == 3 and most == 2 and required[2] == "dataloader_idx":
            hint = " With one loader `dataloader_idx` is not given: make it optional, `dataloader_idx=0`."
        raise MisconfigurationException(f"{owner}.{name}({names}) cannot be called; it must be {given}.{hint}")
    if loaders > 1 and not (step_takes(function, "dataloader_idx", 3) or takes_iterator(function)):
        names = ", ".join(["self", *[p.name for p in parameters]])
        raise MisconfigurationException(
            f"{owner}.{name}({names}) does not take `dataloader_idx`, but there are {loaders} loaders; add the "
            "argument, `dataloader_idx=0`."
        )

"""State of modules and optimizers: plain keys, and tensors where the optimizer wants them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_COMPILED = "_orig_mod"


def plain_key(key: str) -> str:
    """Return a parameter's name without the parts that ``torch.compile`` puts into it."""
    return ".".join(part for part in key.split(".") if part != _COMPILED) if _COMPILED in key else key


def module_state(module: torch.nn.Module) -> dict[str, Any]:
    """Return ``module.state_dict()``; compiled modules inside get the keys of the ones they were made from."""
    state = module.state_dict()
    if not any(_COMPILED in key for key in state):
        return state
    plain = OrderedDict((plain_key(key), value) for key, value in state.items())
    metadata = getattr(state, "_metadata", None)
    if metadata is not None:
        plain._metadata = {plain_key(key): value for key, value in metadata.items()}  # type: ignore[attr-defined] # torch's
    return plain


def load_module_state(module: torch.nn.Module, state: Mapping[str, Any], strict: bool = True) -> Any:
    """Load a state into a module, whichever of the two is compiled.

    Args:
        module: Gets the state through its own ``load_state_dict``.
        state: State with plain or compiled keys.
        strict: As in torch.

    Returns:
        What ``load_state_dict`` returns (missing and unexpected keys).
    """
    compiled_here = any(_COMPILED in name for name, _ in module.named_modules())
    if compiled_here or any(_COMPILED in key for key in state):
        names = {plain_key(key): key for key in module.state_dict()} if compiled_here else {}
        metadata = getattr(state, "_metadata", None)
        renamed = OrderedDict((names.get(plain_key(key), plain_key(key)), value) for key, value in state.items())
        if metadata is not None:
            children = {plain_key(name): name for name, _ in module.named_modules()}
            renamed._metadata = {  # type: ignore[attr-defined]  # torch keeps versions of modules there
                children.get(plain_key(key), plain_key(key)): value for key, value in metadata.items()
            }
        state = renamed
    return module.load_state_dict(state, strict=strict)


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer's state, complete also if the optimizer shards it."""
    consolidate = getattr(optimizer, "consolidate_state_dict", None)
    if callable(consolidate):
        consolidate()
    return optimizer.state_dict()


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load an optimizer's state and put its tensors where the optimizer wants them."""
    optimizer.load_state_dict(dict(state))
    place_optimizer_state(optimizer)


def place_optimizer_state(optimizer: Optimizer, device: torch.device | None = None) -> None:
    """Move an optimizer's state to its parameters' devices, or to one device.

    The counter ``step`` stays on the CPU unless the optimizer is capturable or fused: on a device, each step of a
    plain Adam would wait for it.

    Args:
        optimizer: Its state is changed in place.
        device: Where to move the state; by default each parameter's own device.
    """
    for group in optimizer.param_groups:
        step_follows = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            entry = optimizer.state.get(parameter)
            if not entry:
                continue
            target = device or parameter.device
            for key, value in entry.items():
                wanted = target if key != "step" or step_follows else torch.device("cpu")
                entry[key] = _moved(value, wanted)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device)
    if type(value) in (list, tuple):
        return type(value)(_moved(item, device) for item in value)
    if type(value) is dict:
        return {key: _moved(item, device) for key, item in value.items()}
    return value


def is_on(module: torch.nn.Module, device: torch.device) -> bool:
    """Return whether all parameters and buffers of a module are on a device."""
    return all(tensor.device == device for tensors in (module.parameters(), module.buffers()) for tensor in tensors)


def move_optimizers(optimizers: Iterable[Optimizer], device: torch.device) -> None:
    """Move the state of several optimizers to one device."""
    for optimizer in optimizers:
        place_optimizer_state(optimizer, device)

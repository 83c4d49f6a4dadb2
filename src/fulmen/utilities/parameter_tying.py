"""Find parameters that are used under several names, and tie them again."""

from __future__ import annotations

from functools import reduce

from torch import nn


def find_shared_parameters(module: nn.Module) -> list[list[str]]:
    """Return groups of dotted names under which one and the same parameter is reachable.

    Args:
        module: The module to search with all its children.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def set_shared_parameters(module: nn.Module, shared_params: list[list[str]]) -> nn.Module:
    """Make all names of each group refer to the parameter of the group's first name.

    Args:
        module: The module to change.
        shared_params: Groups of dotted names, as `find_shared_parameters` returns them.

    Returns:
        The same module.
    """
    for first, *others in shared_params:
        parameter = reduce(getattr, first.split("."), module)
        for name in others:
            *path, last = name.split(".")
            setattr(reduce(getattr, path, module), last, parameter)
    return module

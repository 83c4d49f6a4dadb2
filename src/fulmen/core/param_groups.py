"""Parameter groups in checkpoints: by the names of their parameters, so that groups added during a run come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from fulmen.errors import MisconfigurationException
from fulmen.strategies.state import plain_key

Groups = list[list[str | None]]


def group_names(optimizer: Any, module: nn.Module) -> Groups:
    """Names of the parameters in each group of an optimizer; `None` for one that is not the module's."""
    names = {id(parameter): name for name, parameter in _named_parameters(module)}
    groups = getattr(optimizer, "param_groups", [])
    return [[names.get(id(parameter)) for parameter in group["params"]] for group in groups]


def frozen_names(module: nn.Module) -> list[str]:
    """Names of the parameters that need no gradient."""
    return [name for name, parameter in _named_parameters(module) if not parameter.requires_grad]


def rebuild_groups(optimizer: Any, module: nn.Module, state: Mapping[str, Any], stored: Groups, where: str) -> None:
    """Give an optimizer the groups that it had when a checkpoint was written.

    Groups that were added during the run (`optimizer.add_param_group`, as in gradual unfreezing) are added, and
    parameters go to the place that they had; options of the groups come with the optimizer's state. Nothing is done
    where names do not tell what belongs where, and where a fresh group is not in the file: then loading the state says
    what does not fit.

    Args:
        optimizer: As `configure_optimizers` made it.
        module: The module.
        state: The optimizer's state in the checkpoint.
        stored: Names of its groups there, from `group_names`.
        where: Call and argument, for errors.

    Raises:
        MisconfigurationException: If a parameter of a group is not in the module, or the file lacks one that is.
    """
    have = group_names(optimizer, module)
    if have == stored or len(have) > len(stored) or any(name is None for group in [*have, *stored] for name in group):
        return
    parameters = dict(_named_parameters(module))
    wanted = [str(name) for group in stored for name in group]
    lost = [name for name in wanted if name not in parameters]
    further = [str(name) for group in have for name in group if name not in wanted]
    if lost or further:
        kind = type(optimizer).__name__
        what = f"not in the module: {_show(lost)}" if lost else f"not in the checkpoint's: {_show(further)}"
        raise MisconfigurationException(
            f"{where}: the groups of {kind} cannot be rebuilt, because parameters of its groups are {what}. Make the "
            "module and `configure_optimizers` as they were, or load the weights alone with `load_from_checkpoint` and "
            "start a new fit."
        )
    groups = optimizer.param_groups
    # All that are there are filled first: groups that are added must not share a parameter with them.
    for index, (group, names) in enumerate(zip(groups, stored, strict=False)):
        group["params"] = [parameters[str(name)] for name in names]
        if "param_names" in group:
            group["param_names"] = list(state["param_groups"][index]["param_names"])
    for index in range(len(groups), len(stored)):
        members: list[Any] = [parameters[str(name)] for name in stored[index]]
        titles = state["param_groups"][index].get("param_names")
        optimizer.add_param_group({"params": members if titles is None else list(zip(titles, members, strict=True))})


def unfreeze(module: nn.Module, groups: Sequence[Groups], frozen: Sequence[str]) -> list[str]:
    """Let parameters be trained that optimizers trained when a checkpoint was written, but that are frozen now.

    Args:
        module: The module.
        groups: Names of the groups of each optimizer in the checkpoint.
        frozen: Names of the parameters that were frozen.

    Returns:
        Their names.
    """
    trained = {name for optimizer in groups for group in optimizer for name in group} - set(frozen)
    found = {name: p for name, p in _named_parameters(module) if name in trained and not p.requires_grad}
    for parameter in found.values():
        parameter.requires_grad_(True)
    return list(found)


def _named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters by the names that checkpoints have for them, whatever is compiled."""
    return ((plain_key(name), parameter) for name, parameter in module.named_parameters())


def _show(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

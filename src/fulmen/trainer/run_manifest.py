"""The run's manifest: everything that was configured, and on what it ran, in plain values.

It is put together when a checkpoint, the run record or a logger first asks for it, and kept for the call.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fulmen.engine.runtime.flags import TrainerFlags
from fulmen.export.summary import is_lazy
from fulmen.utilities.logger import convert_params
from fulmen.utilities.machine import git_state, hardware, packages
from fulmen.utilities.seed import current_seed, workers_are_seeded
from fulmen.version import __version__

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

_LONGEST_TEXT = 2000
_MOST_ITEMS = 200
_DEEPEST = 6

# Arguments whose views have another name, and those that only the plan knows.
_VIEWS = {"devices": "num_devices", "logger": "loggers"}
_PLANNED = {
    "enable_checkpointing": "checkpoints",
    "enable_model_summary": "summary",
    "enable_progress_bar": "progress_bar",
    "fast_dev_run": "fast_dev_run",
    "max_time": "max_time",
    "num_sanity_val_steps": "sanity_steps",
    "val_check_interval": "val_interval",
}


def run_manifest(trainer: Trainer) -> dict[str, Any]:
    """Return the manifest of the running or last call; a section that fails says so instead of ending the run.

    Args:
        trainer: A Trainer with a module.

    Returns:
        The sections ``trainer``, ``module``, ``datamodule``, ``optimizers``, ``seed``, ``packages``, ``hardware`` and
        ``git``, of dicts, lists, texts, numbers, bools and `None` only.
    """
    if trainer.manifest is None:
        trainer.manifest = {name: _section(make, trainer) for name, make in _SECTIONS.items()}
    return trainer.manifest


def _section(make: Callable[[Trainer], Any], trainer: Trainer) -> Any:
    try:
        return make(trainer)
    except Exception as error:  # attributes and `repr` of user objects run user code
        return {"error": f"{type(error).__name__}: {error}"[:_LONGEST_TEXT]}


def _trainer(trainer: Trainer) -> dict[str, Any]:
    flags = trainer.plan.flags
    given: dict[str, Any] = {}
    effective: dict[str, Any] = {}
    for field in dataclasses.fields(TrainerFlags):
        value = getattr(flags, field.name)
        default = field.default
        if value is not default and not (type(value) is type(default) and value == default):
            given[field.name] = describe(value)
        if field.name in _PLANNED:
            value = getattr(trainer.plan, _PLANNED[field.name])
        else:
            value = getattr(trainer, _VIEWS.get(field.name, field.name), value)
        effective[field.name] = describe(value)
    return {"given": given, "effective": effective}


def _module(trainer: Trainer) -> dict[str, Any]:
    module = trainer.lightning_module
    parameters = [p for p in module.parameters() if not is_lazy(p)]
    return {
        "class": _dotted(type(module)),
        "hparams": describe(convert_params(module.hparams)),
        "parameters": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "automatic_optimization": module.automatic_optimization,
    }


def _datamodule(trainer: Trainer) -> dict[str, Any] | None:
    data = trainer.datamodule
    if data is None:
        return None
    return {"class": _dotted(type(data)), "hparams": describe(convert_params(data.hparams))}


def _optimizers(trainer: Trainer) -> list[dict[str, Any]]:
    configs = trainer.lr_scheduler_configs
    found = []
    for optimizer in trainer.optimizers:
        groups = [_settings(group) for group in optimizer.param_groups]
        schedulers = [
            {
                "class": _dotted(type(c.scheduler)),
                "interval": c.interval,
                "frequency": c.frequency,
                "monitor": c.monitor,
            }
            for c in configs
            if getattr(c.scheduler, "optimizer", None) is optimizer
        ]
        found.append(
            {"class": _dotted(type(optimizer)), "groups": describe(groups), "schedulers": describe(schedulers)}
        )
    return found


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a parameter group as the optimizer was made, whatever a scheduler has done since."""
    settings = {name: value for name, value in group.items() if name not in ("params", "initial_lr")}
    if "initial_lr" in group:
        settings["lr"] = group["initial_lr"]
    return {**settings, "tensors": len(group["params"])}


_SECTIONS: dict[str, Callable[[Any], Any]] = {
    "trainer": _trainer,
    "module": _module,
    "datamodule": _datamodule,
    "optimizers": _optimizers,
    "seed": lambda trainer: {"seed": current_seed(), "workers": workers_are_seeded()},
    "packages": lambda trainer: {"fulmen": __version__, **packages()},
    "hardware": lambda trainer: {"processes": trainer.world_size, **hardware(str(trainer.strategy.root_device))},
    # The ranks have the same code: one of them asks.
    "git": lambda trainer: git_state() if trainer.is_global_zero else None,
}


def describe(value: Any, depth: int = 0) -> Any:
    """Return a value in plain form: an object is its class and those constructor arguments that it kept.

    Long texts and collections are cut, tensors and arrays are their type and shape.

    Args:
        value: Any value.
        depth: How deep in a structure it stands.
    """
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        text = str(value)
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    if isinstance(value, enum.Enum):
        return describe(value.value, depth)
    if isinstance(value, os.PathLike | timedelta):
        return str(value)
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type == "cpu":
        return value.item()
    if isinstance(value, Tensor) or (hasattr(value, "shape") and hasattr(value, "dtype")):
        return f"<{type(value).__name__} {tuple(value.shape)}>"
    if inspect.isclass(value) or inspect.isroutine(value):
        return _dotted(value)
    if depth >= _DEEPEST:
        return f"<{_dotted(type(value))}>"
    if isinstance(value, Mapping):
        return {str(key): describe(item, depth + 1) for key, item in list(value.items())[:_MOST_ITEMS]}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [describe(item, depth + 1) for item in list(items)[:_MOST_ITEMS]]
    if type(value).__module__ == "torch":  # devices, dtypes
        return str(value)
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value)]
        return {"class": _dotted(type(value)), **{name: describe(getattr(value, name), depth + 1) for name in fields}}
    return {"class": _dotted(type(value)), **_kept_arguments(value, depth)}


def _kept_arguments(value: Any, depth: int) -> dict[str, Any]:
    """Constructor arguments that an object keeps under their names; properties are not read, they may do work."""
    try:
        attributes = vars(value)
    except TypeError:
        return {}
    kept = {}
    kind: Any = type(value)
    for name in _constructor_arguments(kind):
        for attribute in (name, f"_{name}"):
            if attribute in attributes:
                kept[name] = describe(attributes[attribute], max(depth + 1, _DEEPEST - 1))
                break
    return kept


@functools.cache
def _constructor_arguments(cls: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(cls).parameters)
    except (TypeError, ValueError):
        return ()


def _dotted(thing: Any) -> str:
    return f"{getattr(thing, '__module__', None) or 'builtins'}.{getattr(thing, '__qualname__', type(thing).__name__)}"

"""Hooks as Lightning 1.x had them: found when a run begins, so that none is passed over in silence."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from fulmen.engine.hooks.spec import (
    BACKWARD,
    BEFORE_OPTIMIZER_STEP,
    CONFIGURE_GRADIENT_CLIPPING,
    LR_SCHEDULER_STEP,
    OLD_ARGUMENTS,
    OLD_HOOKS,
    OPTIMIZER_STEP,
    OPTIMIZER_ZERO_GRAD,
    SLOT_NAMES,
    TRAINING_STEP,
)
from fulmen.engine.hooks.table import overrides, takes_optimizer_idx
from fulmen.engine.runtime.policy import compat_mode
from fulmen.errors import MisconfigurationException, warn

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

MODULE, CALLBACK, DATA = "module", "callback", "data"

_WITH_ARGUMENTS = (
    *SLOT_NAMES,
    *(s.name for s in (BACKWARD, CONFIGURE_GRADIENT_CLIPPING, LR_SCHEDULER_STEP, OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD)),
)
# Hooks of a stage are called in runs of it; validation is part of a fit.
_STAGES = {"train": ("fit",), "validation": ("fit", "validate"), "test": ("test",), "predict": ("predict",)}


class RemovedHookError(MisconfigurationException, NotImplementedError):
    """A hook that Lightning 2 refuses, under its policy."""


def warn_of_old_hooks(trainer: Trainer, obj: Any, role: str) -> None:
    """Warn of each hook of Lightning 1.x that an object has.

    Args:
        trainer: The Trainer.
        obj: A module, data module or callback.
        role: Which of these it is.

    Raises:
        RemovedHookError: Under `Policy.lightning`, for those that Lightning 2 refuses.
    """
    kind = type(obj)
    for name, hook in OLD_HOOKS.items():
        if role not in hook.owners or not (hasattr(kind, name) or name in vars(obj)):
            continue
        if not callable(getattr(obj, name)):
            continue
        where = f"{kind.__name__}.{name}"
        if trainer.state.fn in hook.refused and not trainer.policy.old_epoch_end_warns:
            raise RemovedHookError(f"{where} is a hook of Lightning 1.x that 2.0 dropped. Use {hook.instead}.")
        called = bool(hook.calls) and compat_mode()
        state = "it is called as it was there" if called else "it is never called"
        warn("W416", f"{where} is a hook of Lightning 1.x; {state}. Use {hook.instead}.", key=where)


def check_old_arguments(trainer: Trainer, obj: Any, base: type) -> None:
    """Check that the hooks of a run can be called with what they get today.

    Args:
        trainer: The Trainer.
        obj: A module, data module or callback.
        base: The class whose methods say what that is.

    Raises:
        MisconfigurationException: For one that cannot, or that would take an argument for another one.
    """
    for name in _WITH_ARGUMENTS:
        standard = getattr(base, name, None)
        if standard is None or not _in_stage(name, trainer) or not overrides(obj, name, base):
            continue
        function = getattr(obj, name)
        if not inspect.isroutine(function):
            continue
        if name == BEFORE_OPTIMIZER_STEP.name and compat_mode() and takes_optimizer_idx(function):
            continue  # it gets the number
        if name == OPTIMIZER_STEP.name and takes_optimizer_idx(function) and _is_old_step(trainer, obj):
            continue  # it gets it too
        parameters = list(inspect.signature(standard).parameters.values())[1:]
        named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        every, least = [p.name for p in named], [p.name for p in named if p.default is p.empty]
        if problem := _problem(function, every, least):
            raise MisconfigurationException(
                f"{type(obj).__name__}.{name} {problem}; it is called with ({', '.join(every)}). Write "
                f"`def {name}(self, {', '.join(every)})`."
            )


def _is_old_step(trainer: Trainer, module: Any) -> bool:
    """Whether the module's training step is called once per optimizer."""
    return trainer.policy.several_optimizers and takes_optimizer_idx(getattr(module, TRAINING_STEP.name))


def _in_stage(name: str, trainer: Trainer) -> bool:
    _, _, rest = name.partition("_")
    return trainer.state.fn in _STAGES.get(rest.partition("_")[0], ("fit",))


def _problem(function: Any, *ways: list[str]) -> str:
    """What is wrong with a hook that is called in the first of these ways that it can be called in."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of an extension module
        return ""
    for given in ways:
        try:
            bound = signature.bind(*given)
        except TypeError:
            continue
        old = [name for name in OLD_ARGUMENTS & bound.arguments.keys() if name not in given]
        return f"takes {old[0]!r}, an argument of Lightning 1.x" if old else ""
    return f"has the arguments ({', '.join(signature.parameters)})"

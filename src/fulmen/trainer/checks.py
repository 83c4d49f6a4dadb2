"""Is what a call was given enough to run it? Errors before any time is spent."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from fulmen.core.datamodule import LightningDataModule
from fulmen.core.module import LightningModule
from fulmen.engine.hooks import spec
from fulmen.engine.hooks.table import overrides
from fulmen.engine.loops.loaders import missing_loader
from fulmen.engine.loops.signatures import check_step
from fulmen.errors import ArgumentTypeError, DataError, MisconfigurationException, PossibleUserWarning, suggest, warn
from fulmen.trainer.limits import check_limits
from fulmen.trainer.states import TrainerFn
from fulmen.utilities.compiler import compiled_with

if TYPE_CHECKING:
    from fulmen.trainer.run import Request
    from fulmen.trainer.trainer import Trainer

_NAMES = {
    TrainerFn.FITTING: (spec.TRAINING_STEP.name, spec.TRAIN_LOADER),
    TrainerFn.VALIDATING: (spec.VALIDATION.step, spec.VALIDATION.loader),
    TrainerFn.TESTING: (spec.TEST.step, spec.TEST.loader),
    TrainerFn.PREDICTING: (spec.PREDICT.step, spec.PREDICT.loader),
}


def check_module(module: Any, where: str) -> Any:
    """Return the module behind `module`, which may be a compiled one; its steps are compiled in the same way then.

    Raises:
        ArgumentTypeError: If it is no LightningModule.
    """
    original = getattr(module, "_orig_mod", module)
    if isinstance(original, LightningModule):
        how = None if original is module else compiled_with(module)
        if how is not original.dynamo_ctx:
            original.dynamo_ctx = how
        return original
    hint = " Give an object, not the class." if isinstance(module, type) else ""
    raise ArgumentTypeError(f"{where}: `model` must be a LightningModule, but {type(module).__name__} was given.{hint}")


def check_request(trainer: Trainer, request: Request) -> None:
    """Check module, data module, steps and loaders of a call.

    Raises:
        MisconfigurationException: With what is missing and how to give it.
    """
    step, loader = _NAMES[request.fn]
    module, data = request.module, request.datamodule
    name = type(module).__name__
    where = f"Trainer.{request.fn.value}"
    if data is not None:
        if not isinstance(data, LightningDataModule):
            raise ArgumentTypeError(
                f"{where}(datamodule=...): must be a LightningDataModule, but {type(data).__name__} was given; pass "
                "loaders with `train_dataloaders=` or `dataloaders=`."
            )
        given = [key for key, value in request.loaders.items() if value is not None]
        if given:
            raise MisconfigurationException(f"{where}: give loaders or a data module, not both.")
    if not overrides(module, step, LightningModule) and step != spec.PREDICT.step:
        raise MisconfigurationException(f"{where}: {name} has no `{step}`; define it.{_misspelt(module, step)}")
    if request.fn == TrainerFn.FITTING:
        _check_fit(trainer, request)
    elif step == spec.PREDICT.step and not overrides(module, step, LightningModule):
        from torch import nn

        if type(module).forward in (LightningModule.forward, nn.Module.forward):
            raise MisconfigurationException(f"{where}: {name} has neither `{step}` nor `forward`; define one.")
    owner = data if data is not None else module
    if request.loaders.get(loader) is None and not _gives(owner, loader):
        raise DataError(f"{where}: {missing_loader(loader, name, fitting=request.fn == TrainerFn.FITTING)}")
    if request.fn == TrainerFn.FITTING:
        check_limits(trainer, request)
        if trainer.control.limits.val != 0:
            _warn_of_no_validation(request, name, loader=_has_loader(request, spec.VALIDATION.loader))


def _has_loader(request: Request, loader: str) -> bool:
    owner = request.datamodule if request.datamodule is not None else request.module
    return request.loaders.get(loader) is not None or _gives(owner, loader)


def _warn_of_no_validation(request: Request, name: str, *, loader: bool) -> None:
    """Say that a fit does not validate because one half of what it takes is missing."""
    step = overrides(request.module, spec.VALIDATION.step, LightningModule)
    if loader and not step:
        warn(
            "W411",
            f"Trainer.fit: there is a validation loader, but {name} has no `validation_step`, so nothing is validated. "
            "Define it, or leave the loader out.",
            key=name,
        )
    elif step and not loader:
        warn(
            "W412",
            f"Trainer.fit: {name} has a `validation_step`, but there is no validation loader, so nothing is validated. "
            "Pass `val_dataloaders=`, define `val_dataloader`, or set Trainer(limit_val_batches=0) if that is meant.",
            key=name,
            category=PossibleUserWarning,
        )


_MEANT = {
    "train_loader": "train_dataloaders",
    "train_data": "train_dataloaders",
    "val_loader": "val_dataloaders",
    "valid_dataloaders": "val_dataloaders",
    "data": "datamodule",
    "dm": "datamodule",
    "resume_from_checkpoint": "ckpt_path",
    "checkpoint_path": "ckpt_path",
    "epochs": "max_epochs",
    "steps": "max_steps",
    "test_dataloaders": "dataloaders",
    "val_dataloaders": "dataloaders",
    "predict_dataloaders": "dataloaders",
    "dataloaders": "train_dataloaders",
    "module": "model",
}


def refuse_unknown(method: Any, unknown: dict[str, Any]) -> None:
    """Refuse keywords that a call does not know, with the one that was probably meant.

    Raises:
        TypeError: If there are any.
    """
    if not unknown:
        return
    names = [p.name for p in signature(method).parameters.values() if p.kind is not p.VAR_KEYWORD]
    hints = []
    for name in unknown:
        meant = _MEANT.get(name)
        hints.append(f" Did you mean {meant!r}?" if meant in names else suggest(name, names))
    raise TypeError(
        f"Trainer.{method.__name__}({', '.join(f'{name}=...' for name in unknown)}): there is no such argument."
        f"{''.join(hints)}"
    )


def _gives(owner: Any, loader: str) -> bool:
    base = LightningDataModule if isinstance(owner, LightningDataModule) else LightningModule
    return overrides(owner, loader, base)


def _misspelt(module: Any, step: str) -> str:
    from difflib import get_close_matches

    own = [n for n in dir(type(module)) if not n.startswith("_") and not hasattr(LightningModule, n)]
    close = get_close_matches(step, own, n=1, cutoff=0.8)
    return f" It has `{close[0]}`: is that a misspelling?" if close else ""


def _check_fit(trainer: Trainer, request: Request) -> None:
    module = request.module
    name = type(module).__name__
    if not overrides(module, spec.CONFIGURE_OPTIMIZERS.name, LightningModule):
        raise MisconfigurationException(
            f"Trainer.fit: {name} has no `configure_optimizers`; define it and return an optimizer. There is no "
            "default optimizer."
        )
    indexed = trainer.policy.several_optimizers
    check_step(getattr(module, spec.TRAINING_STEP.name), name, spec.TRAINING_STEP.name, indexed=indexed)
    if overrides(module, spec.VALIDATION.step, LightningModule):
        # How many loaders there are is seen later; what cannot be called with any number of them is wrong now.
        check_step(getattr(module, spec.VALIDATION.step), name, spec.VALIDATION.step, loaders=0)
    control = trainer.control
    if not module.automatic_optimization:
        if control.accumulate != 1:
            raise MisconfigurationException(
                f"Trainer(accumulate_grad_batches={control.accumulate}) does nothing in manual optimization "
                f"({name}.automatic_optimization is False); leave it out and step every {control.accumulate} batches "
                "in `training_step`."
            )
        if control.clip_value:
            raise MisconfigurationException(
                f"Trainer(gradient_clip_val={control.clip_value}) does nothing in manual optimization "
                f"({name}.automatic_optimization is False); leave it out and call `self.clip_gradients(optimizer, "
                f"{control.clip_value})` before `optimizer.step()`."
            )

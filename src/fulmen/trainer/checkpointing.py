"""What a checkpoint holds, who owns each part, and how a run takes it back."""

from __future__ import annotations

import os
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.core.datamodule import LightningDataModule
from fulmen.core.hparams import hparams_entries
from fulmen.core.param_groups import frozen_names, group_names, rebuild_groups, unfreeze
from fulmen.core.saving import load_weights
from fulmen.engine.hooks.spec import LOAD, LOAD_STATE, SAVE, SPECS, STATE
from fulmen.engine.hooks.table import overrides
from fulmen.engine.loops.control import Progress
from fulmen.engine.storage import find_unsafe, get_filesystem, newest_good, require_safe
from fulmen.errors import CheckpointError, CorruptCheckpointError, MisconfigurationException, suggest, warn
from fulmen.trainer.auto_resume import log_version, program_of
from fulmen.trainer.requeue import newest_hpc_checkpoint
from fulmen.trainer.run_manifest import run_manifest
from fulmen.trainer.setup import check_keys
from fulmen.trainer.states import TrainerFn
from fulmen.types import Stateful
from fulmen.utilities.rank_zero import rank_zero_info
from fulmen.utilities.seed import collect_rng_states, current_seed
from fulmen.version import LIGHTNING_VERSION, __version__

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

VERSION_KEY = "pytorch-lightning_version"


def owners(trainer: Trainer) -> dict[str, Stateful]:
    """Name and owner of each state of the engine that a full checkpoint keeps."""
    found: dict[str, Stateful] = {"progress": trainer.progress, "metrics": trainer.hub}
    if trainer.session is not None:
        found["results"] = trainer.session.train_results
    return found


def dump(trainer: Trainer, *, weights_only: bool) -> dict[str, Any]:
    """Put a checkpoint together; fires the hooks around saving.

    Args:
        trainer: A Trainer with a module.
        weights_only: Leave out everything but weights and hyperparameters.

    Raises:
        MisconfigurationException: If there is no module to save.
    """
    module = trainer.lightning_module
    if module is None:
        raise MisconfigurationException(
            "Trainer.save_checkpoint(...) was called before a module was attached; call `fit`, `validate`, `test` or "
            "`predict` first."
        )
    strategy = trainer.strategy
    checkpoint: dict[str, Any] = {
        "epoch": trainer.current_epoch,
        "global_step": trainer.global_step,
        VERSION_KEY: LIGHTNING_VERSION,
        "loops": {"fit_loop": trainer.progress.state_dict()},
        "state_dict": strategy.module_state(module),
        "fulmen": _identity(trainer),
    }
    if not weights_only:
        checkpoint |= _training_state(trainer)
    checkpoint |= hparams_entries(module)
    if trainer.datamodule is not None:
        checkpoint |= hparams_entries(trainer.datamodule)
    data, cursor = trainer.datamodule, trainer.cursor
    outer, cursor.hook = cursor.hook, SPECS[SAVE]
    if not weights_only:
        if data is not None and overrides(data, STATE, LightningDataModule):
            checkpoint[type(data).__qualname__] = data.state_dict()
        for callback in trainer.callbacks:
            if overrides(callback, SAVE, Callback):
                callback.on_save_checkpoint(trainer, module, checkpoint)
    module.on_save_checkpoint(checkpoint)
    cursor.hook = outer
    return checkpoint


def _identity(trainer: Trainer) -> dict[str, Any]:
    """Whose checkpoint it is, in files of weights only too."""
    return {
        "version": __version__,
        "run_id": trainer.run_id,
        "seed": current_seed(),
        "program": program_of(trainer.lightning_module),
        "logs": log_version(trainer),
        "manifest": run_manifest(trainer),
    }


def _training_state(trainer: Trainer) -> dict[str, Any]:
    strategy = trainer.strategy
    for logger in trainer.loggers:
        trainer.hub.sender.call(logger, "save")  # after a resume rows from before the checkpoint do not come again
    state: dict[str, Any] = {"callbacks": {}}
    check_keys(trainer.callbacks)  # some may have come during the run
    for callback in trainer.callbacks:
        if overrides(callback, STATE, Callback) and hasattr(callback, "state_key"):
            own = callback.state_dict()
            if own:
                state["callbacks"][callback.state_key] = own
    state["optimizer_states"] = [strategy.optimizer_state(optimizer) for optimizer in trainer.optimizers]
    state["lr_schedulers"] = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
    precision = trainer.precision_plugin.state_dict()
    if precision:
        state[type(trainer.precision_plugin).__qualname__] = precision
    states = {name: owner.state_dict() for name, owner in owners(trainer).items()}
    del states["progress"]  # has its own key, also in files of weights only
    state["fulmen"] = {
        **_identity(trainer),
        "rng": collect_rng_states(),
        "position": trainer.position(),
        "loggers": [getattr(logger, "position", lambda: None)() for logger in trainer.loggers],
        "groups": [group_names(optimizer, trainer.lightning_module) for optimizer in trainer.optimizers],
        "frozen": frozen_names(trainer.lightning_module),
        **states,
    }
    return state


def resolve_path(trainer: Trainer, path: Any, *, fn: str) -> Any:
    """Turn `ckpt_path` into a path: `"best"` and `"last"` are looked up.

    Raises:
        MisconfigurationException: If there is no such checkpoint.
    """
    if path is None or path == "":
        return None
    if not isinstance(path, (str, os.PathLike)):
        raise MisconfigurationException(
            f"Trainer.{fn}(ckpt_path={path!r}): must be a path, 'best', 'last' or None, not {type(path).__name__}."
        )
    if path == "best":
        return _best(trainer, fn)
    if path == "last":
        return _last(trainer, fn)
    if path == "hpc":
        return _hpc(trainer, fn)
    if str(path).startswith("registry:"):
        raise MisconfigurationException(
            f"Trainer.{fn}(ckpt_path={path!r}): not available in this version of Fulmen; give a path."
        )
    filesystem, plain = get_filesystem(path), str(path)
    if not filesystem.exists(plain):
        hint = suggest(plain, ["best", "last"]) if os.sep not in plain else ""
        raise FileNotFoundError(f"Trainer.{fn}(ckpt_path={plain!r}): there is no such file.{hint}")
    return path


def _best(trainer: Trainer, fn: str) -> str:
    callbacks = trainer.checkpoint_callbacks
    if not callbacks:
        raise MisconfigurationException(
            f"Trainer.{fn}(ckpt_path='best'): there is no ModelCheckpoint; add one, or give a path."
        )
    if len(callbacks) > 1:
        warn(
            "W401",
            f"Trainer.{fn}(ckpt_path='best'): there are {len(callbacks)} checkpoint callbacks; the first one's best "
            "is taken.",
        )
    best = getattr(callbacks[0], "best_model_path", "")
    if not best:
        why = " because fast_dev_run writes no checkpoints" if trainer.fast_dev_run else ""
        raise MisconfigurationException(
            f"Trainer.{fn}(ckpt_path='best'): {type(callbacks[0]).__name__} has not saved a checkpoint yet{why}. Call "
            "`fit` first, or give a path."
        )
    return str(best)


def _last(trainer: Trainer, fn: str) -> str | None:
    found = {path for callback in trainer.checkpoint_callbacks for path in callback.find_last_checkpoints(trainer)}
    if not found:
        warn("W402", f"Trainer.{fn}(ckpt_path='last'): there is no last checkpoint; starting without one.")
        return None
    return max(found, key=lambda path: get_filesystem(path).modified(path))


def _hpc(trainer: Trainer, fn: str) -> str:
    found = newest_hpc_checkpoint(str(trainer.default_root_dir))
    if found is None:
        raise MisconfigurationException(
            f"Trainer.{fn}(ckpt_path='hpc'): there is no hpc_ckpt_<n>.ckpt in {trainer.default_root_dir}; it is "
            "written when Slurm ends a job with SIGUSR1."
        )
    return found


def read(trainer: Trainer, path: Any, weights_only: bool | None) -> tuple[dict[str, Any], Any]:
    """Load a checkpoint; if it is damaged, the newest good one of its folder instead.

    Returns:
        The checkpoint, and the path that it was read from.
    """
    try:
        return trainer.strategy.load_checkpoint(path, weights_only=weights_only), path
    except CorruptCheckpointError as error:
        other = newest_good(path)
        if other is None or str(other) == str(path):
            raise
        warn("W403", f"{error} Going on from {other!r}, the newest good checkpoint of the folder.", key=str(path))
        return trainer.strategy.load_checkpoint(other, weights_only=weights_only), other


def restore_module(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Give weights back to the module, with the hook before it."""
    module = trainer.lightning_module
    cursor = trainer.cursor
    outer, cursor.hook = cursor.hook, SPECS[LOAD]
    module.on_load_checkpoint(checkpoint)
    cursor.hook = outer
    state = checkpoint.get("state_dict")
    if state is None:
        raise CheckpointError(
            f"The checkpoint {trainer.ckpt_path} has no 'state_dict' (keys: {sorted(map(str, checkpoint))})."
        )
    load = partial(trainer.strategy.load_module_state, module)
    load_weights(module, state, module.strict_loading, f"Trainer.{trainer.state.fn}(ckpt_path=...)", load=load)


def rewind_loggers(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Cut loggers back to the resume step, so that a row per step and key stays unique."""
    counters = (checkpoint.get("loops") or {}).get("fit_loop") or {}
    if "stepped_batches" not in counters:
        return
    # Of the batch that comes next some rows may be there already (its rate, a validation before it): they stay, and
    # what comes again takes their place.
    step = int(counters["stepped_batches"]) + 1
    own = checkpoint.get("fulmen") or {}
    axes = (own.get("metrics") or {}).get("axes") or {}
    positions = own.get("loggers") or []
    for logger, position in zip_longest(trainer.loggers, positions[: len(trainer.loggers)]):
        go_back = getattr(logger, "go_back", None)
        if position is not None and callable(go_back) and go_back(position):
            continue
        if (axes.get("keys") or getattr(logger, "axis", None)) and not getattr(logger, "axis_as_column", False):
            continue  # it has points at other x values, which the step says nothing about
        rewind = getattr(logger, "rewind", None)
        if callable(rewind):
            rewind(step)


def restore_callbacks(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Give states back to data module and callbacks."""
    data, module = trainer.datamodule, trainer.lightning_module
    key = type(data).__qualname__
    if data is not None and overrides(data, LOAD_STATE, LightningDataModule) and key in checkpoint:
        data.load_state_dict(checkpoint[key])
    states = checkpoint.get("callbacks") or {}
    if find_unsafe(states):
        if trainer.state.fn == TrainerFn.FITTING:
            require_safe(states, f"Trainer.{trainer.state.fn}(ckpt_path=...)")
        # An evaluation can do without them; the weights are what counts.
        states = {key: state for key, state in states.items() if not find_unsafe(state)}
    for callback in trainer.callbacks:
        if overrides(callback, LOAD, Callback):
            outer, trainer.cursor.hook = trainer.cursor.hook, SPECS[LOAD]
            callback.on_load_checkpoint(trainer, module, checkpoint)
            trainer.cursor.hook = outer
    lost = set(states)
    for callback in trainer.callbacks:
        own = states.get(getattr(callback, "state_key", None))
        if own is not None:
            lost.discard(callback.state_key)
            callback.load_state_dict(own)
    if lost and trainer.state.fn == TrainerFn.FITTING:
        warn(
            "W404",
            f"The checkpoint has states of callbacks that this Trainer does not have: {sorted(map(str, lost))}. They "
            "are left out.",
            key=str(sorted(map(str, lost))),
        )


def restore_training(trainer: Trainer, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Give states back to precision, optimizers, schedulers and counters.

    Returns:
        What the fit loop needs to go on: its position, logged values and random states.

    Raises:
        MisconfigurationException: If the file holds weights only, or another number of optimizers or schedulers.
    """
    where = f"Trainer.fit(ckpt_path={str(trainer.ckpt_path)!r})"
    if "optimizer_states" not in checkpoint or "lr_schedulers" not in checkpoint:
        raise MisconfigurationException(
            f"{where}: the checkpoint holds weights only (save_weights_only=True), so that training cannot go on from "
            "it. Load the weights with `load_from_checkpoint` and start a new fit."
        )
    precision = checkpoint.get(type(trainer.precision_plugin).__qualname__)
    if precision is not None:
        trainer.precision_plugin.load_state_dict(precision)
    _same_number(where, "optimizers", trainer.optimizers, checkpoint["optimizer_states"])
    _same_number(where, "schedulers", trainer.lr_scheduler_configs, checkpoint["lr_schedulers"])
    own = checkpoint.get("fulmen") or {}
    if own.get("groups"):
        _restore_groups(trainer, checkpoint["optimizer_states"], own, where)
    for optimizer, state in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=True):
        _load_optimizer(trainer, optimizer, state, where)
    for config, state in zip(trainer.lr_scheduler_configs, checkpoint["lr_schedulers"], strict=True):
        config.scheduler.load_state_dict(state)
    restore_progress(trainer.progress, checkpoint)
    progress = trainer.progress
    session = trainer.session
    assert session is not None
    if own.get("results"):
        session.train_results.load_state_dict(own["results"])
    kept = "random states and data position" if own.get("rng") else "no random states"
    rank_zero_info(
        f"Resuming from {trainer.ckpt_path}: epoch {progress.epoch + progress.epoch_done}, batch "
        f"{0 if progress.epoch_done else progress.batches}, step "
        f"{progress.global_step}; restored weights, {len(trainer.optimizers)} optimizer(s), "
        f"{len(trainer.lr_scheduler_configs)} scheduler(s), callbacks, {kept}."
    )
    return {"rng": own.get("rng"), "metrics": own.get("metrics"), **(own.get("position") or {})}


def _restore_groups(trainer: Trainer, states: list[dict[str, Any]], own: dict[str, Any], where: str) -> None:
    """Groups that were added, and layers that were unfrozen, in the course of the run."""
    module = trainer.lightning_module
    for optimizer, state, stored in zip(trainer.optimizers, states, own["groups"], strict=True):
        rebuild_groups(optimizer, module, state, stored, where)
    if names := unfreeze(module, own["groups"], own.get("frozen") or []):
        rank_zero_info(f"{where}: trained again, as when the checkpoint was written: {', '.join(names)}.")


def _load_optimizer(trainer: Trainer, optimizer: Any, state: dict[str, Any], where: str) -> None:
    kind = type(optimizer).__name__
    remedy = (
        "Give the optimizer that the checkpoint was written with, or load the weights alone with "
        "`load_from_checkpoint` and start a new fit."
    )
    groups = state.get("param_groups", [])
    stored = set(groups[0]) - {"params", "initial_lr", "name"} if groups else set()
    missing = sorted(set(getattr(optimizer, "defaults", {})) - stored)
    if stored and missing:
        raise MisconfigurationException(
            f"{where}: the state is of another optimizer than {kind}: it has no "
            f"{', '.join(map(repr, missing))}. {remedy}"
        )
    try:
        trainer.strategy.load_optimizer_state(optimizer, state)
    except ValueError as error:
        raise MisconfigurationException(f"{where}: the state does not fit {kind}: {error}. {remedy}") from error


def _same_number(where: str, what: str, have: list[Any], stored: list[Any]) -> None:
    if len(have) != len(stored):
        raise MisconfigurationException(
            f"{where}: `configure_optimizers` gave {len(have)} {what}, the checkpoint has {len(stored)}; they must "
            "be the same to go on."
        )


def restore_progress(progress: Progress, checkpoint: dict[str, Any]) -> None:
    """Give the counters of a checkpoint to `progress`."""
    loop = (checkpoint.get("loops") or {}).get("fit_loop") or {}
    if "total_batches" in loop:
        progress.load_state_dict(loop)
        return
    # Lightning's own layout: counters of finished epochs and batches.
    current = loop.get("epoch_progress", {}).get("current", {})
    progress.epoch = int(current.get("processed", checkpoint.get("epoch", 0)))
    progress.global_step = int(checkpoint.get("global_step", 0))
    progress.optimizer_steps = progress.global_step
    batches = loop.get("epoch_loop.batch_progress", {})
    progress.total_batches = int(batches.get("total", {}).get("ready", progress.global_step))
    if current.get("processed", 0) < current.get("ready", 0):
        # A batch is processed before its `on_train_batch_end`, in which most files are written, and completed after it.
        progress.batches = int(batches.get("current", {}).get("processed", 0))
    stepped = loop.get("epoch_loop.state_dict", {}).get("_batches_that_stepped", progress.global_step)
    progress.stepped_batches = int(stepped)
    progress.closed_batches = progress.total_batches

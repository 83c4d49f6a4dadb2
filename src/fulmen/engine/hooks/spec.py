"""Every hook of a run, described once: who has it, what it gets, and what `self.log` may do in it.

This is the only place of the engine where hook names stand as strings; all others use the slots of
`fulmen.engine.hooks.table.HookTable` or these constants.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRule:
    """What `self.log` may do inside a hook.

    Attributes:
        step: Allowed values of `on_step`.
        epoch: Allowed values of `on_epoch`.
        default_step: `on_step` if the caller gives none.
        default_epoch: `on_epoch` if the caller gives none.
    """

    step: tuple[bool, ...]
    epoch: tuple[bool, ...]
    default_step: bool
    default_epoch: bool


_TRAIN_BATCH = LogRule((False, True), (False, True), default_step=True, default_epoch=False)
_EVAL_BATCH = LogRule((False, True), (False, True), default_step=False, default_epoch=True)
_EPOCH = LogRule((False,), (True,), default_step=False, default_epoch=True)


@dataclass(frozen=True, slots=True, eq=False)
class HookSpec:
    """One hook.

    Attributes:
        name: Method name on modules and callbacks.
        module: The module may have it.
        callback: Callbacks may have it (they get `trainer, pl_module` first).
        data: The data module may have it.
        log: Rule for `self.log` inside, `None` if logging there is an error.
        rebuild: The hook table is looked up anew before and after it fires (users patch and append up to there).
        patches: Looked up anew after it fired if callbacks or the module's attributes changed.
        decides: Callbacks that decide on monitored values run after the module in it (`Policy.monitors_last`).
        decides_always: The same whatever the policy says, as Lightning does.
    """

    name: str
    module: bool = True
    callback: bool = True
    data: bool = False
    log: LogRule | None = None
    rebuild: bool = False
    patches: bool = False
    decides: bool = False
    decides_always: bool = False


def _stage(stage: str, batch: LogRule | None, epoch: LogRule | None, *, decides: bool = False) -> list[HookSpec]:
    train = stage == "train"
    return [
        HookSpec(f"on_{stage}_start", log=epoch, rebuild=True),
        HookSpec(f"on_{stage}_epoch_start", log=epoch, rebuild=True),
        HookSpec(f"on_{stage}_batch_start", log=batch, patches=True),
        HookSpec(f"on_{stage}_batch_end", log=batch, decides=train),
        HookSpec(f"on_{stage}_epoch_end", log=epoch, decides=train, decides_always=train),
        HookSpec(f"on_{stage}_end", decides=decides),
    ]


_SPECS: list[HookSpec] = [
    HookSpec("on_fit_start", rebuild=True),
    HookSpec("on_fit_end"),
    HookSpec("on_sanity_check_start", module=False),
    HookSpec("on_sanity_check_end", module=False),
    *_stage("train", _TRAIN_BATCH, _EPOCH),
    *_stage("validation", _EVAL_BATCH, _EPOCH, decides=True),
    *_stage("test", _EVAL_BATCH, _EPOCH),
    *_stage("predict", None, None),
    HookSpec("on_before_zero_grad", log=_TRAIN_BATCH),
    HookSpec("on_before_backward", log=_TRAIN_BATCH),
    HookSpec("on_after_backward", log=_TRAIN_BATCH),
    HookSpec("on_before_optimizer_step", log=_TRAIN_BATCH),
    HookSpec("on_exception", module=False, data=True),
    HookSpec("on_save_checkpoint"),
    HookSpec("on_load_checkpoint"),
    HookSpec("setup", data=True),
    HookSpec("teardown", data=True),
    HookSpec("state_dict", module=False, data=True),
    HookSpec("load_state_dict", module=False, data=True),
    # Steps and what belongs to the module alone.
    HookSpec("training_step", callback=False, log=_TRAIN_BATCH),
    HookSpec("validation_step", callback=False, log=_EVAL_BATCH),
    HookSpec("test_step", callback=False, log=_EVAL_BATCH),
    HookSpec("predict_step", callback=False),
    HookSpec("configure_callbacks", callback=False),
    HookSpec("configure_model", callback=False),
    HookSpec("configure_sharded_model", callback=False),
    HookSpec("configure_optimizers", callback=False),
    HookSpec("configure_gradient_clipping", callback=False, log=_TRAIN_BATCH),
    HookSpec("backward", callback=False, log=_TRAIN_BATCH),
    HookSpec("optimizer_step", callback=False, log=_TRAIN_BATCH),
    HookSpec("optimizer_zero_grad", callback=False, log=_TRAIN_BATCH),
    HookSpec("lr_scheduler_step", callback=False),
    HookSpec("on_validation_model_zero_grad", callback=False),
    HookSpec("on_validation_model_eval", callback=False),
    HookSpec("on_validation_model_train", callback=False),
    HookSpec("on_test_model_eval", callback=False),
    HookSpec("on_test_model_train", callback=False),
    HookSpec("on_predict_model_eval", callback=False),
    HookSpec("prepare_data", callback=False, data=True),
    HookSpec("train_dataloader", callback=False, data=True),
    HookSpec("val_dataloader", callback=False, data=True),
    HookSpec("test_dataloader", callback=False, data=True),
    HookSpec("predict_dataloader", callback=False, data=True),
    HookSpec("on_before_batch_transfer", callback=False, data=True),
    HookSpec("transfer_batch_to_device", callback=False, data=True),
    HookSpec("on_after_batch_transfer", callback=False, data=True),
]

SPECS: dict[str, HookSpec] = {spec.name: spec for spec in _SPECS}
"""All hooks by name."""

HOOK_NAMES: frozenset[str] = frozenset(SPECS)
"""Names of all hooks."""

SLOT_NAMES: tuple[str, ...] = tuple(
    spec.name
    for spec in _SPECS
    if spec.name.startswith("on_") and spec.callback and "checkpoint" not in spec.name and spec.name != "on_exception"
)
"""Hooks that get a slot in the table: those that loops fire for callbacks and module."""

TRAINING_STEP = SPECS["training_step"]
VALIDATION_STEP = SPECS["validation_step"]
TEST_STEP = SPECS["test_step"]
PREDICT_STEP = SPECS["predict_step"]
CONFIGURE_OPTIMIZERS = SPECS["configure_optimizers"]
CONFIGURE_GRADIENT_CLIPPING = SPECS["configure_gradient_clipping"]
LR_SCHEDULER_STEP = SPECS["lr_scheduler_step"]
BACKWARD = SPECS["backward"]
BEFORE_OPTIMIZER_STEP = SPECS["on_before_optimizer_step"]
OPTIMIZER_STEP = SPECS["optimizer_step"]
OPTIMIZER_ZERO_GRAD = SPECS["optimizer_zero_grad"]


@dataclass(frozen=True, slots=True)
class StageNames:
    """Names of the hooks of one evaluation stage (`validation`, `test` or `predict`)."""

    stage: str
    step: str
    loader: str
    start: str
    end: str
    epoch_start: str
    epoch_end: str
    batch_start: str
    batch_end: str
    model_eval: str
    model_train: str | None

    @classmethod
    def of(cls, stage: str, loader: str, *, back_to_train: bool) -> StageNames:
        """Names for `stage`; `back_to_train` if the module has an `on_*_model_train` hook for it."""
        return cls(
            stage=stage,
            step=f"{stage}_step",
            loader=f"{loader}_dataloader",
            start=f"on_{stage}_start",
            end=f"on_{stage}_end",
            epoch_start=f"on_{stage}_epoch_start",
            epoch_end=f"on_{stage}_epoch_end",
            batch_start=f"on_{stage}_batch_start",
            batch_end=f"on_{stage}_batch_end",
            model_eval=f"on_{stage}_model_eval",
            model_train=f"on_{stage}_model_train" if back_to_train else None,
        )


VALIDATION = StageNames.of("validation", "val", back_to_train=True)
TEST = StageNames.of("test", "test", back_to_train=True)
PREDICT = StageNames.of("predict", "predict", back_to_train=False)
FIT_START = "on_fit_start"
FIT_END = "on_fit_end"
SANITY_START = "on_sanity_check_start"
SANITY_END = "on_sanity_check_end"
TRAIN_START = "on_train_start"
TRAIN_END = "on_train_end"
TRAIN_EPOCH_START = "on_train_epoch_start"
TRAIN_EPOCH_END = "on_train_epoch_end"
TRAIN_LOADER = "train_dataloader"
SETUP = "setup"
TEARDOWN = "teardown"
PREPARE_DATA = "prepare_data"
EXCEPTION = "on_exception"
SAVE = "on_save_checkpoint"
LOAD = "on_load_checkpoint"
STATE = "state_dict"
LOAD_STATE = "load_state_dict"
CONFIGURE_CALLBACKS = "configure_callbacks"
CONFIGURE_MODEL = ("configure_model", "configure_sharded_model")
ZERO_GRAD_BEFORE_VALIDATION = "on_validation_model_zero_grad"
TRANSFER = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


@dataclass(frozen=True, slots=True)
class OldHook:
    """A hook of Lightning 1.x that 2.0 dropped.

    Attributes:
        instead: What to write today.
        owners: Which of module, callback and data module could have it.
        refused: The stages in which Lightning 2 refuses a module that has it.
        calls: With which of today's hooks it went, without their arguments.
        first: Whether it came before them.
    """

    instead: str
    owners: tuple[str, ...] = ("module", "callback")
    refused: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    first: bool = True


def _collected(stage: str) -> str:
    return f"`on_{stage}_epoch_end`; outputs of the steps are kept by appending them to an attribute in the step"


_EPOCHS = ("train", "validation", "test", "predict")

OLD_HOOKS: dict[str, OldHook] = {
    "on_epoch_start": OldHook("`on_train_epoch_start`", calls=tuple(f"on_{s}_epoch_start" for s in _EPOCHS)),
    "on_epoch_end": OldHook("`on_train_epoch_end`", calls=tuple(f"on_{s}_epoch_end" for s in _EPOCHS), first=False),
    "on_batch_start": OldHook("`on_train_batch_start`", calls=("on_train_batch_start",)),
    "on_batch_end": OldHook("`on_train_batch_end`", calls=("on_train_batch_end",), first=False),
    "training_epoch_end": OldHook(_collected("train"), ("module",), refused=("fit",)),
    "validation_epoch_end": OldHook(_collected("validation"), ("module",), refused=("fit", "validate")),
    "test_epoch_end": OldHook(_collected("test"), ("module",), refused=("test",)),
    "training_step_end": OldHook("the end of `training_step`", ("module",)),
    "validation_step_end": OldHook("the end of `validation_step`", ("module",)),
    "test_step_end": OldHook("the end of `test_step`", ("module",)),
    "on_pretrain_routine_start": OldHook("`on_fit_start`", calls=("on_fit_start",), first=False),
    "on_pretrain_routine_end": OldHook("`on_fit_start`", calls=("on_fit_start",), first=False),
    "on_init_start": OldHook("`setup`", ("callback",)),
    "on_init_end": OldHook("`setup`", ("callback",)),
    "on_before_accelerator_backend_setup": OldHook("`setup`", ("callback",)),
    "on_configure_sharded_model": OldHook("`setup`", ("callback",)),
    "on_keyboard_interrupt": OldHook("`on_exception`", ("callback",), calls=("on_exception",)),
    "on_save_checkpoint": OldHook("`state_dict`, whose result is kept in the checkpoint", ("data",)),
    "on_load_checkpoint": OldHook("`load_state_dict`, which gets it back", ("data",)),
}
"""Hooks of Lightning 1.x by name."""

OLD_WITH: dict[str, tuple[str, ...]] = {
    name: tuple(old for old, hook in OLD_HOOKS.items() if name in hook.calls) for name in SPECS
}
"""For each hook those of Lightning 1.x that went with it."""

OLD_ARGUMENTS: frozenset[str] = frozenset({"on_tpu", "optimizer_idx", "using_lbfgs", "using_native_amp"})
"""Arguments that hooks had in Lightning 1.x."""

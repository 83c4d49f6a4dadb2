"""Every difference in behaviour from Lightning 2.6, as one switch each.

Loops, data and trainer read the fields at set-up, never per step. `Policy.right` is what `import fulmen` uses;
`Policy.lightning` is what the aliases, `fulmen run` and ``FULMEN_COMPAT=strict`` use.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest


def _switch(kind: str, lightning: str, fulmen: str, pains: str = "") -> Any:
    """A field that is on in `Policy.right`, with what each setting does in words."""
    return field(default=True, metadata={"kind": kind, "lightning": lightning, "fulmen": fulmen, "pains": pains})


@dataclass(frozen=True, slots=True)
class Policy:
    """Which of two behaviours a run has, one field per difference; `True` is Fulmen's, `False` Lightning's."""

    right: ClassVar[Policy]
    lightning: ClassVar[Policy]

    accumulate_actual_window: bool = _switch(
        "numbers",
        "gradient accumulation divides each loss by `accumulate_grad_batches`, in a shorter last window too",
        "gradient accumulation divides by the number of batches that are really in the window",
        "7",
    )
    count_batches: bool = _switch(
        "numbers",
        "`global_step` and `max_steps` count calls of wrapped optimizers' `step`, two per batch in a GAN",
        "`global_step` and `max_steps` count batches in which an optimizer stepped, wrapped or raw, one or several",
        "6, 22",
    )
    skip_scheduler_on_overflow: bool = _switch(
        "numbers",
        "the scheduler moves although the loss scaler skipped the optimizer step",
        "the scheduler is skipped together with the optimizer step, and `global_step` does not count it",
        "12",
    )
    unscale_before_manual_clip: bool = _switch(
        "numbers",
        "`clip_gradients` in manual optimization clips gradients that are still multiplied by the loss scale",
        "`clip_gradients` in manual optimization unscales first",
        "23",
    )
    none_loss_skips_step: bool = _switch(
        "numbers",
        "a `None` loss still calls the optimizer's `step`, counts it and moves the scheduler",
        "a `None` loss contributes nothing to its window; a window without any loss does not step",
        "28",
    )
    closure_keeps_window: bool = _switch(
        "numbers",
        "an optimizer that runs its closure several times for one update (L-BFGS) counts the last batch of an "
        "accumulation window once more at each run",
        "each run of the closure gives the gradients of the window's earlier batches and those of the last one, once",
    )
    several_optimizers: bool = _switch(
        "flow",
        "several optimizers need `automatic_optimization = False`; `training_step(batch, batch_idx, optimizer_idx)` is "
        "an error",
        "several optimizers work in automatic optimization: one backward of a shared loss, or one for each named "
        "optimizer; `optimizer_idx` steps of Lightning 1.x too",
        "6",
    )
    scheduler_counts_updates: bool = _switch(
        "numbers",
        "the `frequency` of a scheduler per step counts the batches of an epoch, and it moves at a batch that "
        "`on_train_batch_start` skips",
        "the `frequency` of a scheduler per step counts the updates of its optimizer",
    )
    plateau_waits: bool = _switch(
        "flow",
        "in an epoch without validation (`check_val_every_n_epoch`) a ReduceLROnPlateau gets the value of an earlier "
        "one again; before the first one it ends the run",
        "it waits for the epoch that has a validation",
        "33",
    )
    keep_integers: bool = _switch(
        "numbers",
        "logged Python integers become float32, exact only up to 2**24",
        "logged Python integers stay exact (int64)",
        "45",
    )
    counts_first_batch: bool = _switch(
        "numbers",
        "what a hook or step logs in the first batch of an epoch is dropped if it logs again after another hook did, "
        "as in manual optimization",
        "every logged value counts",
    )
    named_loaders: bool = _switch(
        "numbers",
        "values of several validation or test loaders end in `/dataloader_idx_N`, also if the loaders were a dict",
        "values of loaders given as a dict end in the loader's name: `val_loss/clean`",
        "32",
    )
    merge_loaders: bool = _switch(
        "numbers",
        "`self.log(..., add_dataloader_idx=False)` of one key in two loaders is an error",
        "`self.log(..., add_dataloader_idx=False)` of one key in several loaders is one mean over all their batches, "
        "weighted by batch size",
        "32",
    )
    cpu_fp16_is_fp16: bool = _switch(
        "numbers",
        '`precision="16-mixed"` on CPU becomes `bf16-mixed`',
        '`precision="16-mixed"` on CPU is float16 with a loss scaler',
    )
    teardown_after_exception: bool = _switch(
        "flow",
        "after an exception `teardown` is not called",
        "`teardown` of data module, callbacks and module is called after an exception too",
        "46",
    )
    raise_keyboard_interrupt: bool = _switch(
        "flow",
        "Ctrl-C ends the process with `exit(1)`",
        "Ctrl-C finishes the running step, lets ModelCheckpoint write `last.ckpt`, tears down and raises "
        "`KeyboardInterrupt` to the caller",
        "10",
    )
    refit_checked: bool = _switch(
        "flow",
        "a second `fit` that has nothing to do returns without a word",
        "a second `fit` that would do nothing raises and says how to train on",
        "21",
    )
    monitors_last: bool = _switch(
        "flow",
        "ModelCheckpoint and EarlyStopping decide before the module's own `on_validation_end`",
        "callbacks that decide on monitored values run after the module's hook",
        "50",
    )
    stops_anew: bool = _switch(
        "flow",
        "EarlyStopping before `min_epochs` or `min_steps` sets `should_stop` for good: the run ends there although the "
        "value recovered",
        "EarlyStopping decides anew at each check: a stop that was put off is withdrawn when the value recovers",
        "15",
    )
    monitors_wait: bool = _switch(
        "flow",
        "a checkpoint due at a step, and a decision in an epoch without validation, take the value of an earlier "
        "validation",
        "a checkpoint due at a step whose monitored value comes from validation waits for the next validation, and no "
        "callback decides on the value of an earlier one",
        "5, 33",
    )
    old_epoch_end_warns: bool = _switch(
        "flow",
        "a module with `training_epoch_end`, `validation_epoch_end` or `test_epoch_end` of Lightning 1.x ends the run "
        "with NotImplementedError",
        "it gets a warning with the name to use instead, as all hooks of Lightning 1.x do",
    )
    unknown_arguments_raise: bool = _switch(
        "flow",
        "an argument given to `load_from_checkpoint` that the constructor does not have is passed over (the policy of "
        "`FULMEN_COMPAT` or the aliases decides)",
        "it is an error that lists the constructor's arguments and the stored hyperparameters",
    )
    last_is_newest: bool = _switch(
        "flow",
        "`last.ckpt` is written only when a top-k checkpoint is",
        "`last.ckpt` is the newest state at every occasion to save",
        "9",
    )
    ends_with_data: bool = _switch(
        "flow",
        "an `IterableDataset` that gives fewer batches than its `len` says ends the epoch without validation; a "
        "`StopIteration` out of `__getitem__` or a collate function ends the epoch as if the data had ended",
        "the epoch ends, and validates, when the data ends; such a `StopIteration` is an error",
        "17",
    )
    empty_data_raises: bool = _switch(
        "flow",
        "a training loader without batches, or only such loaders for `validate`, `test` or `predict`, are passed over "
        "with a warning; a batch without rows makes epoch means NaN",
        "they raise an error that names the loader and says why it is empty; so does a batch without rows, when its "
        "size is asked for",
    )
    end_validates: bool = _switch(
        "flow",
        "a run that `max_steps` ends inside an epoch does not validate, nor does one that a stop ends in an epoch "
        "without validation; a checkpoint of its last batch has nothing left to do",
        "the batch at which `max_steps`, `max_time` or a stop ends a run is followed by a validation and by what is "
        "saved after one; a checkpoint of that batch goes on with them",
        "56",
    )
    min_steps_alone: bool = _switch(
        "flow",
        "`min_steps` without `min_epochs` also means `min_epochs=1`",
        "`min_steps` without `min_epochs` says nothing about epochs",
    )
    evaluates_at_checkpoint: bool = _switch(
        "flow",
        "`validate` and `test` with `ckpt_path` log at the Trainer's own step, 0 in a new process",
        "`validate` and `test` with `ckpt_path` log at the checkpoint's step and epoch",
        "24",
    )
    survive_logger_failure: bool = _switch(
        "flow",
        "a logger that fails (network, quota, disk) ends the run",
        "a logger that fails is told once, its rows wait and are sent later or kept in a file; training goes on",
    )
    reloads_draw_once: bool = _switch(
        "numbers",
        "a training loader that `reload_dataloaders_every_n_epochs` made anew, or that of a further `fit`, is started "
        "twice: its seed is drawn twice",
        "each epoch starts its loader once",
    )
    overfit_own_batches: bool = _switch(
        "numbers",
        "`overfit_batches` leaves the order to a batch sampler, which may shuffle",
        "`overfit_batches` takes the same batches each epoch also with a batch sampler",
    )
    trial_writes_nothing: bool = _switch(
        "flow",
        "`fast_dev_run` writes `last.ckpt` at the end if a ModelCheckpoint has `save_last`, and no other checkpoint",
        "`fast_dev_run` writes no checkpoint",
    )
    progress_fits_output: bool = _switch(
        "flow",
        "the default progress bar is rich's, also in a file or a notebook, and shows the epoch",
        "the default progress bar fits standard output (rich's on a terminal, HTML in a notebook, plain lines "
        "elsewhere) and shows the whole run with time left too",
        "25, 38",
    )
    run_record: bool = _switch(
        "flow",
        "no record beside the loggers' own files",
        "a JSON-lines record `run.jsonl` in the log folder",
    )

    def replace(self, **changes: bool) -> Policy:
        """Return a copy with some fields changed.

        Raises:
            ArgumentValueError: For a name that is no field.
            ArgumentTypeError: For a value that is no bool.
        """
        names = [f.name for f in dataclasses.fields(self)]
        for name, value in changes.items():
            if name not in names:
                raise ArgumentValueError(
                    f"Policy.replace({name}=...): there is no such field.{suggest(name, names)} Fields: {names}."
                )
            if not isinstance(value, bool):
                raise ArgumentTypeError(
                    f"Policy.replace({name}={value!r}): must be True (Fulmen's way) or False (Lightning's)."
                )
        return dataclasses.replace(self, **changes)


Policy.right = Policy()
Policy.lightning = Policy(**{f.name: False for f in dataclasses.fields(Policy)})


class _Default:
    policy: Policy | None = None


def set_default_policy(policy: Policy | None) -> Policy | None:
    """Set the policy of Trainers that get none; returns the former one. `None` goes back to the environment's."""
    former, _Default.policy = _Default.policy, policy
    return former


def compat_mode() -> bool:
    """Whether aliases are on, here or in the process that started this one, or `FULMEN_COMPAT=strict` was set."""
    return os.environ.get("FULMEN_COMPAT") == "strict"


def default_policy() -> Policy:
    """The policy of a Trainer that gets none: what was set, else `FULMEN_COMPAT=strict`, else `Policy.right`.

    Raises:
        ArgumentValueError: If `FULMEN_COMPAT` has another value than `strict` or `off`.
    """
    if _Default.policy is not None:
        return _Default.policy
    value = os.environ.get("FULMEN_COMPAT", "off")
    if value not in ("strict", "off", ""):
        raise ArgumentValueError(f"FULMEN_COMPAT={value!r}: must be 'strict' (Lightning's behaviour) or 'off'.")
    return Policy.lightning if value == "strict" else Policy.right

"""What a fit says before it begins, if something looks as if it was not meant."""

from __future__ import annotations

from typing import Any

from fulmen.data.combined import AnyPlan
from fulmen.engine.loops.control import RunControl
from fulmen.errors import PossibleUserWarning, warn


def warn_of_short_epoch(control: RunControl, plan: AnyPlan) -> None:
    """Say that the epoch is shorter than an accumulation window, or than the interval of step rows."""
    batches = plan.num_batches
    if batches < control.accumulate:
        warn(
            "W607",
            f"{plan.name}: an epoch has {batches} batches, fewer than accumulate_grad_batches="
            f"{control.accumulate}: each optimizer step is made of these {batches}, one step per epoch. "
            f"Set accumulate_grad_batches to at most {batches}, or take more data or smaller batches.",
            category=PossibleUserWarning,
        )
    if control.loggers and batches < control.log_every and not control.fast_dev_run:
        warn(
            "W203",
            f"An epoch has {batches} training batches, fewer than Trainer(log_every_n_steps={control.log_every}): step "
            f"values are seldom logged. Set log_every_n_steps to at most {batches}.",
            category=PossibleUserWarning,
        )


def warn_of_eval_mode(module: Any) -> None:
    """Say which submodules are in evaluation mode when training begins."""
    names = [name or "the module itself" for name, m in module.named_modules() if not m.training]
    if not names:
        return
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    warn(
        "W603",
        f"{len(names)} submodule(s) are in evaluation mode at the start of training ({shown}): their dropout and "
        "batch norm do not train. If that is not meant, call `model.train()` before `fit`.",
        category=PossibleUserWarning,
    )

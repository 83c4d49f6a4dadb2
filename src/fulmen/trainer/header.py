"""What a run prints when it begins, and what `print(trainer)` shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fulmen.engine.runtime.flags import OFF_IN_BAREBONES
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.engine.loops.loaders import Loaders
    from fulmen.engine.runtime.plan import Plan
    from fulmen.trainer.trainer import Trainer


def announce(plan: Plan) -> None:
    """Say what arguments mean that are easily taken for something else, when the Trainer is made."""
    flags = plan.flags
    if plan.fast_dev_run:
        rank_zero_info(
            f"Trainer(fast_dev_run={flags.fast_dev_run!r}): a trial with {plan.fast_dev_run} batch(es) of everything; "
            "no logs and no checkpoints are written."
        )
        return
    if flags.barebones:
        rank_zero_info(
            f"Trainer(barebones=True): switched off are {', '.join(OFF_IN_BAREBONES)}, and `self.log`; this is for "
            "measuring the Trainer itself."
        )
    for name, ones in _ONES.items():
        value = getattr(flags, name)
        if isinstance(value, int) and value == 1:
            rank_zero_info(f"Trainer({name}=1): {ones[0]}; 1.0 would be {ones[1]}.")


_ONES = {
    "limit_train_batches": ("one batch per epoch", "all"),
    "limit_val_batches": ("one batch per loader", "all"),
    "limit_test_batches": ("one batch per loader", "all"),
    "limit_predict_batches": ("one batch per loader", "all"),
    "val_check_interval": ("validation after every batch", "once per epoch"),
}
# One as an int is a number, one as a float is a share.


def describe_trainer(trainer: Trainer) -> str:
    """One line for `repr`."""
    return (
        f"Trainer(devices={trainer.num_devices} x {trainer.strategy.root_device}, "
        f"strategy={type(trainer.strategy).__name__}, precision={trainer.precision}, "
        f"max_epochs={trainer.max_epochs}, max_steps={trainer.max_steps}, "
        f"accumulate_grad_batches={trainer.accumulate_grad_batches})"
    )


def say_start(trainer: Trainer, loaders: Loaders) -> None:
    """Say that a fit begins, and on what."""
    if trainer.barebones:
        rank_zero_info("Trainer(barebones=True): the fit begins; no progress is shown.")
    elif trainer.plan.summary:
        rank_zero_info(run_header(trainer, loaders.train()))


def run_header(trainer: Trainer, plan: Any) -> str:
    """Lines for the start of a fit: hardware, batch, steps, seeds.

    Args:
        trainer: The Trainer.
        plan: The training loader's plan.
    """
    batch = getattr(plan.loader, "batch_size", None) if plan is not None else None
    if batch is None and plan is not None:
        batch = getattr(getattr(plan.loader, "batch_sampler", None), "batch_size", None)
    accumulate = trainer.accumulate_grad_batches
    size = batch if isinstance(batch, int) else 0
    seen = f"{size * accumulate * trainer.world_size} ({size} x {accumulate} x {trainer.world_size})"
    seed = os.environ.get("PL_GLOBAL_SEED")
    steps = plan.num_batches if plan is not None else float("inf")
    shown = "unknown" if steps == float("inf") else str(-(-int(steps) // accumulate))
    rows = [
        ("devices", f"{trainer.num_devices} x {trainer.strategy.root_device} ({trainer.accelerator.name()})"),
        ("strategy", type(trainer.strategy).__name__),
        ("precision", trainer.precision),
        ("global batch size", seen if size else "unknown"),
        ("steps per epoch", shown),
        ("seed", seed if seed is not None else "none (call seed_everything for repeatable runs)"),
        ("log folder", str(trainer.log_dir) if trainer.loggers else "none"),
    ]
    return "\n".join(f"  {name:<18} {value}" for name, value in rows)

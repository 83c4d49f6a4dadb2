"""Optimizers and schedulers of a fit: `configure_optimizers` is called, checked and put to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fulmen.core.module import LightningModule
from fulmen.core.optim_config import parse_optimizers, read_labels
from fulmen.engine.hooks import spec
from fulmen.engine.hooks.table import overrides
from fulmen.engine.loops.indexed import lead_optimizers
from fulmen.engine.loops.session import Session
from fulmen.errors import MisconfigurationException

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


def set_up_optimizers(trainer: Trainer, session: Session) -> None:
    """Call `configure_optimizers` and give what it returns to the strategy, the run's control and the step room.

    Raises:
        MisconfigurationException: For several optimizers that the policy leaves to manual optimization.
    """
    module, control, owner = session.module, trainer.control, type(session.module).__name__
    trainer.cursor.hook = spec.CONFIGURE_OPTIMIZERS
    try:
        value = module.configure_optimizers()
    except Exception as error:
        if control.max_epochs == -1:
            error.add_note(
                "`trainer.max_epochs` is -1, because it was not set. The number of updates, for a scheduler for "
                "example, is `self.trainer.estimated_stepping_batches`."
            )
        raise
    trainer.cursor.hook = None
    own_step = overrides(module, spec.LR_SCHEDULER_STEP.name, LightningModule)
    optimizers, configs = parse_optimizers(value, owner, own_scheduler_step=own_step)
    if module.automatic_optimization and len(optimizers) > 1 and not trainer.policy.several_optimizers:
        raise MisconfigurationException(
            f"{owner}.configure_optimizers returned {len(optimizers)} optimizers, which automatic optimization does "
            "not step under Lightning's policy; set `self.automatic_optimization = False` in `__init__` and step them "
            "in `training_step`, or give `Trainer(policy=...)` with `several_optimizers=True`."
        )
    labels = read_labels(value, len(optimizers), owner)
    control.optimizers = trainer.strategy.setup_optimizers(optimizers)
    control.schedulers = configs
    trainer.strategy.lr_scheduler_configs = configs
    session.optimization.take_optimizers()
    lead_optimizers(session.optimization, labels)

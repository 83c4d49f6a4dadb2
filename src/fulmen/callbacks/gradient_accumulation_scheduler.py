"""Change the number of accumulated batches at given epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fulmen.callbacks.callback import Callback
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException, warn

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class GradientAccumulationScheduler(Callback):
    """Sets `trainer.accumulate_grad_batches` at the start of given epochs.

    Example::

        GradientAccumulationScheduler({0: 8, 4: 4, 8: 1})  # 8 batches per step in epochs 0 to 3, then 4, then 1

    Args:
        scheduling: Epoch (from 0 on) → batches per optimizer step from that epoch on. Before the first one given it
            is 1.

    Attributes:
        scheduling: What was given, with an entry for epoch 0.
        epochs: The epochs of `scheduling`, sorted.

    Raises:
        ArgumentTypeError: No dict, an empty one, or keys or values that are no whole numbers.
        ArgumentValueError: A negative epoch, or fewer than 1 batch.
        MisconfigurationException: When training starts: manual optimization, or `accumulate_grad_batches` given to the
            Trainer too.
    """

    def __init__(self, scheduling: dict[int, int]) -> None:
        given: object = scheduling
        where = f"GradientAccumulationScheduler(scheduling={scheduling!r})"
        if not isinstance(given, Mapping) or not given:
            raise ArgumentTypeError(f"{where}: give a dict of epoch → batches per step, such as {{0: 4, 10: 1}}.")
        for epoch, count in scheduling.items():
            if _no_int(epoch) or _no_int(count):
                raise ArgumentTypeError(f"{where}: {epoch!r}: {count!r} is wrong; epochs and counts are whole numbers.")
            if epoch < 0:
                raise ArgumentValueError(f"{where}: epoch {epoch} is wrong; epochs begin at 0.")
            if count < 1:
                raise ArgumentValueError(f"{where}: {count} batches in epoch {epoch} is wrong; the least is 1.")
        self.scheduling = {0: 1, **scheduling}
        self.epochs = sorted(self.scheduling)
        self._last = 1

    def going_to_accumulate_grad_batches(self) -> bool:
        """Whether any epoch accumulates."""
        return any(count > 1 for count in self.scheduling.values())

    def get_accumulate_grad_batches(self, epoch: int) -> int:
        """Return the batches per step in this epoch."""
        return self.scheduling[max(start for start in self.epochs if start <= epoch)]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that the trainer accumulates by itself, and that nothing else says how much."""
        if not pl_module.automatic_optimization:
            raise MisconfigurationException(
                "GradientAccumulationScheduler works with automatic optimization only: in manual optimization your "
                "training_step decides when to step. Take the callback out."
            )
        if trainer.accumulate_grad_batches not in (1, self._last):  # what an earlier `fit` left is not the user's
            raise MisconfigurationException(
                f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}) and GradientAccumulationScheduler "
                f"both set the number of accumulated batches; take one of them out."
            )
        if self.going_to_accumulate_grad_batches() and _steps_itself(pl_module):
            warn(
                "W062",
                f"{type(pl_module).__name__} overrides `optimizer_step` or `optimizer_zero_grad`; with accumulation "
                f"they are called once per optimizer step, not once per batch.",
                key=type(pl_module).__qualname__,
            )

        # A run resumed inside an epoch does not pass the start of that epoch.
        self._set(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the number for this epoch."""
        self._set(trainer)

    def _set(self, trainer: Trainer) -> None:
        self._last = trainer.accumulate_grad_batches = self.get_accumulate_grad_batches(trainer.current_epoch)


def _no_int(value: object) -> bool:
    return isinstance(value, bool) or not isinstance(value, int)


def _steps_itself(module: LightningModule) -> bool:
    from fulmen.core.module import LightningModule as Base

    # Asked of the bound methods, so that one put on the instance counts too.
    return (
        getattr(module.optimizer_step, "__func__", None) is not Base.optimizer_step
        or getattr(module.optimizer_zero_grad, "__func__", None) is not Base.optimizer_zero_grad
    )

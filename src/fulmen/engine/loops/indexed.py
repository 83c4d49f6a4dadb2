"""Steps of Lightning 1.x: `training_step(batch, batch_idx, optimizer_idx)`, called once per optimizer and batch.

With a returned loss it is automatic: only the optimizer's parameters need gradients, backward, step. A step that calls
`manual_backward` and `step` itself is left to do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fulmen.core.module import LightningModule
from fulmen.core.optim_config import OptimizerLabels
from fulmen.engine.hooks.spec import TRAINING_STEP
from fulmen.engine.loops.several import SeveralOptimizers
from fulmen.engine.loops.step_output import check_manual, loss_of
from fulmen.engine.loops.step_room import StepRoom
from fulmen.engine.loops.steps import AutomaticStep, SkipStep
from fulmen.errors import MisconfigurationException, warn


def lead_optimizers(room: StepRoom, labels: OptimizerLabels) -> None:
    """Give several optimizers, or code of Lightning 1.x that expects their number, what leads them.

    Args:
        room: The step room, with its optimizers taken; in manual optimization nothing is done.
        labels: Their names and frequencies.
    """
    if not isinstance(room, AutomaticStep):
        return
    if room.indexed:
        IndexedOptimizers(room, labels.names, labels.frequencies)
    elif len(labels.names) > 1:
        SeveralOptimizers(room, labels.names)
    if labels.frequencies and not room.indexed:
        warn(
            "W612",
            f"{type(room.module).__name__}.configure_optimizers gives optimizers a 'frequency', which only counts for "
            "a `training_step(batch, batch_idx, optimizer_idx)`: all optimizers step in each batch.",
            key=type(room.module).__name__,
        )


class IndexedOptimizers(SeveralOptimizers):
    """Leads a step that takes `optimizer_idx`.

    Args:
        room: The step room, with its optimizers taken.
        names: Names of the optimizers.
        frequencies: For how many batches in turn each is used; empty: all in each batch.
    """

    def __init__(self, room: AutomaticStep, names: Sequence[str], frequencies: Sequence[int] = ()) -> None:
        super().__init__(room, names)
        self.frequencies = list(frequencies)
        self.index: int | None = None
        function = getattr(room.module, TRAINING_STEP.name)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        by_hand = code is not None and LightningModule.manual_backward.__name__ in code.co_names
        room.by_hand = None
        room.begin_by_hand = self.begin_by_hand  # type: ignore[method-assign]  # seen when the step first does it
        if by_hand:
            self.begin_by_hand()
            room.by_hand = True

    def begin_by_hand(self) -> None:
        """The step does backward itself: it is left to step and clear gradients itself, too.

        Raises:
            MisconfigurationException: If the Trainer was told to accumulate or clip, which is then the step's work.
        """
        room, control = self.room, self.room.control
        owner = type(room.module).__name__
        for name, value, off in (
            ("accumulate_grad_batches", control.accumulate, 1),
            ("gradient_clip_val", control.clip_value, None),
        ):
            if value not in (off, 0):
                raise MisconfigurationException(
                    f"{owner}.training_step calls `manual_backward`, so that Trainer({name}={value}) does nothing; "
                    f"leave {name} out and do it in `training_step`, or return the losses and leave backward and step "
                    "to the Trainer."
                )
        room.by_hand, room.automatic = True, False
        warn(
            "W611",
            f"{owner}.training_step takes `optimizer_idx` and calls `manual_backward`: it is taken as manual "
            "optimization, once per optimizer and batch. Clear gradients and step in it; set "
            f"`self.automatic_optimization = False` in `{owner}.__init__`.",
            key=owner,
        )

    def turn(self) -> list[int]:
        """The optimizers that this batch is for."""
        if not self.frequencies:
            return list(range(len(self.names)))
        place = self.room.batch_idx % sum(self.frequencies)
        for index, frequency in enumerate(self.frequencies):
            place -= frequency
            if place < 0:
                return [index]
        raise AssertionError("frequencies are at least 1")

    def compute(self) -> None:
        """A batch inside of a window: gradients of each optimizer whose turn it is."""
        room = self.room
        room.called = True
        self.begin_batch()
        if room.by_hand:
            self.run_by_hand(self.turn())
            return
        for index in self.turn():
            self.evaluate(index)
        room.contributed = max(self.contributed)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        """The end of a window: each optimizer that has gradients in it, one after the other."""
        room = self.room
        room.called = True
        self.begin_batch()
        turn = self.turn()
        if room.by_hand:
            self.run_by_hand(turn)
            return
        self.update([index for index in range(len(self.names)) if index in turn or self.contributed[index]])

    def run_by_hand(self, indices: Sequence[int]) -> None:
        """Let the step do it all."""
        room = self.room
        for index in indices:
            room.output = None
            output = self.call_step(index)
            check_manual(output, room.module)
            room.output = output if isinstance(output, dict) else None
            room.loss = output if isinstance(output, Tensor) else room.loss

    def call_step(self, index: int) -> Any:
        """`training_step` for one optimizer."""
        return self.room.call_step(optimizer_idx=index)

    def evaluate(self, index: int) -> Tensor | None:
        """The closure of one optimizer: step, zero_grad, backward, with only its parameters needing gradients."""
        room = self.room
        optimizer = room.lightning_optimizers[index]
        self.calls[index] += 1
        if index not in self.turn():
            room.contributed = self.contributed[index]
            return None  # its gradients are those of earlier batches of the window
        again = self.calls[index] > 1
        with room.module.toggled_optimizer(optimizer):
            output = self.call_step(index)
            if room.by_hand and not again:
                raise SkipStep  # the first time that it is seen to step itself
            room.output = output if isinstance(output, dict) else None
            loss = self.weigh(loss_of(output, room.module, needs_grad=room.own_backward is None), output)
            if self.contributed[index] <= again:
                self.clear(optimizer)
            elif room.keeps and room.ends_window:
                room.keep_window(optimizer.optimizer, again=again)
            room.loss = loss
            if loss is not None:
                self.contributed[index] += not again
                room.gave_loss = True
                # A scale that changed between two optimizers would leave two scales in one window.
                room.precision.settles = not any(self.contributed[:index])
                room.backward(room.precision.scale(loss))
            elif room.gave_loss is None:
                room.gave_loss = False
        room.contributed = self.contributed[index]
        return loss

"""Several optimizers in automatic optimization, with an ordinary `training_step(batch, batch_idx)`.

One loss: one backward, then each optimizer is clipped and stepped, in the order of `configure_optimizers`. A dict of
losses, `{"loss": {"a": la, "b": lb}}`: one backward for each, with only that optimizer's parameters needing gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.hooks.spec import OPTIMIZER_STEP, TRAINING_STEP
from fulmen.engine.hooks.table import takes_optimizer_idx
from fulmen.engine.loops.signatures import takes_keywords
from fulmen.engine.loops.step_output import loss_of
from fulmen.engine.loops.step_room import clear_gradients
from fulmen.engine.loops.steps import AutomaticStep, SkipStep
from fulmen.errors import MisconfigurationException, StepOutputError, suggest

Losses = dict[int, Tensor | None]


class SeveralOptimizers:
    """Leads the optimizers of an `AutomaticStep`: takes the place of its closure and of `module.optimizer_step`.

    Args:
        room: The step room, with its optimizers taken.
        names: Their names, by which a dict of losses refers to them.
    """

    def __init__(self, room: AutomaticStep, names: Sequence[str]) -> None:
        self.room = room
        self.names = list(names)
        self.contributed = [0] * len(names)  # batches of the window that gave each optimizer gradients
        self.calls = [0] * len(names)  # runs of each optimizer's closure for this batch
        self.losses: Losses = {}
        self.moved: list[bool] = [True] * len(names)  # whose schedulers move after this batch
        self.closures: list[Callable[[], Tensor | None]] = [partial(self.evaluate, i) for i in range(len(names))]
        room.stepper = self
        room.closure = self.compute

    # --- a batch -----------------------------------------------------------------------------------------------

    def compute(self) -> None:
        """Training step, zero_grad at the first batch of a window, backward of every loss."""
        room = self.room
        room.called = True
        self.begin_batch()
        losses = self.run_step()
        if room.first:
            for optimizer in room.lightning_optimizers:
                self.clear(optimizer)
        elif room.keeps and room.ends_window:
            for optimizer in room.lightning_optimizers:
                room.keep_window(optimizer.optimizer, again=False)
        self.losses = losses
        self.backward(losses)
        for index, loss in losses.items():
            self.contributed[index] += loss is not None
        room.contributed = max(self.contributed)

    def begin_batch(self) -> None:
        """Forget the batch before, at a window's first one also what was counted of the window before."""
        self.calls = [0] * len(self.names)
        self.moved = [False] * len(self.names)
        if self.room.first:
            self.contributed = [0] * len(self.names)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        """The end of a window: all losses and gradients, then each optimizer's update through the module's hook."""
        self.compute()
        self.update(range(len(self.names)))

    def update(self, indices: Sequence[int]) -> None:
        """Step some of the optimizers, each through the module's hook."""
        room = self.room
        for index in indices:
            optimizer = room.lightning_optimizers[index]
            room.contributed = self.contributed[index]
            before = room.progress.optimizer_steps
            self.moved[index] = not room.policy.skip_scheduler_on_overflow
            try:
                self.call_hook(index, optimizer)
            except SkipStep:
                continue
            if not self.calls[index]:
                raise room.no_closure()
            self.moved[index] = self.moved[index] or room.progress.optimizer_steps > before
        room.contributed = max(self.contributed)

    def moves(self, scheduler: Any) -> bool:
        """Whether a scheduler per step moves after this batch: its optimizer stepped."""
        for optimizer, moved in zip(self.room.lightning_optimizers, self.moved, strict=True):
            if optimizer.optimizer is getattr(scheduler, "optimizer", None):
                return moved
        return True

    def call_hook(self, index: int, optimizer: LightningOptimizer) -> None:
        """`optimizer_step` of the module, which may have the arguments of Lightning 1.x."""
        room = self.room
        module, closure = room.module, self.closures[index]
        hook: Callable[..., Any] = getattr(module, OPTIMIZER_STEP.name)
        args = (room.progress.epoch, room.batch_idx, optimizer)
        if takes_optimizer_idx(hook):
            hook(*args, optimizer_idx=index, optimizer_closure=closure)
        else:
            hook(*args, closure)

    def evaluate(self, index: int) -> Tensor | None:
        """The closure of one optimizer: gradients are there; only a further run makes them anew, for it alone."""
        room = self.room
        self.calls[index] += 1
        if self.calls[index] == 1:
            return self.losses.get(index)
        optimizer = room.lightning_optimizers[index]
        with room.module.toggled_optimizer(optimizer):
            loss = self.run_step().get(index)
            if self.contributed[index] > 1 and room.policy.closure_keeps_window:
                room.keep_window(optimizer.optimizer, again=True)
            elif self.contributed[index] <= 1:
                clear_gradients(optimizer.optimizer)
            if loss is not None:
                room.backward(room.precision.scale(loss))
        return loss

    # --- losses ------------------------------------------------------------------------------------------------

    def run_step(self) -> Losses:
        """Call `training_step`; the loss of each optimizer, divided by the window."""
        room = self.room
        output = room.call_step()
        cursor = room.cursor
        outer, cursor.hook = cursor.hook, TRAINING_STEP  # whose fault it is, if the output is wrong
        named = output.get("loss") if isinstance(output, Mapping) else None
        room.output = output if isinstance(output, Mapping) else None
        if not isinstance(named, Mapping):
            loss = self.weigh(loss_of(output, room.module, needs_grad=room.own_backward is None), output)
            losses: Losses = dict.fromkeys(range(len(self.names)), loss)
            room.loss = loss
        else:
            losses = self.by_name(named, output)
            room.losses = {self.names[index]: loss for index, loss in losses.items()}
        cursor.hook = outer
        if any(loss is not None for loss in losses.values()):
            room.gave_loss = True
        elif room.gave_loss is None:
            room.gave_loss = False
        return losses

    def weigh(self, loss: Tensor | None, output: Any) -> Tensor | None:
        """What of a loss counts in its window."""
        room = self.room
        if room.judge is not None:
            loss = room.judge(loss, output)
        return loss / room.divisor if loss is not None and room.divisor > 1 else loss

    def by_name(self, named: Mapping[Any, Any], output: Any) -> Losses:
        """Losses of a dict by index of the optimizer.

        Raises:
            StepOutputError: For a name that no optimizer has.
        """
        room = self.room
        losses: Losses = dict.fromkeys(range(len(self.names)))
        spoilt = False
        for key, value in named.items():
            if str(key) not in self.names:
                raise StepOutputError(
                    f"{type(room.module).__name__}.training_step returned a loss for {key!r}, but no optimizer has "
                    f"that name.{suggest(str(key), self.names)} Names: {self.names}; they are those given in "
                    "`configure_optimizers` (`{'optimizer': ..., 'name': ...}`), or '0', '1', … in its order."
                )
            loss = loss_of({"loss": value}, room.module, needs_grad=room.own_backward is None)
            weighed = losses[self.names.index(str(key))] = self.weigh(loss, output)
            spoilt = spoilt or (loss is not None and weighed is None)
        # A batch that is left out for one loss is left out for all.
        return dict.fromkeys(losses) if spoilt else losses

    def backward(self, losses: Losses) -> None:
        """One backward if there is one loss, else one for each optimizer that has one, with its parameters only."""
        room = self.room
        given = [(index, loss) for index, loss in losses.items() if loss is not None]
        if not given:
            return
        if room.losses is None:
            room.backward(room.precision.scale(given[0][1]))
            return
        for index, loss in given:
            # The losses may share a graph, which the last backward frees.
            further = {} if index == given[-1][0] else {"retain_graph": True}
            if further and room.own_backward is not None and not takes_keywords(room.own_backward):
                name = type(room.module).__name__
                raise MisconfigurationException(
                    f"{name}.backward takes no further arguments, but is called with `retain_graph=True` for all of "
                    f"several losses but the last. Write it as `def backward(self, loss, *args, **kwargs)` in {name}, "
                    "and hand them on: `loss.backward(*args, **kwargs)`."
                )
            with room.module.toggled_optimizer(room.lightning_optimizers[index]):
                room.backward(room.precision.scale(loss), **further)

    def clear(self, optimizer: LightningOptimizer) -> None:
        """`optimizer_zero_grad` with the hook before it."""
        if self.room.observed:
            self.room.zero_grad(optimizer)
        else:
            clear_gradients(optimizer.optimizer)

    # --- a window under way ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What each optimizer has in the open window, and which stepped in the last batch."""
        return {"contributed": list(self.contributed), "moved": list(self.moved)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.contributed = [int(count) for count in state_dict["contributed"]]
        self.moved = list(state_dict["moved"])

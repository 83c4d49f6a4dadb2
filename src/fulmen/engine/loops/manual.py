"""Manual optimization: `training_step` does backward and step itself."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from torch import Tensor

from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.hooks.spec import TRAINING_STEP
from fulmen.engine.loops.step_output import check_manual, manual_outputs, warn_of_old_keys
from fulmen.engine.loops.step_room import StepRoom
from fulmen.strategies.state import plain_key


class ManualStep(StepRoom):
    """`training_step` does backward and step itself."""

    automatic = False
    by_hand = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.output: Any = None
        self.first = True
        self.done_with: set[int] = set()  # optimizers that stepped since the last backward

    def take_optimizers(self) -> None:
        """Wrap the optimizers; steps of raw ones count too."""
        super().take_optimizers()
        self.release()
        for optimizer in self.control.optimizers:
            register = getattr(optimizer, "register_step_post_hook", None)
            if register is not None and self.policy.count_batches:
                self._handles.append(register(self._raw_stepped))

    @property
    def pending(self) -> bool:
        """Whether gradients wait for an optimizer that has not stepped since the last backward."""
        return any(id(optimizer) not in self.done_with for optimizer in self.control.optimizers)

    def state_dict(self) -> dict[str, Any]:
        """Gradients that wait for a step; those that an optimizer has used already are left out."""
        state = super().state_dict()
        used = {
            id(parameter)
            for optimizer in self.control.optimizers
            if id(optimizer) in self.done_with
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        gradients = state.pop("gradients", {})
        names = {plain_key(name) for name, parameter in self.module.named_parameters() if id(parameter) in used}
        kept = {name: gradient for name, gradient in gradients.items() if name not in names}
        return {**state, "gradients": kept} if kept else state

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """As in `StepRoom`; from here on gradients wait again."""
        self.done_with.clear()
        super().manual_backward(loss, *args, **kwargs)

    def after_step(self, optimizer: LightningOptimizer) -> None:
        """As in `StepRoom`."""
        self.done_with.add(id(optimizer.optimizer))
        super().after_step(optimizer)

    def _raw_stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.stepped = True
        self.done_with.add(id(optimizer))

    def reset(self) -> None:
        """Drop the output of the last batch."""
        self.output = None

    def run(self, batch: Any, batch_idx: int, is_last: bool) -> None:
        """Let the module train on one batch; arguments as in `AutomaticStep.run`."""
        self.stepped = False
        cursor = self.cursor
        outer, cursor.hook = cursor.hook, TRAINING_STEP
        args = (batch, batch_idx) if self.with_index else (batch,)
        if self.indexed:
            self.run_indexed(args)
        elif self.context is None:
            self.output = self.step_function(*args)
        else:
            with self.context():
                self.output = self.step_function(*args)
        cursor.hook = outer
        check_manual(self.output, self.module)
        if self.first:
            self.first = False
            warn_of_old_keys(self.output, f"{type(self.module).__name__}.{TRAINING_STEP.name}")
        if self.stepped and self.policy.count_batches:
            self.progress.global_step += 1

    def run_indexed(self, args: tuple[Any, ...]) -> None:
        """A step of Lightning 1.x that takes `optimizer_idx`: once per optimizer."""
        for index in range(len(self.lightning_optimizers)):
            with nullcontext() if self.context is None else self.context():
                self.output = self.step_function(*args, optimizer_idx=index)

    @property
    def outputs(self) -> dict[str, Any]:
        """What `on_train_batch_end` gets."""
        return manual_outputs(self.output)

"""Manual optimization: `training_step` does backward and step itself."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from fulmen.engine.hooks.spec import TRAINING_STEP
from fulmen.engine.loops.step_output import check_manual, manual_outputs, warn_of_old_keys
from fulmen.engine.loops.step_room import StepRoom


class ManualStep(StepRoom):
    """`training_step` does backward and step itself."""

    automatic = False
    by_hand = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.output: Any = None
        self.first = True

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
        """Whether the last batch left gradients and no optimizer stepped."""
        return not self.stepped

    def _raw_stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.stepped = True

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

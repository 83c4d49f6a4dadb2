"""One training batch in automatic optimization: training step, backward, optimizer step, in Lightning's order of hooks.

Reads like the loop you would write by hand: `AutomaticStep.run_closure` is what calls your `training_step`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from fulmen.core.module import LightningModule
from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.hooks.spec import (
    CONFIGURE_GRADIENT_CLIPPING,
    OPTIMIZER_STEP,
    OPTIMIZER_ZERO_GRAD,
    TRAINING_STEP,
)
from fulmen.engine.hooks.table import overrides
from fulmen.engine.loops.own_optimizers import guard_own_optimizers
from fulmen.engine.loops.step_output import HeldGraphs, loss_of
from fulmen.engine.loops.step_room import StepRoom, clear_gradients, runs_closure_again, takes_closure
from fulmen.engine.precision.closure import FunctionClosure
from fulmen.errors import MisconfigurationException, StepOutputError


class AutomaticStep(StepRoom):
    """The Trainer does backward and step.

    Made to be subclassed: `run` is one batch, `run_closure` its gradients, `mend` what turns the sum of a window's
    gradients into the right mean.

    Attributes:
        judge: What a subclass makes of each loss before it is divided by the window: `judge(loss, output)` returns the
            loss to use, or `None` to leave the batch out. `None`: losses are taken as they are.
        stepper: What updates the weights at the end of a window, by its method `optimizer_step`: the module, or what
            leads several optimizers.
        keeps: Whether an optimizer runs its closure several times for one update, so that gradients of a window's
            earlier batches are kept for these further runs.
    """

    judge: Callable[[Tensor | None, Any], Tensor | None] | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.batch: Any = None
        self.batch_idx = 0
        self.first = True
        self.divisor = 1
        self.contributed = 0
        self.gave_loss: bool | None = None  # in this epoch; `None` before its first batch
        self.called = False
        self.loss: Tensor | None = None
        self.output: Any = None
        self.losses: Mapping[str, Tensor | None] | None = None
        self.stepper: Any = self.module
        self.keeps = False
        self.blank = False  # the window's last batch gives no loss
        self.kept: dict[Tensor, Tensor] = {}
        self.held = HeldGraphs(f"{type(self.module).__name__}.{TRAINING_STEP.name}")

    def take_optimizers(self) -> None:
        """As in `StepRoom`; optimizers that the module keeps itself must not step a batch a second time."""
        super().take_optimizers()
        if getattr(self.precision, "scaler", None) is None:  # a scaler runs the closure itself
            check_closures(self.module, self.control.optimizers)
        self.release()
        self.keeps = self.policy.closure_keeps_window and any(map(runs_closure_again, self.control.optimizers))
        self._handles = guard_own_optimizers(self.module, self.control.optimizers, self.cursor)

    def bind(self) -> None:
        """As in `StepRoom`; also whether zero_grad and clipping are the module's own."""
        super().bind()
        module = self.module
        self.own_zero_grad = overrides(module, OPTIMIZER_ZERO_GRAD.name, LightningModule)
        self.own_clipping = overrides(module, CONFIGURE_GRADIENT_CLIPPING.name, LightningModule)
        hooks = self.hooks
        seen: list[Any] = [hooks.on_before_zero_grad, hooks.on_before_backward, hooks.on_after_backward]
        seen += [hooks.on_before_optimizer_step, self.own_backward, self.context]
        own = self.own_zero_grad or self.own_clipping or not self.plain_backward
        self.observed = own or any(item is not None for item in seen)

    def reset(self) -> None:
        """Drop batch, loss and output of the last batch."""
        if self.output is not None:
            self.held.watch(self.output)
        self.batch = self.output = self.loss = self.losses = None
        if self.keeps:
            self.kept.clear()
            self.blank = False

    def run(self, batch: Any, batch_idx: int, is_last: bool) -> None:
        """Train on one batch.

        Args:
            batch: On the device.
            batch_idx: Its index in the epoch.
            is_last: Whether it is the epoch's last.
        """
        if self.held.watched:
            self.held.report()
        progress, window = self.progress, self.control.accumulate
        self.batch = batch
        self.batch_idx = batch_idx
        self.first = progress.in_window == 0
        self.called = self.stepped = False
        if window > 1:
            self.ends_window = is_last or progress.in_window + 1 >= window
            if self.policy.accumulate_actual_window:
                window = int(min(window, self.length - (batch_idx - progress.in_window)))
        else:
            self.ends_window = True
        if self.first:
            self.contributed = 0
        # A window that changes when gradients are there keeps its divisor; `mend` puts the sum right.
        if not self.contributed or not self.policy.accumulate_actual_window:
            self.divisor = window
        progress.in_window += 1
        if not self.ends_window:
            self.accumulate()
            return
        cursor = self.cursor
        outer, cursor.hook = cursor.hook, OPTIMIZER_STEP
        try:
            self.stepper.optimizer_step(progress.epoch, batch_idx, self.lightning_optimizers[0], self.closure)
        except SkipStep:
            self.finish = None
        cursor.hook = outer
        progress.in_window = 0
        if not self.called:
            raise self.no_closure()
        if self.stepped and self.policy.count_batches:
            progress.global_step += 1

    def no_closure(self) -> MisconfigurationException:
        """The error of an `optimizer_step` that leaves the closure out, by an override or by the optimizer itself."""
        return MisconfigurationException(
            f"{type(self.module).__name__}.optimizer_step did not run the closure; call "
            "`optimizer.step(closure=optimizer_closure)`, or `optimizer_closure()` before `optimizer.step()`."
        )

    def moves(self, scheduler: Any) -> bool:
        """As in `StepRoom`; with several optimizers, whether the scheduler's own stepped."""
        return self.stepper is self.module or bool(self.stepper.moves(scheduler))

    @property
    def pending(self) -> bool:
        """Whether the window has batches to come."""
        return self.progress.in_window > 0

    def state_dict(self) -> dict[str, Any]:
        """As in `StepRoom`, with the number of batches that gave a loss and by what each was divided."""
        state = super().state_dict()
        if self.stepper is not self.module:
            state["stepper"] = self.stepper.state_dict()
        return {**state, "contributed": self.contributed, "divisor": self.divisor} if self.pending else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the window back."""
        super().load_state_dict(state_dict)
        self.contributed = int(state_dict.get("contributed", 0))
        self.divisor = int(state_dict.get("divisor", 1))
        if "stepper" in state_dict and self.stepper is not self.module:
            self.stepper.load_state_dict(state_dict["stepper"])

    def split(self, optimizer: LightningOptimizer, closure: Callable[[], Any] | None) -> FunctionClosure:
        """As in `StepRoom`; a `None` loss skips the step, unless other batches of the window left gradients.

        Raises:
            MisconfigurationException: If `training_step` itself steps.
        """
        if self.cursor.hook is TRAINING_STEP and not self.by_hand:
            name = type(self.module).__name__
            raise MisconfigurationException(
                f"{name}.training_step called `optimizer.step()` while `automatic_optimization` is True, so that each "
                "batch would step twice. Leave that line out and return the loss, or set `self.automatic_optimization "
                f"= False` in `{name}.__init__`."
            )
        split = super().split(optimizer, closure)
        if closure is not None:

            def compute() -> Any:
                loss = closure()
                split.manual = self.contributed > 0 and self.policy.none_loss_skips_step
                return loss

            split.compute, split.manual = compute, False
        return split

    def accumulate(self) -> None:
        """A batch inside of a window: gradients only, without synchronisation of ranks."""
        no_sync = self.strategy.no_sync(self.module)
        if no_sync is None:
            self.closure()
        else:
            with no_sync:
                self.closure()

    def call_step(self, **further: Any) -> Any:
        """Run `training_step` on the batch at hand; for what leads several optimizers."""
        cursor = self.cursor
        outer, cursor.hook = cursor.hook, TRAINING_STEP
        args = (self.batch, self.batch_idx) if self.with_index else (self.batch,)
        with nullcontext() if self.context is None else self.context():
            output = self.step_function(*args, **further)
        cursor.hook = outer
        return output

    def run_closure(self) -> Tensor | None:
        """Training step, zero_grad at the first batch of a window, backward; before an update also what precedes it."""
        cursor = self.cursor
        again, self.called = self.called, True  # L-BFGS runs it several times for one batch
        outer, cursor.hook = cursor.hook, TRAINING_STEP
        if self.context is not None:
            args = (self.batch, self.batch_idx) if self.with_index else (self.batch,)
            with self.context():
                output = self.step_function(*args)
        elif self.with_index:
            output = self.step_function(self.batch, self.batch_idx)
        else:
            output = self.step_function(self.batch)
        cursor.hook = outer
        if type(output) is Tensor and output.requires_grad and not output.dim():
            loss: Tensor | None = output
        else:
            cursor.hook = TRAINING_STEP  # whose fault it is
            loss = loss_of(output, self.module, needs_grad=self.own_backward is None)
            cursor.hook = outer
            self.output = output if isinstance(output, Mapping) else None
        if self.judge is not None:
            loss = self.judge(loss, output)
        if self.divisor > 1 and loss is not None:
            loss = loss / self.divisor
        self.loss = loss
        if self.first and self.observed:
            self.zero_grad(self.lightning_optimizers[0])
        elif self.first:
            clear_gradients(self.lightning_optimizers[0].optimizer)
        elif self.keeps and self.ends_window:
            self.keep_window(self.lightning_optimizers[0].optimizer, again=again)
        if loss is not None:
            self.contributed += not again
            self.gave_loss = True
            if self.observed:
                self.backward(loss if self.context is None else self.precision.scale(loss))
            else:
                loss.backward()
        elif self.gave_loss is None:
            self.gave_loss = False
        if self.finish is not None and (
            self.observed or self.contributed != self.divisor or self.control.clip_value is not None
        ):
            self.before_step(self.finish)
        return loss if loss is not None or not self.keeps else self.no_loss(again=again)

    def keep_window(self, optimizer: Any, *, again: bool) -> None:
        """Keep an optimizer's gradients before a window's last backward; when the closure runs `again`, put them back.

        So each run of the closure gives the gradients of the window's earlier batches once, and those of the last one
        at the weights of now.
        """
        params = [param for group in optimizer.param_groups for param in group["params"]]
        if not again:
            self.kept.update((param, param.grad.clone()) for param in params if param.grad is not None)
            return
        for param in params:
            kept = self.kept.get(param)
            param.grad = None if kept is None else kept.clone()

    def no_loss(self, *, again: bool) -> Tensor:
        """What an optimizer that needs a number gets for a batch without loss at the end of a window that has others.

        Raises:
            StepOutputError: If the batch had a loss when the closure ran before.
        """
        self.blank = self.blank or not again
        if not self.blank:
            raise StepOutputError(
                f"{type(self.module).__name__}.training_step returned no loss when "
                f"{type(self.lightning_optimizers[0].optimizer).__name__} ran it again on the same batch; it must "
                "return one each time, or never for a batch."
            )
        return torch.zeros((), device=self.module.device)

    def zero_grad(self, optimizer: LightningOptimizer) -> None:
        """Clear gradients, with the hook before it."""
        hook = self.hooks.on_before_zero_grad
        if hook is not None:
            hook(optimizer.optimizer)
        if self.own_zero_grad:
            cursor = self.cursor
            outer, cursor.hook = cursor.hook, OPTIMIZER_ZERO_GRAD
            self.module.optimizer_zero_grad(self.progress.epoch, self.batch_idx, optimizer.optimizer)
            cursor.hook = outer
        else:
            clear_gradients(optimizer.optimizer)

    def before_step(self, optimizer: LightningOptimizer) -> None:
        """Fire `on_before_optimizer_step`, mend the scale of a window that came out shorter, clip."""
        if self.by_hand:
            super().before_step(optimizer)
            return
        if self.contributed != self.divisor:
            self.mend(optimizer)
        hook = self.hooks.on_before_optimizer_step
        if hook is not None:
            hook(optimizer.optimizer)
        control = self.control
        if self.own_clipping or control.clip_value:
            cursor = self.cursor
            outer, cursor.hook = cursor.hook, CONFIGURE_GRADIENT_CLIPPING
            self.module.configure_gradient_clipping(
                optimizer.optimizer,
                gradient_clip_val=control.clip_value,
                gradient_clip_algorithm=control.clip_algorithm,
            )
            cursor.hook = outer

    def mend(self, optimizer: LightningOptimizer) -> None:
        """Turn the sum into the mean over the batches of the window that gave a loss.

        Raises:
            SkipStep: If none did.
        """
        if self.contributed == 0:
            if self.policy.none_loss_skips_step:
                raise SkipStep
            return
        if self.policy.accumulate_actual_window:
            factor = self.divisor / self.contributed
            for group in optimizer.optimizer.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        param.grad.mul_(factor)

    @property
    def outputs(self) -> dict[str, Any]:
        """The detached loss and the step's other keys; `{}` for a skipped step."""
        outputs: dict[str, Any]
        if self.losses is not None:
            outputs = {"loss": {name: loss.detach() for name, loss in self.losses.items() if loss is not None}}
        elif self.loss is None:
            return {}
        else:
            outputs = {"loss": self.loss.detach()}
        if self.output is not None:
            outputs.update((key, value) for key, value in self.output.items() if key != "loss")
        return outputs


def check_closures(module: Any, optimizers: list[Any]) -> None:
    """Check that optimizers take the closure that automatic optimization gives them.

    Raises:
        MisconfigurationException: If one does not, and the module does not step it in its own way.
    """
    if overrides(module, OPTIMIZER_STEP.name, LightningModule):
        return
    for optimizer in optimizers:
        if not takes_closure(optimizer):
            step = type(optimizer).step
            raise MisconfigurationException(
                f"{type(optimizer).__name__}.step{inspect.signature(step)} takes no `closure`, by which automatic "
                "optimization runs `training_step` and backward. Add `closure=None` to it and call it first, or "
                f"override `optimizer_step` in {type(module).__name__}: `optimizer_closure()`, then `optimizer.step()`."
            )


class SkipStep(Exception):
    """No batch of the window gave a loss: leave the optimizer's step without an update."""

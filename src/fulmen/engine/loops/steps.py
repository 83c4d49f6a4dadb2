"""One training batch: training step, backward, optimizer step, in the order of Lightning's hooks.

Reads like the loop you would write by hand: `AutomaticStep.closure` is the line that calls your `training_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from fulmen.core.module import LightningModule
from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import (
    BACKWARD,
    CONFIGURE_GRADIENT_CLIPPING,
    OPTIMIZER_STEP,
    OPTIMIZER_ZERO_GRAD,
    TRAINING_STEP,
)
from fulmen.engine.hooks.table import HookTable, overrides
from fulmen.engine.loops.control import Progress, RunControl
from fulmen.engine.loops.own_optimizers import guard_own_optimizers
from fulmen.engine.loops.signatures import step_takes, takes_iterator
from fulmen.engine.loops.step_output import HeldGraphs, check_manual, loss_of, manual_outputs
from fulmen.engine.precision.closure import FunctionClosure
from fulmen.errors import MisconfigurationException, StepOutputError

if TYPE_CHECKING:
    from fulmen.engine.runtime.policy import Policy
    from fulmen.engine.runtime.runtime import Runtime


class StepRoom:
    """What automatic and manual optimization share: hooks before a step, clipping, counting, toggling.

    Args:
        module: The user's module.
        runtime: Strategy and precision.
        cursor: Where the run is.
        progress: Counters.
        control: What may change.
        policy: Differences from Lightning.
    """

    def __init__(
        self, module: Any, runtime: Runtime, cursor: Cursor, progress: Progress, control: RunControl, policy: Policy
    ) -> None:
        self.module = module
        self.strategy = runtime.strategy
        self.precision = runtime.precision
        self.cursor = cursor
        self.progress = progress
        self.control = control
        self.policy = policy
        self.plain = runtime.plain_steps
        self.plain_backward = runtime.plain_backward
        self.context: Callable[[], AbstractContextManager[Any]] | None = (
            None if runtime.precision.plain else runtime.precision.context
        )
        self.lightning_optimizers: list[LightningOptimizer] = []
        self._handles: list[Any] = []
        self.closure: Callable[[], Any] = self.run_closure
        self.finish: LightningOptimizer | None = None
        self.stepped = False
        self.ends_window = True
        self.length: int | float = float("inf")
        self.hooks: HookTable

    automatic = True
    gave_loss: bool | None = True

    def connect(self, hooks: HookTable) -> None:
        """Take the hook table; what is called per batch is looked up at each build of it."""
        self.hooks = hooks
        hooks.listen(self.bind)
        self.bind()

    def take_optimizers(self) -> None:
        """Wrap the run's optimizers."""
        self.lightning_optimizers = [LightningOptimizer(o, self) for o in self.control.optimizers]

    def bind(self) -> None:
        """Look up the step (patched ones too) and which arguments it takes."""
        self.step_function = self.strategy.bind(self.module, TRAINING_STEP.name)
        method = getattr(self.module, TRAINING_STEP.name)
        self.with_index = step_takes(method, "batch_idx", 2)
        self.takes_iterator = takes_iterator(method)
        self.own_backward = self.hooks.own(BACKWARD.name)

    def run_closure(self) -> Any:
        """The closure of automatic optimization; manual optimization has none."""
        raise MisconfigurationException("There is no automatic closure in manual optimization.")

    def reset(self) -> None:
        """Drop what belongs to the last batch."""

    def run(self, batch: Any, batch_idx: int, is_last: bool) -> None:
        """Train on one batch."""
        raise MisconfigurationException(f"{type(self).__name__} cannot train; it is the base of the two that do.")

    @property
    def outputs(self) -> dict[str, Any]:
        """What `on_train_batch_end` gets."""
        return {}

    @property
    def pending(self) -> bool:
        """Whether gradients wait for further batches before an optimizer steps."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """The gradients of an accumulation window that is under way; empty between windows."""
        if not self.pending:
            return {}
        parameters = self.module.named_parameters()
        return {"gradients": {name: p.grad.detach() for name, p in parameters if p.grad is not None}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give gradients back to the parameters that are still there."""
        self.ends_window = self.progress.in_window == 0
        gradients = state_dict.get("gradients") or {}
        for name, parameter in self.module.named_parameters():
            if name in gradients:
                parameter.grad = gradients[name].to(parameter.device)

    def release(self) -> None:
        """Take the hooks off the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # --- optimizer steps ---------------------------------------------------------------------------------------

    def step(self, optimizer: LightningOptimizer, closure: Callable[[], Any] | None, kwargs: dict[str, Any]) -> Any:
        """Step through precision, with `on_before_optimizer_step` and clipping before the update."""
        result = self.strategy.step(optimizer.optimizer, self.split(optimizer, closure), **kwargs)
        if self.precision.stepped or not self.policy.skip_scheduler_on_overflow:
            self.after_step(optimizer)
        return result

    def split(self, optimizer: LightningOptimizer, closure: Callable[[], Any] | None) -> FunctionClosure:
        """What a precision runs for a step: the closure, and what follows when gradients are final."""
        return FunctionClosure(closure or _nothing, partial(self.before_step, optimizer), manual=True)

    def after_step(self, optimizer: LightningOptimizer) -> None:
        """Count a step that was taken."""
        self.stepped = True
        progress = self.progress
        progress.optimizer_steps += 1
        if not self.policy.count_batches:
            progress.global_step += 1

    def before_step(self, optimizer: LightningOptimizer) -> None:
        """Gradients are final: fire the hook, then clip (automatic optimization)."""
        hook = self.hooks.on_before_optimizer_step
        if hook is not None:
            hook(optimizer.optimizer)

    # --- what modules call -------------------------------------------------------------------------------------

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Backward with its hooks; `loss` is scaled already."""
        hooks = self.hooks
        if hooks.on_before_backward is not None:
            hooks.on_before_backward(loss)
        if not self.plain_backward:
            self.strategy.backward(loss, self.module, *args, **kwargs)
        elif self.own_backward is None:
            loss.backward(*args, **kwargs)
        else:
            cursor = self.cursor
            outer, cursor.hook = cursor.hook, BACKWARD
            self.own_backward(loss, *args, **kwargs)
            cursor.hook = outer
        if hooks.on_after_backward is not None:
            hooks.on_after_backward()

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """`LightningModule.manual_backward`.

        Raises:
            MisconfigurationException: In automatic optimization.
            StepOutputError: If the loss is not one number and no gradients are given.
        """
        if self.module.automatic_optimization:
            raise MisconfigurationException(
                f"{type(self.module).__name__} called `manual_backward` while `automatic_optimization` is True; return "
                "the loss from `training_step` instead, or set `self.automatic_optimization = False` in `__init__`."
            )
        if loss.numel() != 1 and not args and kwargs.get("gradient") is None:
            raise StepOutputError(
                f"{type(self.module).__name__} called `manual_backward` with a loss of shape {tuple(loss.shape)}; it "
                "must be one number. Reduce it, for example with `.mean()`, or give the gradients: "
                "`manual_backward(loss, gradient)`."
            )
        self.backward(self.precision.scale(loss), *args, **kwargs)

    def clip(self, optimizer: Any, value: float | None, algorithm: str | None) -> None:
        """`LightningModule.clip_gradients`.

        Raises:
            MisconfigurationException: If the values differ from the Trainer's.
        """
        control = self.control
        if value is None:
            value = control.clip_value or 0.0
        elif control.clip_value not in (None, value):
            raise MisconfigurationException(
                f"clip_gradients(gradient_clip_val={value}) differs from Trainer(gradient_clip_val="
                f"{control.clip_value}); set one of them only."
            )
        if algorithm is None:
            algorithm = control.clip_algorithm or "norm"
        elif control.clip_algorithm not in (None, algorithm):
            raise MisconfigurationException(
                f"clip_gradients(gradient_clip_algorithm={algorithm!r}) differs from Trainer("
                f"gradient_clip_algorithm={control.clip_algorithm!r}); set one of them only."
            )
        raw = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        if not self.module.automatic_optimization and self.policy.unscale_before_manual_clip:
            self.precision.unscale(raw)
        if value:
            self.strategy.clip(raw, value, algorithm)

    @contextmanager
    def toggle(self, optimizer: LightningOptimizer, *, sync_grad: bool) -> Iterator[None]:
        """Only `optimizer`'s parameters need gradients inside."""
        with self.module.toggled_optimizer(optimizer):
            yield


def _nothing() -> None:
    return None


_ZERO_GRAD = Optimizer.zero_grad


def clear_gradients(optimizer: Any) -> None:
    """`optimizer.zero_grad()`; torch's own is done without its profiler range (6 of the 100 µs of a small step)."""
    if type(optimizer).zero_grad is not _ZERO_GRAD or "zero_grad" in optimizer.__dict__:
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = None


class AutomaticStep(StepRoom):
    """The Trainer does backward and step."""

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
        self.held = HeldGraphs(f"{type(self.module).__name__}.{TRAINING_STEP.name}")

    def take_optimizers(self) -> None:
        """As in `StepRoom`; optimizers that the module keeps itself must not step a batch a second time."""
        super().take_optimizers()
        self.release()
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
        self.batch = self.output = self.loss = None

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
        # A window that changes when gradients are there keeps its divisor; `_mend` puts the sum right.
        if not self.contributed or not self.policy.accumulate_actual_window:
            self.divisor = window
        progress.in_window += 1
        if not self.ends_window:
            self.accumulate()
            return
        cursor = self.cursor
        outer, cursor.hook = cursor.hook, OPTIMIZER_STEP
        try:
            self.module.optimizer_step(progress.epoch, batch_idx, self.lightning_optimizers[0], self.closure)
        except _SkipStep:
            self.finish = None
        cursor.hook = outer
        progress.in_window = 0
        if not self.called:
            raise MisconfigurationException(
                f"{type(self.module).__name__}.optimizer_step did not run the closure; call "
                "`optimizer.step(closure=optimizer_closure)`, or `optimizer_closure()` before `optimizer.step()`."
            )
        if self.stepped and self.policy.count_batches:
            progress.global_step += 1

    @property
    def pending(self) -> bool:
        """Whether the window has batches to come."""
        return self.progress.in_window > 0

    def state_dict(self) -> dict[str, Any]:
        """As in `StepRoom`, with the number of batches that gave a loss and by what each was divided."""
        state = super().state_dict()
        return {**state, "contributed": self.contributed, "divisor": self.divisor} if state else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the window back."""
        super().load_state_dict(state_dict)
        self.contributed = int(state_dict.get("contributed", 0))
        self.divisor = int(state_dict.get("divisor", 1))

    def split(self, optimizer: LightningOptimizer, closure: Callable[[], Any] | None) -> FunctionClosure:
        """As in `StepRoom`; a `None` loss skips the step, unless other batches of the window left gradients.

        Raises:
            MisconfigurationException: If `training_step` itself steps.
        """
        if self.cursor.hook is TRAINING_STEP:
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
            self.run_closure()
        else:
            with no_sync:
                self.run_closure()

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
        if self.divisor > 1 and loss is not None:
            loss = loss / self.divisor
        self.loss = loss
        if self.first and self.observed:
            self.zero_grad()
        elif self.first:
            clear_gradients(self.lightning_optimizers[0].optimizer)
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
        return loss

    def zero_grad(self) -> None:
        """Clear gradients, with the hook before it."""
        optimizer = self.lightning_optimizers[0]
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
        if self.contributed != self.divisor:
            self._mend(optimizer)
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

    def _mend(self, optimizer: LightningOptimizer) -> None:
        if self.contributed == 0:
            if self.policy.none_loss_skips_step:
                raise _SkipStep
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
        if self.loss is None:
            return {}
        outputs = {"loss": self.loss.detach()}
        if self.output is not None:
            outputs.update((key, value) for key, value in self.output.items() if key != "loss")
        return outputs


class _SkipStep(Exception):
    """No batch of the window gave a loss: leave the optimizer's step without an update."""


class ManualStep(StepRoom):
    """`training_step` does backward and step itself."""

    automatic = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.output: Any = None

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
        if self.context is None:
            self.output = self.step_function(*args)
        else:
            with self.context():
                self.output = self.step_function(*args)
        cursor.hook = outer
        check_manual(self.output, self.module)
        if self.stepped and self.policy.count_batches:
            self.progress.global_step += 1

    @property
    def outputs(self) -> dict[str, Any]:
        """What `on_train_batch_end` gets."""
        return manual_outputs(self.output)

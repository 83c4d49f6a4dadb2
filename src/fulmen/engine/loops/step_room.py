"""What automatic and manual optimization share: backward with its hooks, optimizer steps, clipping, counting."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import BACKWARD, TRAINING_STEP
from fulmen.engine.hooks.table import HookTable
from fulmen.engine.loops.control import Progress, RunControl
from fulmen.engine.loops.signatures import step_takes, step_takes_optimizer_idx, takes_iterator
from fulmen.engine.precision.closure import FunctionClosure
from fulmen.errors import MisconfigurationException, StepOutputError
from fulmen.strategies.state import plain_key

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
        self.closureless: set[int] = set()  # optimizers whose `step` takes no closure
        self._handles: list[Any] = []
        self.closure: Callable[[], Any] = self.run_closure
        self.finish: LightningOptimizer | None = None
        self.stepped = False
        self.ends_window = True
        self.length: int | float = float("inf")
        self.hooks: HookTable

    automatic = True
    gave_loss: bool | None = True
    by_hand: bool | None = False  # whether `training_step` steps itself; `None`: seen by what it does

    def connect(self, hooks: HookTable) -> None:
        """Take the hook table; what is called per batch is looked up at each build of it."""
        self.hooks = hooks
        hooks.listen(self.bind)
        self.bind()

    def take_optimizers(self) -> None:
        """Wrap the run's optimizers."""
        self.lightning_optimizers = [LightningOptimizer(o, self) for o in self.control.optimizers]
        self.closureless = {id(o) for o in self.control.optimizers if not takes_closure(o)}

    def bind(self) -> None:
        """Look up the step (patched ones too) and which arguments it takes."""
        self.step_function = self.strategy.bind(self.module, TRAINING_STEP.name)
        method = getattr(self.module, TRAINING_STEP.name)
        self.indexed = step_takes_optimizer_idx(method)
        self.with_index = step_takes(method, "batch_idx", 3 if self.indexed else 2)
        self.takes_iterator = takes_iterator(method)
        self.own_backward = self.hooks.own(BACKWARD.name)

    def run_closure(self) -> Any:
        """The closure of automatic optimization; manual optimization has none."""
        raise MisconfigurationException("There is no automatic closure in manual optimization.")

    def begin_by_hand(self) -> None:
        """`training_step` called `manual_backward`, and nothing forbids it."""
        self.by_hand = True

    def reset(self) -> None:
        """Drop what belongs to the last batch."""

    def report(self) -> None:
        """What is to be said at the end of the fit."""

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
        skipped = {} if self.stepped else {"stepped": False}
        if not self.pending:
            return skipped
        parameters = self.module.named_parameters()
        gradients = {plain_key(name): p.grad.detach() for name, p in parameters if p.grad is not None}
        return {**skipped, "gradients": gradients}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give gradients back to the parameters that are still there."""
        self.ends_window = self.progress.in_window == 0
        self.stepped = bool(state_dict.get("stepped", True))
        gradients = state_dict.get("gradients") or {}
        for name, parameter in self.module.named_parameters():
            if (name := plain_key(name)) in gradients:
                parameter.grad = gradients[name].to(parameter.device)

    def release(self) -> None:
        """Take the hooks off the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # --- optimizer steps ---------------------------------------------------------------------------------------

    def step(self, optimizer: LightningOptimizer, closure: Callable[[], Any] | None, kwargs: dict[str, Any]) -> Any:
        """Step through precision, with `on_before_optimizer_step` and clipping before the update."""
        split = self.split(optimizer, closure)
        if closure is None and self.plain and id(optimizer.optimizer) in self.closureless:
            split.ready()
            result = optimizer.optimizer.step(**kwargs)
        else:
            result = self.strategy.step(optimizer.optimizer, split, **kwargs)
        if self.precision.stepped or not self.policy.skip_scheduler_on_overflow:
            self.after_step(optimizer)
        return result

    def split(self, optimizer: LightningOptimizer, closure: Callable[[], Any] | None) -> FunctionClosure:
        """What a precision runs for a step: the closure, and what follows when gradients are final."""
        return FunctionClosure(closure or _nothing, partial(self.before_step, optimizer), manual=True)

    def moves(self, scheduler: Any) -> bool:
        """Whether a scheduler per step moves after this batch, as far as its optimizer is concerned."""
        return True

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
        if self.by_hand is None:
            self.begin_by_hand()
        if not self.by_hand:
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


def runs_closure_again(optimizer: Any) -> bool:
    """Whether an optimizer may run its closure several times for one update: L-BFGS, and others that need one."""
    if isinstance(optimizer, torch.optim.LBFGS):
        return True
    if type(optimizer).__module__.startswith("torch.optim."):
        return False
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def takes_closure(optimizer: Any) -> bool:
    """Whether an optimizer's `step` can be given a closure."""
    return step_takes(partial(type(optimizer).step, optimizer), "closure", 1)


def clear_gradients(optimizer: Any) -> None:
    """`optimizer.zero_grad()`; torch's own is done without its profiler range (6 of the 100 µs of a small step)."""
    if type(optimizer).zero_grad is not _ZERO_GRAD or "zero_grad" in optimizer.__dict__:
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = None

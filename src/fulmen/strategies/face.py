"""Lightning's method names for a strategy, and the routes through those that a subclass overrides.

The engine calls none of the names in `StrategyFace`. After `connect` it calls `route_overrides` once: where a user's
class (or an instance) overrides an old name of strategy or precision, the verb of the same meaning leads through it.
In the plain case verbs stay what they are, and `step` becomes the precision's own method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.precision import Precision
from fulmen.engine.precision.closure import FunctionClosure
from fulmen.types import StepClosure
from fulmen.utilities.model_helpers import is_overridden


class StrategyFace:
    """Mixin with the old names; `Strategy` is the only class that uses it.

    Each default calls the verb as the class defines it, past any route, so that an override may call ``super()``.
    """

    # What `Strategy` has; repeated for the type checker.
    precision_plugin: Any
    lightning_module: Any
    model: Any
    optimizers: Any

    routes: Sequence[str] = ()  # instance attributes that `route_overrides` made
    routed: Sequence[str] = ()  # those of them that lead through an override
    inner_transfer: Callable[..., Any] | None = None
    face_backward: bool = False  # whether something around `backward` is overridden
    running_optimizer: Any = None

    def _verb(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(type(self), name).__get__(self)
        return method

    def _step_in(self, context: AbstractContextManager[Any], name: str, args: Any, kwargs: Any) -> Any:
        with context:
            return getattr(self.model, name)(*args, **kwargs)

    # --------------------------------------------------------------------------------------------------------- set-up
    def setup(self, trainer: Any) -> None:
        """Convert and move the connected module."""
        self.model = self._verb("setup_module")(self.model)

    def setup_precision_plugin(self) -> None:
        """Run after module and optimizers are set up."""

    def process_dataloader(self, dataloader: Any) -> Any:
        """Exchange a loader."""
        return dataloader

    def tensor_init_context(self, empty_init: bool | None = None) -> AbstractContextManager[Any]:
        """Old name of `init_context`."""
        context: AbstractContextManager[Any] = self._verb("init_context")(empty_init)
        return context

    def model_sharded_context(self) -> AbstractContextManager[Any]:
        """Context in which `configure_model` runs."""
        context: AbstractContextManager[Any] = self._verb("init_context")(False)
        return context

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the class under its name."""
        strategy_registry.register(cls.strategy_name, cls, description=cls.__name__)  # type: ignore[attr-defined] # of Strategy

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """Whether weights are loaded after the module was set up instead of before."""
        return False

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Whether the trainer restores optimizers and schedulers."""
        return True

    @property
    def handles_gradient_accumulation(self) -> bool:
        """Whether the strategy accumulates gradients by itself."""
        return False

    # ------------------------------------------------------------------------------------------------------- per step
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's step in the precision's context."""
        return self._step_in(self.precision_plugin.train_step_context(), STEPS[0], args, kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's step in the precision's context."""
        return self._step_in(self.precision_plugin.val_step_context(), STEPS[1], args, kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's step in the precision's context."""
        return self._step_in(self.precision_plugin.test_step_context(), STEPS[2], args, kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's step in the precision's context."""
        return self._step_in(self.precision_plugin.predict_step_context(), STEPS[3], args, kwargs)

    def post_training_step(self) -> None:
        """Run after each training step."""

    def pre_backward(self, closure_loss: Tensor) -> None:
        """Run before backward."""

    def post_backward(self, closure_loss: Tensor) -> None:
        """Run after backward."""

    def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **kwargs: Any) -> Any:
        """Old name of `step`; `closure` is any callable."""
        module = self.lightning_module if model is None else model
        return self.precision_plugin.optimizer_step(optimizer, model=module, closure=closure, **kwargs)

    # ---------------------------------------------------------------------------------------------------------- state
    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Old name of `module_state`."""
        return self._verb("module_state")(self.lightning_module)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Old name of `load_module_state`; takes the whole checkpoint."""
        self._verb("load_module_state")(self.lightning_module, checkpoint["state_dict"], strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load the states of all optimizers from a checkpoint."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=False):
            self._verb("load_optimizer_state")(optimizer, state)

    # ---------------------------------------------------------------------------------------------------------- hooks
    def on_train_start(self) -> None:
        """Run when training starts."""

    def on_train_end(self) -> None:
        """Run when training ends."""

    def on_validation_start(self) -> None:
        """Run when validation starts."""

    def on_validation_end(self) -> None:
        """Run when validation ends."""

    def on_test_start(self) -> None:
        """Run when testing starts."""

    def on_test_end(self) -> None:
        """Run when testing ends."""

    def on_predict_start(self) -> None:
        """Run when predicting starts."""

    def on_predict_end(self) -> None:
        """Run when predicting ends."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Run before each training batch."""

    def on_exception(self, exception: BaseException) -> None:
        """Run when a run ends with an exception."""

    # --------------------------------------------------------------------------------------------------------- routes
    def routed_step(self, name: str) -> Callable[..., Any] | None:
        """Return the old-face step if a subclass of strategy or precision overrides it, else `None`."""
        if name not in STEPS:
            return None
        if is_overridden(name, self):
            return getattr(self, name)
        context = PRECISION_CONTEXTS[STEPS.index(name)]
        return getattr(self, name) if is_overridden(context, self.precision_plugin) else None

    def routed_transfer(self, transfer: Callable[..., Any]) -> Callable[..., Any]:
        """Return `transfer`, led through `batch_to_device` if a subclass overrides it."""
        if not is_overridden("batch_to_device", self):
            return transfer
        self.inner_transfer = transfer
        return partial(_transfer, self)


STEPS = (
    StrategyFace.training_step.__name__,
    StrategyFace.validation_step.__name__,
    StrategyFace.test_step.__name__,
    StrategyFace.predict_step.__name__,
)
PRECISION_CONTEXTS = ("train_step_context", "val_step_context", "test_step_context", "predict_step_context")
STRATEGY_HOOKS = tuple(name for name in vars(StrategyFace) if name.startswith("on_"))


def overridden_hooks(strategy: Any) -> dict[str, Callable[..., Any]]:
    """Return the hooks that a strategy's subclass or instance overrides, as bound methods by name."""
    return {name: getattr(strategy, name) for name in STRATEGY_HOOKS if is_overridden(name, strategy)}


def route_overrides(strategy: Any) -> tuple[str, ...]:
    """Lead the verbs of a strategy and its precision through overridden old names.

    Call it once per run, after ``strategy.connect(module)``; calling it again looks anew.

    Args:
        strategy: The strategy; routes are instance attributes that pickling leaves out.

    Returns:
        Names of the strategy's verbs that are routed, empty in the plain case.
    """
    precision = strategy.precision_plugin
    for owner in (strategy, precision):
        for name in owner.routes:
            vars(owner).pop(name, None)
    precision_routes = _precision_routes(strategy, precision)
    vars(precision).update(precision_routes, routes=tuple(precision_routes))
    if precision_routes:
        vars(precision)["plain"] = False
        precision.routes = (*precision_routes, "plain")
    routes = _strategy_routes(strategy, precision)
    routed = tuple(routes)
    if "step" not in routes and not is_overridden("step", strategy):
        routes["step"] = precision.step  # one frame less on the path of each batch
    vars(strategy).update(routes, routes=tuple(routes), routed=routed)
    return routed


def _strategy_routes(strategy: Any, precision: Precision) -> dict[str, Any]:
    def over(*names: str) -> bool:
        return any(is_overridden(name, strategy) for name in names)

    def precision_over(*names: str) -> bool:
        return any(is_overridden(name, precision) for name in names)

    routes: dict[str, Any] = {}
    face = StrategyFace
    if over(face.optimizer_step.__name__):
        routes["step"] = partial(_step_through_strategy, strategy)
    elif precision_over(face.optimizer_step.__name__):
        routes["step"] = partial(_step_through_precision, strategy)
    if over("backward"):
        routes["backward"] = partial(_backward, strategy)
    if over("pre_backward", "post_backward") or precision_over("backward", "post_backward"):
        routes["face_backward"] = True
    if "backward" in routes or "face_backward" in routes:
        routes["step"] = partial(_step_noting_optimizer, strategy, routes.get("step") or strategy.precision_plugin.step)
    if over(face.setup.__name__):
        routes["setup_module"] = partial(_setup_module, strategy)
    if over("setup_optimizers", "setup_precision_plugin"):
        routes["setup_optimizers"] = partial(_setup_optimizers, strategy)
    if over("tensor_init_context"):
        routes["init_context"] = strategy.tensor_init_context
    if over("lightning_module_state_dict"):
        routes["module_state"] = partial(_module_state, strategy)
    if over("load_model_state_dict"):
        routes["load_module_state"] = partial(_load_module_state, strategy)
    if over("load_optimizer_state_dict"):
        routes["load_optimizer_state"] = partial(_load_optimizer_state, strategy)
    # An attribute of the instance is the user's own patch of the verb itself.
    return {name: route for name, route in routes.items() if name not in vars(strategy)}


def _precision_routes(strategy: Any, precision: Precision) -> dict[str, Any]:
    def over(*names: str) -> bool:
        return any(is_overridden(name, precision) for name in names)

    routes: dict[str, Any] = {}
    if over("forward_context"):
        routes["context"] = precision.forward_context
    if over("convert_module"):
        routes["convert"] = precision.convert_module
    if over("tensor_init_context"):
        routes["init_context"] = precision.tensor_init_context
    if over("module_init_context"):
        routes["init_context"] = precision.module_init_context
    if over("pre_backward"):
        routes["scale"] = partial(_scale, strategy)
    if over("unscale_gradients"):
        routes["unscale"] = precision.unscale_gradients
    if over("clip_gradients", "clip_grad_by_norm", "clip_grad_by_value"):
        routes["clip"] = partial(_clip, precision)
    return {name: route for name, route in routes.items() if name not in vars(precision)}


def _callable_closure(closure: StepClosure) -> FunctionClosure:
    return FunctionClosure(closure.compute, closure.ready, getattr(closure, "manual", False))


def _step_through_strategy(strategy: Any, optimizer: Any, closure: StepClosure, **kwargs: Any) -> Any:
    run = strategy.precision_plugin.run_with
    return run(closure, strategy.optimizer_step, optimizer, _callable_closure(closure), **kwargs)


def _step_through_precision(strategy: Any, optimizer: Any, closure: StepClosure, **kwargs: Any) -> Any:
    precision = strategy.precision_plugin
    kwargs |= {"model": strategy.lightning_module, "closure": _callable_closure(closure)}
    return precision.run_with(closure, precision.optimizer_step, optimizer, **kwargs)


def _step_noting_optimizer(
    strategy: Any, step: Callable[..., Any], optimizer: Any, closure: StepClosure, **kwargs: Any
) -> Any:
    strategy.running_optimizer = optimizer
    try:
        return step(optimizer, closure, **kwargs)
    finally:
        strategy.running_optimizer = None


def _backward(strategy: Any, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], torch.nn.Module):
        args = args[1:]
    optimizer = strategy.running_optimizer
    automatic = getattr(strategy.lightning_module, "automatic_optimization", False)
    if optimizer is None and automatic and strategy.optimizers:
        optimizer = strategy.optimizers[0]  # inside of an accumulation window none is stepping
    return type(strategy).backward(strategy, closure_loss, optimizer, *args, **kwargs)


def _scale(strategy: Any, loss: Tensor) -> Tensor:
    return strategy.precision_plugin.pre_backward(loss, strategy.lightning_module)


def _clip(precision: Any, optimizer: Any, clip_val: float | None, algorithm: Any = "norm") -> None:
    if clip_val:
        precision.clip_gradients(
            optimizer, clip_val, gradient_clip_algorithm="norm" if algorithm is None else algorithm
        )


def _transfer(strategy: Any, batch: Any, dataloader_idx: int = 0) -> Any:
    return strategy.batch_to_device(batch, strategy.root_device, dataloader_idx)


def _trainer_of(strategy: Any) -> Any:
    try:
        return getattr(strategy.lightning_module, "trainer", None)
    except RuntimeError:  # a module that is not attached says so
        return None


def _setup_module(strategy: Any, module: torch.nn.Module) -> torch.nn.Module:
    if strategy.lightning_module is None:
        strategy.connect(module)
    strategy.model = module
    strategy.setup(_trainer_of(strategy))
    return strategy.model


def _setup_optimizers(strategy: Any, optimizers: list[Any]) -> list[Any]:
    strategy.optimizers = optimizers
    type(strategy).setup_optimizers(strategy, _trainer_of(strategy))
    strategy.setup_precision_plugin()
    return strategy.optimizers


def _module_state(strategy: Any, module: torch.nn.Module) -> dict[str, Any]:
    return strategy.lightning_module_state_dict()


def _load_module_state(strategy: Any, module: torch.nn.Module, state: Mapping[str, Any], strict: bool = True) -> None:
    strategy.load_model_state_dict({"state_dict": state}, strict=strict)


def _load_optimizer_state(strategy: Any, optimizer: Any, state: Mapping[str, Any]) -> None:
    before = strategy.optimizers
    strategy.optimizers = [optimizer]
    try:
        strategy.load_optimizer_state_dict({"optimizer_states": [state]})
    finally:
        strategy.optimizers = before

"""The verbs that every strategy offers to the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from fulmen.accelerators.accelerator import Accelerator
from fulmen.engine.precision import Precision
from fulmen.errors import ArgumentTypeError
from fulmen.strategies import state as states
from fulmen.strategies.face import StrategyFace
from fulmen.strategies.init import EmptyInit
from fulmen.types import PathOrStr, StepClosure
from fulmen.utilities.collections import move_data_to_device
from fulmen.utilities.compiler import compiled_with, keep_compiler_out

T = TypeVar("T")


class Strategy(StrategyFace, ABC):
    """Places a module on devices, steps its optimizers, talks between ranks, saves and loads.

    The engine uses only the verbs of this class; Lightning's other names come from `StrategyFace`. A subclass may
    override either: `route_overrides` leads the verbs through overridden old names.

    Args:
        accelerator: The kind of hardware; by default the one of the root device.
        checkpoint_io: Reads and writes checkpoint files; by default `TorchCheckpointIO`.
        precision_plugin: Number format; by default ``"32-true"``.

    Raises:
        ArgumentTypeError: One of them is of the wrong kind.
    """

    strategy_name: str = "strategy"
    global_rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    world_size: int = 1
    num_nodes: int = 1

    def __init__(
        self, accelerator: Any = None, checkpoint_io: Any = None, precision_plugin: Precision | None = None
    ) -> None:
        where = type(self).__name__
        if accelerator is not None and not isinstance(accelerator, Accelerator):
            raise ArgumentTypeError(
                f"{where}(accelerator={accelerator!r}): give an Accelerator object, or leave it out."
            )
        self._accelerator: Accelerator | None = accelerator
        self._checkpoint_io: Any = None
        self._precision: Precision = Precision()
        self._launcher: Any = None
        self._lightning_module: Any = None
        self._model: torch.nn.Module | None = None
        self._optimizers: list[Any] = []
        self.lr_scheduler_configs: list[Any] = []
        if checkpoint_io is not None:
            self.checkpoint_io = checkpoint_io
        if precision_plugin is not None:
            self.precision_plugin = precision_plugin

    # ---------------------------------------------------------------------------------------------------- what it has
    @property
    @abstractmethod
    def root_device(self) -> torch.device:
        """Device of this process."""

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first of all processes."""
        return self.global_rank == 0

    @property
    def launcher(self) -> Any:
        """What starts the other processes; `None` if there are none to start."""
        return self._launcher

    @property
    def accelerator(self) -> Accelerator:
        """The kind of hardware."""
        if self._accelerator is None:
            from fulmen.accelerators.registry import accelerator_for

            self._accelerator = accelerator_for(self.root_device)
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    @property
    def precision_plugin(self) -> Precision:
        """Number format of the run."""
        return self._precision

    @precision_plugin.setter
    def precision_plugin(self, precision: Precision | None) -> None:
        if precision is not None and not isinstance(precision, Precision):
            raise ArgumentTypeError(
                f"{type(self).__name__}(precision_plugin={precision!r}): give a Precision object such as"
                " MixedPrecision('bf16-mixed', 'cuda'); names go to the trainer's argument `precision`."
            )
        self._precision = Precision() if precision is None else precision

    @property
    def checkpoint_io(self) -> Any:
        """Reads and writes checkpoint files."""
        from fulmen.engine.storage.checkpoint_io import TorchCheckpointIO

        if self._checkpoint_io is None:
            self._checkpoint_io = TorchCheckpointIO()
        elif getattr(self._checkpoint_io, "checkpoint_io", self) is None:
            self._checkpoint_io.checkpoint_io = TorchCheckpointIO()  # one that wraps another, left open
        return self._checkpoint_io

    @checkpoint_io.setter
    def checkpoint_io(self, io: Any) -> None:
        if not all(callable(getattr(io, name, None)) for name in ("save_checkpoint", "load_checkpoint")):
            raise ArgumentTypeError(
                f"{type(self).__name__}(checkpoint_io={io!r}): give a CheckpointIO object, with the methods"
                " `save_checkpoint` and `load_checkpoint`."
            )
        self._checkpoint_io = io

    @property
    def lightning_module(self) -> Any:
        """The user's own module, without wrappers."""
        return self._lightning_module

    @property
    def model(self) -> Any:
        """The module that is trained, wrapped where the strategy wraps it."""
        return self._model if self._model is not None else self._lightning_module

    @model.setter
    def model(self, model: torch.nn.Module | None) -> None:
        self._model = model

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers that were set up."""
        return self._optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Sequence[Any]) -> None:
        self._optimizers = list(optimizers)

    # --------------------------------------------------------------------------------------------------------- set-up
    def connect(self, model: torch.nn.Module) -> None:
        """Take the user's module, before its hooks `setup` and `configure_model` ran."""
        self._lightning_module = model
        self._model = model

    def setup_environment(self) -> None:
        """Get the device ready; strategies for several processes connect them here."""
        self.accelerator.setup_device(self.root_device)

    def setup_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Convert the module to the precision, move it to the device, wrap it; returns what is to be trained."""
        if self._lightning_module is None:
            self._lightning_module = module
        self._model = self.precision_plugin.convert(module)
        self.model_to_device()
        return self.model

    def model_to_device(self) -> None:
        """Move the module to the root device, if it is not there."""
        if not states.is_on(self.model, self.root_device):
            self.model.to(self.root_device)

    def setup_optimizers(self, optimizers: Any) -> list[Any]:
        """Prepare the optimizers for stepping the set-up module; returns those to use.

        Args:
            optimizers: List of torch optimizers. (Code written for Lightning passes its trainer: then the ones known
                so far are prepared.)
        """
        found = list(optimizers) if isinstance(optimizers, list | tuple) else self._optimizers
        _, found, self.lr_scheduler_configs = self.precision_plugin.connect(
            self.model, list(found), self.lr_scheduler_configs
        )
        for optimizer in found:
            if getattr(optimizer, "state", None):
                states.place_optimizer_state(optimizer)
        self._optimizers = list(found)
        return self._optimizers

    def bind(self, module: torch.nn.Module, name: str) -> Callable[..., Any]:
        """Return the callable that runs one of the module's steps.

        In the plain case it is the bound method. A module compiled as a whole gets its step compiled the same way,
        and a subclass that overrides the step's old name gets the call.

        Args:
            module: The set-up module.
            name: Name of the step, ``"training_step"`` for example.
        """
        routed = self.routed_step(name)
        if routed is not None:
            return routed
        keep_compiler_out()
        compile_as_module = compiled_with(module)
        if compile_as_module is not None:
            return compile_as_module(getattr(getattr(module, "_orig_mod", module), name))
        return getattr(module, name)

    def bind_transfer(self, transfer: Callable[..., Any]) -> Callable[..., Any]:
        """Return the callable ``(batch, dataloader_idx) -> batch`` that brings batches to the device.

        Args:
            transfer: The one that runs the module's transfer hooks; it is what comes back in the plain case.
        """
        return self.routed_transfer(transfer)

    def no_sync(self, module: torch.nn.Module) -> AbstractContextManager[Any] | None:
        """Return a context in which backward leaves gradients unsynchronised, `None` where there is nothing to skip."""
        return None

    @contextmanager
    def init_context(self, empty_init: bool | None = None) -> Iterator[None]:
        """Create modules and tensors on the device, in the right dtype.

        Args:
            empty_init: Whether weights stay unfilled because they are loaded later.
        """
        with EmptyInit(bool(empty_init)), self.root_device, self.precision_plugin.init_context():
            yield

    # ------------------------------------------------------------------------------------------------------- per step
    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Run the module's own `backward`, with everything around it that a subclass may override.

        Args:
            closure_loss: The loss, scaled where the precision scales it.
            *args: First the module, or (in code written for Lightning) an optimizer or `None`, which both mean the
                connected module; the rest is passed on.
            **kwargs: Passed on.
        """
        module, optimizer = self._lightning_module, self.running_optimizer
        if args and isinstance(args[0], torch.nn.Module):
            module, args = args[0], args[1:]
        elif args and (args[0] is None or isinstance(args[0], Optimizer)):
            optimizer, args = args[0], args[1:]
        precision = self.precision_plugin
        self.pre_backward(closure_loss)
        precision.backward(closure_loss, module, optimizer, *args, **kwargs)
        precision.post_backward(closure_loss, module)
        self.post_backward(closure_loss)
        return closure_loss

    @property
    def steps_plainly(self) -> bool:
        """Whether `step` is nothing but the precision's, so that the engine may leave it out."""
        return type(self).step is Strategy.step and "step" not in self.routed

    def step(self, optimizer: Optimizer, closure: StepClosure, **kwargs: Any) -> Any:
        """Run the closure and step the optimizer; see `Precision.step`."""
        return self.precision_plugin.step(optimizer, closure, **kwargs)

    def clip(self, optimizer: Optimizer, clip_val: float | None, algorithm: str | None = "norm") -> Tensor | None:
        """Clip the gradients of an optimizer's parameters in place; returns the norm before, for ``"norm"``."""
        return self.precision_plugin.clip(optimizer, clip_val, algorithm)

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        """Bring a batch to the device, through the module's transfer hooks where those are known."""
        if self.inner_transfer is not None:
            return self.inner_transfer(batch, dataloader_idx)
        return move_data_to_device(batch, self.root_device if device is None else device)

    # -------------------------------------------------------------------------------------------------- between ranks
    @abstractmethod
    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Combine a value of all ranks into one that all get."""

    @abstractmethod
    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, stacked along a new first dimension if there are several."""

    @abstractmethod
    def broadcast(self, obj: T, src: int = 0) -> T:
        """Return the object of rank `src`."""

    @abstractmethod
    def barrier(self, name: str | None = None) -> None:
        """Wait until all ranks are here."""

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Return whether all ranks (or any of them) say yes."""
        return decision

    # ---------------------------------------------------------------------------------------------------------- state
    def module_state(self, module: torch.nn.Module) -> dict[str, Any]:
        """Return the module's state with plain keys."""
        return states.module_state(module)

    def load_module_state(self, module: torch.nn.Module, state: Mapping[str, Any], strict: bool = True) -> Any:
        """Load a module's state."""
        return states.load_module_state(module, state, strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return an optimizer's state."""
        return states.optimizer_state(optimizer)

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load an optimizer's state, its tensors where the optimizer wants them."""
        states.load_optimizer_state(optimizer, state)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: PathOrStr, storage_options: Any = None) -> None:
        """Write a checkpoint, on the first rank."""
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options=storage_options)

    def load_checkpoint(self, checkpoint_path: PathOrStr, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint."""
        return self.checkpoint_io.load_checkpoint(checkpoint_path, weights_only=weights_only)

    def remove_checkpoint(self, filepath: PathOrStr) -> None:
        """Delete a checkpoint, on the first rank."""
        if self.is_global_zero:
            self.checkpoint_io.remove_checkpoint(filepath)

    def teardown(self) -> None:
        """Give the device's memory back: module and optimizers go to the CPU."""
        cpu = torch.device("cpu")
        if self.root_device != cpu:
            states.move_optimizers(self._optimizers, cpu)
            if self._lightning_module is not None:
                self._lightning_module.cpu()
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        if self._checkpoint_io is not None and hasattr(self._checkpoint_io, "teardown"):
            self._checkpoint_io.teardown()
        self._optimizers = []
        self.lr_scheduler_configs = []

    def __getstate__(self) -> dict[str, Any]:
        # Module and optimizers belong to others; routes are made anew at the next set-up.
        state = {key: value for key, value in vars(self).items() if key not in self.routes}
        empty: dict[str, Any] = {"_lightning_module": None, "_model": None, "_optimizers": [], "_launcher": None}
        state.update(empty, lr_scheduler_configs=[], inner_transfer=None, routes=(), routed=())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(device={str(self.root_device)!r}, precision={self.precision_plugin.precision!r})"

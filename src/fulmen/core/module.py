"""`LightningModule`: what the model is and how its loss is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fulmen.core.datahooks import DataHooks
from fulmen.core.hparams import HyperparametersMixin
from fulmen.core.module_hooks import ModuleHooks
from fulmen.core.saving import load_module, restricted_classmethod
from fulmen.engine.hooks.running import is_running
from fulmen.engine.results.flags import not_allowed
from fulmen.engine.results.metrics import items_of
from fulmen.errors import MisconfigurationException, warn
from fulmen.utilities.collections import apply_to_collection

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from fulmen.core.handle import RunHandle
    from fulmen.trainer.trainer import Trainer
    from fulmen.types import MapLocation, PathOrStr

# What a module keeps about the run it is in; dropped on pickling and copying.
_LINKS = ("_trainer", "_fabric", "dynamo_ctx")


class LightningModule(HyperparametersMixin, DataHooks, ModuleHooks):
    """An `nn.Module` that says how to train, evaluate and predict; a `Trainer` runs it.

    Override `training_step` and `configure_optimizers` to train, `validation_step`, `test_step` and `predict_step` to
    evaluate. All hooks are optional.
    """

    CHECKPOINT_HYPER_PARAMS_KEY: ClassVar[str] = "hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME: ClassVar[str] = "hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE: ClassVar[str] = "hparams_type"

    # Class-level defaults serve modules that were pickled before an attribute existed.
    _trainer: Trainer | None = None
    _fabric: Any = None
    _example_input_array: Any = None
    _automatic_optimization: bool = True
    _strict_loading: bool | None = None
    _device: torch.device = torch.device("cpu")
    _dtype: torch.dtype = torch.float32
    # What compiles the steps if the Trainer was given `torch.compile(module)`; torch's name for it.
    dynamo_ctx: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._trainer = None
        self._fabric = None
        self._example_input_array = None
        self._automatic_optimization = True
        self._strict_loading = None
        self._device = torch.device("cpu")
        self._dtype = torch.get_default_dtype()
        self._toggled: dict[int, tuple[Any, bool]] = {}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in _LINKS:
            if name in state:
                state[name] = None
        return state

    # --- steps -------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What `model(x)` computes; as in `torch.nn.Module`."""
        return super().forward(*args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of one batch.

        Takes `(batch)` or `(batch, batch_idx)`. Returns a scalar tensor, a dict with such a tensor under `"loss"`, or
        `None` to skip the update.
        """
        raise MisconfigurationException(f"{type(self).__name__} has no `training_step`; define it to train.")

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate one validation batch; takes `(batch, batch_idx)`, and `dataloader_idx` with several loaders."""
        raise MisconfigurationException(f"{type(self).__name__} has no `validation_step`; define it to validate.")

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate one test batch; takes `(batch, batch_idx)`, and `dataloader_idx` with several loaders."""
        raise MisconfigurationException(f"{type(self).__name__} has no `test_step`; define it to test.")

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Predict one batch; by default `self(batch)`."""
        return self(kwargs["batch"] if "batch" in kwargs else args[0])

    def configure_callbacks(self) -> Any:
        """Return a callback or a list of them; they are added to the Trainer's, same types are replaced."""
        return []

    def configure_optimizers(self) -> Any:
        """Return the optimizers and schedulers; see `fulmen.core.optim_config` for all forms."""
        raise MisconfigurationException(
            f"{type(self).__name__} has no `configure_optimizers`; define it and return an optimizer. There is no "
            "default optimizer."
        )

    # --- the run -----------------------------------------------------------------------------------------------

    @property
    def trainer(self) -> Trainer:
        """The Trainer that runs this module.

        Raises:
            RuntimeError: If there is none.
        """
        if self._trainer is None:
            raise RuntimeError(f"{type(self).__qualname__} is not attached to a `Trainer`.")
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Trainer | None) -> None:
        for child in self.children():
            if isinstance(child, LightningModule):
                child.trainer = trainer
        self._trainer = trainer

    @property
    def fabric(self) -> Any:
        """The Fabric that runs this module, or `None`."""
        return self._fabric

    @fabric.setter
    def fabric(self, fabric: Any) -> None:
        for child in self.children():
            if isinstance(child, LightningModule):
                child.fabric = fabric
        self._fabric = fabric

    def _run(self) -> RunHandle | None:
        trainer = self._trainer
        return trainer.session if trainer is not None else None

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """The optimizers of the run: one object if there is one, else a list.

        Args:
            use_pl_optimizer: Return wrapped ones (`LightningOptimizer`), which handle precision, hooks and counting.
        """
        run = self._run()
        wrapped: list[Any] = run.optimization.lightning_optimizers if run is not None else []
        if use_pl_optimizer and wrapped:
            found = list(wrapped)
        else:
            found = list(self.trainer.optimizers)
        return found[0] if len(found) == 1 else found

    def lr_schedulers(self) -> Any:
        """The schedulers of the run: `None`, one object, or a list."""
        found = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        if not found:
            return None
        return found[0] if len(found) == 1 else found

    @property
    def example_input_array(self) -> Any:
        """An input of `forward`, used by summaries, graphs and exports."""
        return self._example_input_array

    @example_input_array.setter
    def example_input_array(self, example: Any) -> None:
        self._example_input_array = example

    @property
    def automatic_optimization(self) -> bool:
        """Whether the Trainer does backward and steps (`True`) or `training_step` does."""
        return self._automatic_optimization

    @automatic_optimization.setter
    def automatic_optimization(self, automatic_optimization: bool) -> None:
        self._automatic_optimization = automatic_optimization

    @property
    def strict_loading(self) -> bool:
        """Whether loading a checkpoint needs all keys to match; `True` unless set."""
        return True if self._strict_loading is None else self._strict_loading

    @strict_loading.setter
    def strict_loading(self, strict_loading: bool) -> None:
        self._strict_loading = strict_loading

    @property
    def current_epoch(self) -> int:
        """Number of the running epoch, 0 outside of a run."""
        return self._trainer.current_epoch if self._trainer is not None else 0

    @property
    def global_step(self) -> int:
        """Number of updates so far, over all epochs, 0 outside of a run."""
        return self._trainer.global_step if self._trainer is not None else 0

    @property
    def global_rank(self) -> int:
        """Rank of this process among all."""
        return self._trainer.global_rank if self._trainer is not None else 0

    @property
    def local_rank(self) -> int:
        """Rank of this process on its node."""
        return self._trainer.local_rank if self._trainer is not None else 0

    @property
    def logger(self) -> Any:
        """The first logger, or `None`."""
        if self._fabric is not None:
            return self._fabric.logger
        return self._trainer.logger if self._trainer is not None else None

    @property
    def loggers(self) -> list[Any]:
        """All loggers."""
        if self._fabric is not None:
            return list(self._fabric.loggers)
        return list(self._trainer.loggers) if self._trainer is not None else []

    @property
    def device(self) -> torch.device:
        """Where the module's parameters were last moved to."""
        device = self._device
        # `cuda` without an index means the current device.
        if device.type == "cuda" and device.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Float type that the module was last cast to."""
        return self._dtype

    @dtype.setter
    def dtype(self, new_dtype: torch.dtype) -> None:
        raise RuntimeError("Cannot set the dtype; use `module.to(dtype)`.")

    @property
    def device_mesh(self) -> Any:
        """The device mesh of strategies that have one, else `None`."""
        return getattr(self._trainer.strategy, "device_mesh", None) if self._trainer is not None else None

    @property
    def on_gpu(self) -> bool:
        """Whether the module is on a CUDA device."""
        return self.device.type == "cuda"

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        # `to`, `cuda`, `cpu`, `half`, `double` … all end here; a probe tells where they lead.
        result = super()._apply(fn, *args, **kwargs)
        probe = fn(torch.empty(0, dtype=self._dtype, device=self._device))
        self._device, self._dtype = probe.device, probe.dtype
        return result

    # --- logging -----------------------------------------------------------------------------------------------

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
        *,
        axis: str | None = None,
        reduce_loaders: str | None = None,
    ) -> None:
        """Log one value.

        Args:
            name: Key.
            value: Number, tensor of one element, or torchmetrics object. Its value is copied at once.
            prog_bar: Show it in the progress bar.
            logger: Send it to the loggers (default `True`).
            on_step: Log the value of each step; the default depends on the hook.
            on_epoch: Log the value reduced over the epoch; the default depends on the hook.
            reduce_fx: `"mean"` (weighted by batch size), `"sum"`, `"min"`, `"max"`, or a function that makes one number
                of a 1-D tensor of all values of the epoch (which are then kept until its end).
            enable_graph: Accepted for compatibility; values are always detached.
            sync_dist: Reduce over ranks.
            sync_dist_group: Process group for that.
            add_dataloader_idx: With several loaders append the loader's name (`/clean`) if they were given as a dict,
                else `/dataloader_idx_N`. Without it the value is one over all loaders that log the name.
            batch_size: Weight of the value; found in the batch if not given.
            metric_attribute: Name of a metric object that is no attribute of the module, to say that it is meant so.
            rank_zero_only: Log on rank zero only.
            axis: x axis of the value in loggers: `"step"`, `"epoch"`, `"samples"`, `"tokens"` (the sum of what training
                logs as `"tokens"`), `"time"` (seconds in runs), or the name of a logged value. By default the logger's.
            reduce_loaders: `"mean"` also makes one value over all loaders, under the plain name.

        Raises:
            LoggingError: For a hook, flag or value that is not allowed, or flags that differ from an earlier call.
        """
        trainer = self._trainer
        if trainer is None or (run := trainer.session) is None:
            self._log_outside(name, value)
            return
        results = run.cursor.results
        if results is None:
            raise not_allowed(name, run.cursor.hook, ", as no loop is running")
        given = (
            prog_bar,
            logger,
            on_step,
            on_epoch,
            reduce_fx,
            enable_graph,
            sync_dist,
            sync_dist_group,
            add_dataloader_idx,
            metric_attribute,
            rank_zero_only,
            axis,
            reduce_loaders,
        )
        results.log(name, value, given, batch_size)

    def log_dict(
        self,
        dictionary: Mapping[str, Any],
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        rank_zero_only: bool = False,
        *,
        axis: str | None = None,
        reduce_loaders: str | None = None,
    ) -> None:
        """Log several values with the same flags; these and the errors are those of `log`.

        Takes a mapping of names to values, or a `MetricCollection`, whose prefix and postfix are kept.
        """
        if self._fabric is not None:
            self._fabric.log_dict(dictionary)
            return
        for key, value in dictionary.items() if type(dictionary) is dict else items_of(dictionary):
            self.log(
                key,
                value,
                prog_bar,
                logger,
                on_step,
                on_epoch,
                reduce_fx,
                enable_graph,
                sync_dist,
                sync_dist_group,
                add_dataloader_idx,
                batch_size,
                None,
                rank_zero_only,
                axis=axis,
                reduce_loaders=reduce_loaders,
            )

    def _log_outside(self, name: str, value: Any) -> None:
        if self._fabric is not None:
            self._fabric.log(name, value)
            return
        if self._trainer is not None and is_running(self):
            raise not_allowed(name, self._trainer.cursor.hook, ", as no loop is running")
        warn(
            "W202",
            f"{type(self).__name__}.log({name!r}, ...) was called outside of a run: nothing is logged.",
            key=type(self).__name__,
            stacklevel=3,
        )

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print on rank zero, without breaking a progress bar."""
        if self._trainer is not None:
            self._trainer.print(*args, **kwargs)
        else:
            print(*args, **kwargs)

    # --- optimization ------------------------------------------------------------------------------------------

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """`loss.backward()` for manual optimization, with precision, hooks and synchronisation of ranks.

        Args:
            loss: The loss; a scalar tensor.
            *args: Arguments of `Tensor.backward`.
            **kwargs: Arguments of `Tensor.backward`.

        Raises:
            MisconfigurationException: If `automatic_optimization` is on.
        """
        if self._fabric is not None:
            self._fabric.backward(loss, *args, **kwargs)
            return
        run = self._run()
        if run is None:
            loss.backward(*args, **kwargs)
            return
        run.optimization.manual_backward(loss, *args, **kwargs)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """How gradients are computed; override to change it."""
        if self._fabric is not None:
            self._fabric.backward(loss, *args, **kwargs)
        else:
            loss.backward(*args, **kwargs)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """How the weights are updated; override to change it, and pass the closure on.

        Args:
            epoch: Running epoch.
            batch_idx: Index of the batch.
            optimizer: The wrapped optimizer.
            optimizer_closure: Runs training step, zero_grad and backward.
        """
        optimizer.step(closure=optimizer_closure)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """How gradients are cleared."""
        optimizer.zero_grad()

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """How a scheduler steps; `metric` is the monitored value of a plateau scheduler, else `None`."""
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)

    def clip_gradients(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of `optimizer`'s parameters.

        Args:
            optimizer: The optimizer.
            gradient_clip_val: Largest norm or value; the Trainer's if not given.
            gradient_clip_algorithm: `"norm"` or `"value"`; the Trainer's if not given.

        Raises:
            MisconfigurationException: If values given here differ from the Trainer's.
        """
        run = self._run()
        if run is None:
            raise MisconfigurationException(
                f"{type(self).__name__}.clip_gradients needs a running Trainer; outside of one use "
                "`torch.nn.utils.clip_grad_norm_`."
            )
        run.optimization.clip(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip before an optimizer steps; override to do it your own way with `clip_gradients`."""
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def toggle_optimizer(self, optimizer: Any) -> None:
        """Let only this optimizer's parameters need gradients, until `untoggle_optimizer`.

        Args:
            optimizer: One of the run's optimizers.
        """
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        flags: dict[int, tuple[Any, bool]] = self.__dict__.setdefault("_toggled", {})
        for other in self.trainer.optimizers:
            for group in other.param_groups:
                for param in group["params"]:
                    flags.setdefault(id(param), (param, param.requires_grad))
        for key, (param, needed) in flags.items():
            param.requires_grad = needed if key in own else False

    def untoggle_optimizer(self, optimizer: Any) -> None:
        """Give all parameters back the `requires_grad` that they had before `toggle_optimizer`."""
        flags: dict[int, tuple[Any, bool]] = self.__dict__.setdefault("_toggled", {})
        for param, needed in flags.values():
            param.requires_grad = needed
        flags.clear()

    @contextmanager
    def toggled_optimizer(self, optimizer: Any) -> Iterator[None]:
        """`toggle_optimizer` as a context."""
        self.toggle_optimizer(optimizer)
        try:
            yield
        finally:
            self.untoggle_optimizer(optimizer)

    def all_gather(self, data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Gather tensors of all ranks; nested collections keep their form.

        Args:
            data: Tensor, number or collection of them.
            group: Process group, all ranks if not given.
            sync_grads: Whether gradients flow back.

        Returns:
            The same collection; each tensor has a new first dimension of the number of ranks (none for one rank).
        """
        if self._fabric is not None:
            return self._fabric.all_gather(data, group=group, sync_grads=sync_grads)
        strategy = self.trainer.strategy
        moved = apply_to_collection(data, (int, float), torch.tensor)
        return apply_to_collection(
            moved, Tensor, lambda t: strategy.all_gather(t.to(self.device), group=group, sync_grads=sync_grads)
        )

    def freeze(self) -> None:
        """Stop gradients of all parameters and go to evaluation mode."""
        for param in self.parameters():
            param.requires_grad = False
        self.eval()

    def unfreeze(self) -> None:
        """Let all parameters need gradients and go to training mode."""
        for param in self.parameters():
            param.requires_grad = True
        self.train()

    @restricted_classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: PathOrStr | IO[bytes],
        map_location: MapLocation = None,
        hparams_file: PathOrStr | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Build a module from a checkpoint.

        Args:
            checkpoint_path: Path, URL or open file.
            map_location: As in `torch.load`.
            hparams_file: YAML or CSV file with hyperparameters, for checkpoints that have none.
            strict: Whether all keys must match; the module's `strict_loading` if not given.
            weights_only: `False` also unpickles objects of foreign types; only for files that you trust.
            **kwargs: Constructor arguments; they win over the stored ones.

        Raises:
            CheckpointError: If the file cannot be read, or arguments are missing or unknown.
        """
        return load_module(
            cls,
            checkpoint_path,
            map_location=map_location,
            hparams_file=hparams_file,
            strict=strict,
            weights_only=weights_only,
            **kwargs,
        )

"""What a Trainer shows of itself: readable and settable views on plan, control, progress and runtime."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from fulmen.callbacks.checkpoint import Checkpoint
from fulmen.callbacks.early_stopping import EarlyStopping
from fulmen.callbacks.progress.progress_bar import ProgressBar
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import PREDICT, TEST, TRAIN_LOADER, VALIDATION
from fulmen.engine.hooks.table import CallbackList, overrides
from fulmen.engine.loops.control import Progress, RunControl
from fulmen.engine.loops.session import Session
from fulmen.engine.results.hub import MetricsHub
from fulmen.engine.runtime.flags import check_flag
from fulmen.engine.runtime.plan import Plan
from fulmen.engine.runtime.policy import Policy
from fulmen.engine.runtime.runtime import Runtime
from fulmen.errors import MisconfigurationException
from fulmen.trainer.limit_views import LimitViews
from fulmen.trainer.loop_views import FitLoopView, LoopView
from fulmen.trainer.states import RunningStage, TrainerFn, TrainerState


class TrainerViews(LimitViews):
    """Base of `Trainer`: its state as properties, under Lightning's names."""

    plan: Plan
    run_id: str
    state: TrainerState
    datamodule: Any
    fit_loop: FitLoopView
    validate_loop: LoopView
    test_loop: LoopView
    predict_loop: LoopView
    _runtime: Runtime
    _control: RunControl
    _progress: Progress
    _cursor: Cursor
    _hub: MetricsHub
    session: Session | None
    _loops: dict[str, Any]
    _callbacks: CallbackList
    _module: Any
    _ckpt_path: Any

    # --- the run -----------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """Differences from Lightning that are in force."""
        return self.plan.policy

    @property
    def progress(self) -> Progress:
        """Counters of the fit."""
        return self._progress

    @property
    def control(self) -> RunControl:
        """What may change during a run."""
        return self._control

    @property
    def lightning_module(self) -> Any:
        """The module of the current or last run."""
        return self._module

    @property
    def model(self) -> Any:
        """The module as the strategy wrapped it."""
        return self._runtime.strategy.model if self._runtime.strategy.model is not None else self._module

    @property
    def current_epoch(self) -> int:
        """Number of the running epoch; after a fit, the number of finished ones."""
        return self._progress.epoch

    @property
    def global_step(self) -> int:
        """Updates so far: batches in which an optimizer stepped (`Policy.count_batches`)."""
        return self._progress.global_step

    @property
    def is_last_batch(self) -> bool:
        """Whether the running training batch is the last of its epoch."""
        return self._progress.is_last

    @property
    def should_stop(self) -> bool:
        """Whether training is to stop as soon as `min_epochs` and `min_steps` allow; settable."""
        return self._control.should_stop

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self._control.should_stop = bool(value)

    @property
    def received_sigterm(self) -> bool:
        """Whether the process got SIGTERM in the current or last call."""
        return self._control.sigterm

    @property
    def interrupted(self) -> bool:
        """Whether the last call was interrupted."""
        return self.state.status.value == "interrupted"

    @property
    def ckpt_path(self) -> Any:
        """Path of the checkpoint that the running call loads, or `None`; settable."""
        return self._ckpt_path

    @ckpt_path.setter
    def ckpt_path(self, path: Any) -> None:
        self._ckpt_path = path

    # --- stages ------------------------------------------------------------------------------------------------

    def _is(self, stage: RunningStage) -> bool:
        return self.state.stage == stage

    def _set(self, stage: RunningStage, on: bool) -> None:
        if on:
            self.state.stage = stage
        elif self._is(stage):
            self.state.stage = None

    @property
    def training(self) -> bool:
        """Whether training runs; settable."""
        return self._is(RunningStage.TRAINING)

    @training.setter
    def training(self, value: bool) -> None:
        self._set(RunningStage.TRAINING, value)

    @property
    def validating(self) -> bool:
        """Whether validation runs; settable."""
        return self._is(RunningStage.VALIDATING)

    @validating.setter
    def validating(self, value: bool) -> None:
        self._set(RunningStage.VALIDATING, value)

    @property
    def testing(self) -> bool:
        """Whether a test runs; settable."""
        return self._is(RunningStage.TESTING)

    @testing.setter
    def testing(self, value: bool) -> None:
        self._set(RunningStage.TESTING, value)

    @property
    def predicting(self) -> bool:
        """Whether prediction runs; settable."""
        return self._is(RunningStage.PREDICTING)

    @predicting.setter
    def predicting(self, value: bool) -> None:
        self._set(RunningStage.PREDICTING, value)

    @property
    def sanity_checking(self) -> bool:
        """Whether the sanity check runs; settable."""
        return self._is(RunningStage.SANITY_CHECKING)

    @sanity_checking.setter
    def sanity_checking(self, value: bool) -> None:
        self._set(RunningStage.SANITY_CHECKING, value)

    @property
    def evaluating(self) -> bool:
        """Whether a validation, test or sanity check runs."""
        stage = self.state.stage
        return stage is not None and stage.evaluating

    # --- limits and settings -----------------------------------------------------------------------------------

    @property
    def fast_dev_run(self) -> int | bool:
        """Batches of a trial run as given."""
        return self.plan.flags.fast_dev_run

    @property
    def barebones(self) -> bool:
        """Whether everything optional is off."""
        return self.plan.flags.barebones

    @property
    def max_epochs(self) -> int | None:
        """Epochs to train, -1 without limit."""
        return self._control.max_epochs

    @property
    def min_epochs(self) -> int | None:
        """Epochs before a stop has effect."""
        return self._control.min_epochs

    @property
    def max_steps(self) -> int:
        """Updates to make, -1 without limit."""
        return self._control.max_steps

    @property
    def min_steps(self) -> int | None:
        """Updates before a stop has effect."""
        return self._control.min_steps

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches per optimizer step; settable."""
        return self._control.accumulate

    @accumulate_grad_batches.setter
    def accumulate_grad_batches(self, value: int) -> None:
        check_flag("accumulate_grad_batches", value)
        self._control.accumulate = value

    @property
    def gradient_clip_val(self) -> float | None:
        """Largest gradient norm or value; settable."""
        return self._control.clip_value

    @gradient_clip_val.setter
    def gradient_clip_val(self, value: float | None) -> None:
        check_flag("gradient_clip_val", value)
        self._control.clip_value = value

    @property
    def gradient_clip_algorithm(self) -> str | None:
        """`"norm"`, `"value"` or `None` (norm); settable."""
        return self._control.clip_algorithm

    @gradient_clip_algorithm.setter
    def gradient_clip_algorithm(self, value: str | None) -> None:
        check_flag("gradient_clip_algorithm", value)
        self._control.clip_algorithm = value

    @property
    def log_every_n_steps(self) -> int:
        """Rows of step values each so many stepped batches; settable."""
        return self._control.log_every

    @log_every_n_steps.setter
    def log_every_n_steps(self, value: int) -> None:
        check_flag("log_every_n_steps", value)
        self._control.log_every = value

    @property
    def check_val_every_n_epoch(self) -> int | None:
        """Epochs from one validation to the next; settable."""
        return self._control.val_every_epochs

    @check_val_every_n_epoch.setter
    def check_val_every_n_epoch(self, value: int | None) -> None:
        check_flag("check_val_every_n_epoch", value)
        self._control.val_every_epochs = value

    @property
    def val_check_interval(self) -> Any:
        """Batches, share of an epoch, or time from one validation to the next; settable before a fit."""
        return self._control.val_interval

    @val_check_interval.setter
    def val_check_interval(self, value: Any) -> None:
        check_flag("val_check_interval", value)
        self._control.set_val_interval(value)

    @property
    def val_check_batch(self) -> int | float | None:
        """`val_check_interval` in batches; infinity for a loader without length, `None` for a time; settable."""
        return self._control.val_batch if self._control.val_seconds is None else None

    @val_check_batch.setter
    def val_check_batch(self, value: int | float) -> None:
        self._control.val_batch = value

    @property
    def num_sanity_val_steps(self) -> int | float:
        """Batches of the sanity check, infinity for all; settable."""
        return float("inf") if self._control.sanity_steps == -1 else self._control.sanity_steps

    @num_sanity_val_steps.setter
    def num_sanity_val_steps(self, value: int) -> None:
        check_flag("num_sanity_val_steps", value)
        self._control.sanity_steps = value

    @property
    def reload_dataloaders_every_n_epochs(self) -> int:
        """Epochs after which loaders are made anew; settable."""
        return self._control.reload_every

    @reload_dataloaders_every_n_epochs.setter
    def reload_dataloaders_every_n_epochs(self, value: int) -> None:
        check_flag("reload_dataloaders_every_n_epochs", value)
        self._control.reload_every = value

    # --- optimizers and loggers --------------------------------------------------------------------------------

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers of the run; settable."""
        return self._control.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Iterable[Any] | None) -> None:
        self._control.optimizers = list(optimizers or [])
        if self.session is not None:
            self.session.optimization.take_optimizers()

    @property
    def lr_scheduler_configs(self) -> list[Any]:
        """One config for each scheduler; settable."""
        return self._control.schedulers

    @lr_scheduler_configs.setter
    def lr_scheduler_configs(self, configs: Iterable[Any]) -> None:
        self._control.schedulers = list(configs)

    @property
    def loggers(self) -> list[Any]:
        """All loggers; settable."""
        return self._control.loggers

    @loggers.setter
    def loggers(self, loggers: Iterable[Any] | None) -> None:
        self._control.loggers = list(loggers or [])

    @property
    def logger(self) -> Any:
        """The first logger, or `None`; settable."""
        return self._control.loggers[0] if self._control.loggers else None

    @logger.setter
    def logger(self, logger: Any) -> None:
        self._control.loggers = [logger] if logger else []

    @property
    def log_dir(self) -> str | None:
        """Folder of the first logger, else `default_root_dir`."""
        logger = self.logger
        if logger is not None and getattr(logger, "log_dir", None):
            return str(logger.log_dir)
        if logger is not None and getattr(logger, "save_dir", None):
            return str(logger.save_dir)
        return self.default_root_dir

    @property
    def default_root_dir(self) -> str:
        """Where files go if no logger or callback says otherwise."""
        path = self.plan.folder
        return path if "://" in path else os.path.normpath(os.path.expanduser(path))

    # --- callbacks ---------------------------------------------------------------------------------------------

    @property
    def callbacks(self) -> list[Any]:
        """All callbacks in the order of their calls; settable, and may be changed in place during a run."""
        return self._callbacks

    @callbacks.setter
    def callbacks(self, callbacks: Iterable[Any]) -> None:
        self._callbacks[:] = list(callbacks)

    def _of(self, kind: type) -> list[Any]:
        return [callback for callback in self._callbacks if isinstance(callback, kind)]

    @property
    def checkpoint_callbacks(self) -> list[Any]:
        """All callbacks that save checkpoints."""
        return self._of(Checkpoint)

    @property
    def checkpoint_callback(self) -> Any:
        """The first callback that saves checkpoints, or `None`."""
        return next(iter(self.checkpoint_callbacks), None)

    @property
    def early_stopping_callbacks(self) -> list[Any]:
        """All EarlyStopping callbacks."""
        return self._of(EarlyStopping)

    @property
    def early_stopping_callback(self) -> Any:
        """The first EarlyStopping callback, or `None`."""
        return next(iter(self.early_stopping_callbacks), None)

    @property
    def progress_bar_callback(self) -> Any:
        """The progress bar, or `None`."""
        return next(iter(self._of(ProgressBar)), None)

    # --- logged values -----------------------------------------------------------------------------------------

    @property
    def callback_metrics(self) -> dict[str, Any]:
        """Logged values for monitors, as 0-dim tensors."""
        return self._hub.callback_metrics

    @property
    def logged_metrics(self) -> dict[str, Any]:
        """Logged values for loggers, as 0-dim tensors."""
        return self._hub.logged_metrics

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """Logged values for the bar, as numbers."""
        return self._hub.progress_bar_metrics

    def add_callback_metrics(self, metrics: dict[str, Any]) -> None:
        """Add values that monitors may read (learning rates, for example)."""
        self._hub.add(metrics)

    # --- hardware ----------------------------------------------------------------------------------------------

    @property
    def strategy(self) -> Any:
        """The strategy; settable between calls."""
        return self._runtime.strategy

    @strategy.setter
    def strategy(self, strategy: Any) -> None:
        if self.session is not None:
            raise MisconfigurationException("Trainer.strategy cannot be set during a run; set it before the call.")
        self._runtime.take_strategy(strategy)

    @property
    def accelerator(self) -> Any:
        """The accelerator."""
        return self._runtime.strategy.accelerator

    @property
    def precision_plugin(self) -> Any:
        """The precision object."""
        return self._runtime.precision

    @property
    def precision(self) -> str:
        """Name of the precision."""
        return str(self._runtime.precision.precision)

    @property
    def scaler(self) -> Any:
        """Loss scaler of the precision, or `None`."""
        return getattr(self._runtime.precision, "scaler", None)

    @property
    def global_rank(self) -> int:
        """Rank of this process."""
        return int(self._runtime.strategy.global_rank)

    @property
    def local_rank(self) -> int:
        """Rank of this process on its node."""
        return int(self._runtime.strategy.local_rank)

    @property
    def node_rank(self) -> int:
        """Rank of this node."""
        return int(self._runtime.strategy.node_rank)

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return int(self._runtime.strategy.world_size)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.plan.flags.num_nodes

    @property
    def device_ids(self) -> list[int]:
        """Indices of this node's devices."""
        device: torch.device = self._runtime.strategy.root_device
        return [device.index or 0]

    @property
    def num_devices(self) -> int:
        """Number of devices of this node."""
        return len(self.device_ids)

    @property
    def is_global_zero(self) -> bool:
        """Whether this is rank zero."""
        return bool(self._runtime.strategy.is_global_zero)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any] | None:
        """Arguments of a distributed sampler, `None` on one device."""
        return None

    # --- loaders -----------------------------------------------------------------------------------------------

    def _loaders(self) -> Any:
        return self.session.loaders if self.session is not None else self._loops.get("loaders")

    def _loader_value(self, name: str) -> Any:
        loaders = self._loaders()
        return loaders.values.get(name) if loaders is not None else None

    @property
    def train_dataloader(self) -> Any:
        """The training loader, the user's own object."""
        return self._loader_value(TRAIN_LOADER)

    @property
    def val_dataloaders(self) -> Any:
        """The validation loaders as given."""
        return self._loader_value(VALIDATION.loader)

    @property
    def test_dataloaders(self) -> Any:
        """The test loaders as given."""
        return self._loader_value(TEST.loader)

    @property
    def predict_dataloaders(self) -> Any:
        """The loaders of prediction as given."""
        return self._loader_value(PREDICT.loader)

    @property
    def num_training_batches(self) -> int | float:
        """Batches of a training epoch, infinity if not known."""
        loop = self._loops.get("fit")
        return loop.num_batches if loop is not None else float("inf")

    def _evaluation_batches(self, fn: str) -> list[int | float]:
        loop = self._loops.get(fn)
        return list(loop.num_batches) if loop is not None else []

    @property
    def num_val_batches(self) -> list[int | float]:
        """Validation batches per loader."""
        loop = self._loops.get("fit")
        if self.state.fn == TrainerFn.FITTING and loop is not None:
            return list(loop.validation.num_batches)
        return self._evaluation_batches("validate")

    @property
    def num_sanity_val_batches(self) -> list[int | float]:
        """Batches of the sanity check per loader."""
        return [min(self.num_sanity_val_steps, batches) for batches in self.num_val_batches]

    @property
    def num_test_batches(self) -> list[int | float]:
        """Test batches per loader."""
        return self._evaluation_batches("test")

    @property
    def num_predict_batches(self) -> list[int | float]:
        """Batches of prediction per loader."""
        return self._evaluation_batches("predict")

    @property
    def enable_validation(self) -> bool:
        """Whether a fit validates: there is a loader, a step, and no limit of 0."""
        loaders = self._loaders()
        if loaders is None or self._module is None:
            return True
        has_step = overrides(self._module, VALIDATION.step, _base())
        return bool(loaders.has(VALIDATION.loader) and has_step and self._control.limits.val != 0)

    @property
    def estimated_stepping_batches(self) -> int | float:
        """Updates that a whole fit makes: `max_steps`, or those of `max_epochs`; loads the training loader if needed.

        Raises:
            MisconfigurationException: If there is no limit that it could be computed from.
        """
        control = self._control
        if control.max_epochs == -1:
            return float("inf") if control.max_steps == -1 else control.max_steps
        loaders = self._loaders()
        if loaders is None:
            raise MisconfigurationException(
                "Trainer.estimated_stepping_batches is known inside of `fit` only, for example in "
                "`configure_optimizers`."
            )
        batches = loaders.train().num_batches
        if batches == float("inf"):
            return control.max_steps if control.max_steps != -1 else batches
        if control.max_epochs is None:
            return control.max_steps
        per_epoch = -(-int(batches) // control.accumulate)
        total = per_epoch * max(control.max_epochs, 1)
        return total if control.max_steps == -1 else min(total, control.max_steps)


def _base() -> type:
    from fulmen.core.module import LightningModule

    return LightningModule

"""`Trainer`: arguments, and the calls fit, validate, test and predict."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.timer import Timer
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import PREDICT, TEST, TRAIN_LOADER, VALIDATION
from fulmen.engine.hooks.table import CallbackList
from fulmen.engine.loops.control import Limits, Progress, RunControl, batches_of
from fulmen.engine.loops.session import Session
from fulmen.engine.results.hub import MetricsHub
from fulmen.engine.runtime.flags import TrainerFlags
from fulmen.engine.runtime.plan import make_plan
from fulmen.engine.runtime.runtime import Runtime, apply_determinism, make_runtime
from fulmen.errors import suggest, warn
from fulmen.loggers.sender import RowSender
from fulmen.trainer import checkpointing
from fulmen.trainer.checks import check_module, check_request, refuse_unknown
from fulmen.trainer.environment import defaults_from_environment
from fulmen.trainer.failure import describe_failure
from fulmen.trainer.header import announce, describe_trainer
from fulmen.trainer.loop_views import FitLoopView, LoopView
from fulmen.trainer.run import Request, run
from fulmen.trainer.run_manifest import run_manifest
from fulmen.trainer.setup import make_callbacks, make_loggers
from fulmen.trainer.states import TrainerFn, TrainerState
from fulmen.trainer.stream import check_stream, stream_predictions
from fulmen.trainer.views import TrainerViews
from fulmen.utilities.seed import current_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from fulmen.core.datamodule import LightningDataModule
    from fulmen.core.module import LightningModule
    from fulmen.engine.runtime.policy import Policy
    from fulmen.types import PathOrStr
    from fulmen.utilities.retry import RetryPolicy


class Trainer(TrainerViews):
    """Runs a `LightningModule`: loops, gradients, precision, devices, logging, checkpoints, callbacks.

    Args:
        accelerator: `"auto"`, `"cpu"`, `"gpu"`, `"cuda"`, `"mps"`, or an Accelerator.
        strategy: `"auto"`, `"single_device"`, or a Strategy.
        devices: Number, list of indices, or `"auto"`.
        num_nodes: Number of machines.
        precision: `"32-true"`, `"16-mixed"`, `"bf16-mixed"`, `"16-true"`, `"bf16-true"`, `"64-true"`.
        logger: `True` (TensorBoard if installed, else CSV), `False`, a logger or a list of them.
        callbacks: A callback or a list of them.
        fast_dev_run: `True` or a number: run so many batches of everything and write nothing.
        max_epochs: Stop after so many epochs, -1 for no limit; 1000 if no other limit is given.
        min_epochs: Train at least so many.
        max_steps: Stop after so many updates, -1 for no limit.
        min_steps: Make at least so many updates.
        max_time: Stop after this time: `"DD:HH:MM:SS"`, a timedelta, or a dict of its arguments.
        limit_train_batches: Batches per training epoch: a number (int) or a share (float).
        limit_val_batches: The same for validation.
        limit_test_batches: The same for tests.
        limit_predict_batches: The same for prediction.
        overfit_batches: Train and validate on the same few batches each epoch, without shuffling: a number (int) or
            share (float), in place of `limit_train_batches` and `limit_val_batches`.
        val_check_interval: Validate each so many batches (int), share of an epoch (float), or time, as `max_time`.
        check_val_every_n_epoch: Validate each so many epochs; `None` counts batches over epochs.
        num_sanity_val_steps: Validation batches before training, -1 for all; 2 if not given.
        log_every_n_steps: Rows of step values each so many batches; 50 if not given.
        enable_checkpointing: Write checkpoints (a `ModelCheckpoint` is added if there is none).
        enable_progress_bar: Show progress.
        enable_model_summary: Print a summary of the model.
        accumulate_grad_batches: Batches per optimizer step.
        gradient_clip_val: Clip gradients to this norm or value.
        gradient_clip_algorithm: `"norm"` or `"value"`; norm if not given.
        deterministic: Use deterministic algorithms only; `"warn"` to be told where there is none.
        benchmark: cuDNN's benchmark switch.
        inference_mode: Evaluate under `torch.inference_mode` rather than `torch.no_grad`.
        use_distributed_sampler: Put a distributed sampler in where one is needed.
        profiler: Not available in this version.
        detect_anomaly: Find the operation that made a NaN (slow).
        barebones: Everything optional off.
        plugins: Precision or CheckpointIO objects.
        sync_batchnorm: Synchronise batch norm over ranks.
        reload_dataloaders_every_n_epochs: Ask for loaders anew after so many epochs, 0 for never.
        default_root_dir: Where files go if no logger or callback says otherwise; the working folder if not given.
        enable_autolog_hparams: Send hyperparameters to the loggers at the start.
        model_registry: Not available in this version.
        policy: Differences from Lightning: `Policy.right`, `Policy.lightning`, or one of your own.
        retry: Try a fit again that failed for a reason that may pass (I/O, network, memory), from its newest
            checkpoint: a `RetryPolicy`, or a number of tries.
        accumulate_normalize: Weigh losses in a window so that its gradients are those of one big batch's mean:
            `"tokens"` (labels other than -100), `"samples"`, a `TokenCount`, or a function of the batch that returns
            what it counts.
        skip_bad_batches: Leave out batches whose loss is `None`, NaN or Inf; a number is the most of them in a row, 100
            for `True`.
        on_oom: `"split"` runs a batch that does not fit into memory again in parts, with the same gradients.

    Raises:
        MisconfigurationException: For an argument that is wrong, with its value and the fix.
        TypeError: For an unknown argument.
    """

    @defaults_from_environment
    def __init__(
        self,
        *,
        accelerator: Any = "auto",
        strategy: Any = "auto",
        devices: Any = "auto",
        num_nodes: int = 1,
        precision: Any = None,
        logger: Any = None,
        callbacks: Any = None,
        fast_dev_run: int | bool = False,
        max_epochs: int | None = None,
        min_epochs: int | None = None,
        max_steps: int = -1,
        min_steps: int | None = None,
        max_time: str | timedelta | dict[str, int] | None = None,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        overfit_batches: int | float = 0.0,
        val_check_interval: int | float | str | timedelta | dict[str, int] | None = None,
        check_val_every_n_epoch: int | None = 1,
        num_sanity_val_steps: int | None = None,
        log_every_n_steps: int | None = None,
        enable_checkpointing: bool | None = None,
        enable_progress_bar: bool | None = None,
        enable_model_summary: bool | None = None,
        accumulate_grad_batches: int = 1,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
        deterministic: Any = None,
        benchmark: bool | None = None,
        inference_mode: bool = True,
        use_distributed_sampler: bool = True,
        profiler: Any = None,
        detect_anomaly: bool = False,
        barebones: bool = False,
        plugins: Any = None,
        sync_batchnorm: bool = False,
        reload_dataloaders_every_n_epochs: int = 0,
        default_root_dir: PathOrStr | None = None,
        enable_autolog_hparams: bool = True,
        model_registry: str | None = None,
        policy: Policy | None = None,
        retry: RetryPolicy | int | None = None,
        accumulate_normalize: str | Callable[[Any], Any] | None = None,
        skip_bad_batches: bool | int = False,
        on_oom: str | None = None,
        **unknown: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "unknown", "__class__")}
        if unknown:
            names = [f"{name}={value!r}" for name, value in unknown.items()]
            hint = suggest(next(iter(unknown)), given)
            raise TypeError(f"Trainer({', '.join(names)}): there is no such argument.{hint}")
        self.plan = make_plan(TrainerFlags(**given))
        announce(self.plan)
        flags = self.plan.flags
        apply_determinism(flags.deterministic, flags.benchmark)
        self.run_id = uuid.uuid4().hex
        self.datamodule: Any = None
        self.manifest: dict[str, Any] | None = None
        self.enable_autolog_hparams = flags.enable_autolog_hparams
        self._runtime = make_runtime(self.plan)
        callbacks = make_callbacks(self.plan)
        self._control = _control(self.plan, timed=any(isinstance(callback, Timer) for callback in callbacks))
        self._progress = Progress()
        self._cursor = Cursor()
        self.state = TrainerState(self._cursor)
        self.session: Session | None = None
        self._loops: dict[str, Any] = {}
        self._module: Any = None
        self._ckpt_path: Any = None
        self._record: Any = None
        self._hub = self._make_hub()
        self._callbacks = CallbackList(callbacks)
        self._control.loggers = make_loggers(self.plan)
        self.fit_loop = FitLoopView(self)
        self.validate_loop = LoopView(self, VALIDATION.loader)
        self.test_loop = LoopView(self, TEST.loader)
        self.predict_loop = LoopView(self, PREDICT.loader)

    # --- calls -------------------------------------------------------------------------------------------------

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: PathOrStr | None = None,
        weights_only: bool | None = None,
        *,
        max_epochs: int | None = None,
        max_steps: int | None = None,
        additional_epochs: int | None = None,
        **unknown: Any,
    ) -> None:
        """Train, or train on: a later call goes on from the epoch that the one before reached.

        Args:
            model: The module.
            train_dataloaders: Training loader, or a data module.
            val_dataloaders: Validation loaders.
            datamodule: Data module that gives all loaders.
            ckpt_path: Checkpoint to go on from: a path, `"best"` or `"last"`.
            weights_only: `False` also unpickles foreign objects of the checkpoint; only for files that you trust.
            max_epochs: The Trainer's new `max_epochs`; counts the epochs of earlier calls.
            max_steps: The Trainer's new `max_steps`; counts the updates of earlier calls.
            additional_epochs: Train so many epochs from here, or from the checkpoint.
            **unknown: Refused, with a suggestion.

        Raises:
            MisconfigurationException: If something is missing or wrong, before any training; also if a second `fit`
                has nothing left to do. With the `ckpt_path` of a run that is over it is one line instead.
            TypeError: For an unknown keyword.
        """
        refuse_unknown(Trainer.fit, unknown)
        module = check_module(model, "Trainer.fit")
        train, datamodule = self._split(train_dataloaders, datamodule)
        loaders = {TRAIN_LOADER: train, VALIDATION.loader: val_dataloaders}
        limits = {"max_epochs": max_epochs, "max_steps": max_steps, "additional_epochs": additional_epochs}
        request = Request(TrainerFn.FITTING, module, datamodule, loaders, ckpt_path, weights_only, limits=limits)
        if self.plan.retry is None:
            run(self, request)
        else:
            from fulmen.trainer.retry import fit_with_retries

            fit_with_retries(self, request, self.plan.retry)

    def validate(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: PathOrStr | None = None,
        verbose: bool = True,
        datamodule: LightningDataModule | None = None,
        weights_only: bool | None = None,
        **unknown: Any,
    ) -> list[dict[str, float]]:
        """Run validation once.

        Args:
            model: The module; that of the last call if not given (its best checkpoint is then loaded).
            dataloaders: Loaders, or a data module.
            ckpt_path: Checkpoint to load: a path, `"best"` or `"last"`.
            verbose: Print the table of results.
            datamodule: Data module that gives the loaders.
            weights_only: As in `fit`.
            **unknown: Refused, with a suggestion.

        Returns:
            One dict of logged values per loader.
        """
        refuse_unknown(Trainer.validate, unknown)
        return self._evaluate(
            TrainerFn.VALIDATING, model, dataloaders, ckpt_path, verbose, datamodule, weights_only, VALIDATION.loader
        )

    def test(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: PathOrStr | None = None,
        verbose: bool = True,
        datamodule: LightningDataModule | None = None,
        weights_only: bool | None = None,
        **unknown: Any,
    ) -> list[dict[str, float]]:
        """Run the test once; arguments (other keywords are refused: ``**unknown``) and result as in `validate`."""
        refuse_unknown(Trainer.test, unknown)
        return self._evaluate(
            TrainerFn.TESTING, model, dataloaders, ckpt_path, verbose, datamodule, weights_only, TEST.loader
        )

    def predict(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        return_predictions: bool | None = None,
        ckpt_path: PathOrStr | None = None,
        weights_only: bool | None = None,
        *,
        stream: bool = False,
        **unknown: Any,
    ) -> Any:
        """Predict.

        Args:
            model: The module; that of the last call if not given (its best checkpoint is then loaded).
            dataloaders: Loaders, or a data module.
            datamodule: Data module that gives the loaders.
            return_predictions: Whether outputs are kept and returned (default `True`).
            ckpt_path: Checkpoint to load: a path, `"best"` or `"last"`.
            weights_only: As in `fit`.
            stream: Whether outputs are given one by one, as they come, and not kept. The run begins with the first
                `next` and ends with the last output, or when the generator is closed or no longer referenced; until
                then the Trainer and the module cannot be used for another run.
            **unknown: Refused, with a suggestion.

        Returns:
            Outputs of all batches on the CPU, for several loaders a list of such lists; `None` if they are not kept.
            With `stream` a generator of outputs, for several loaders of tuples `(dataloader_idx, batch_idx, output)`.
        """
        refuse_unknown(Trainer.predict, unknown)
        check_stream(stream, return_predictions)
        module, path = self._module_and_path(TrainerFn.PREDICTING, model, ckpt_path)
        given, datamodule = self._split(dataloaders, datamodule)
        datamodule = self._kept_datamodule(model, given, datamodule)
        keep = return_predictions is not False
        loaders = {PREDICT.loader: given}
        request = Request(TrainerFn.PREDICTING, module, datamodule, loaders, path, weights_only, keep=keep)
        if stream:
            check_request(self, request)
            return stream_predictions(self, request)
        return run(self, request)

    def _evaluate(
        self,
        fn: TrainerFn,
        model: Any,
        dataloaders: Any,
        ckpt_path: Any,
        verbose: bool,
        datamodule: Any,
        weights_only: bool | None,
        loader: str,
    ) -> list[dict[str, float]]:
        module, path = self._module_and_path(fn, model, ckpt_path)
        given, datamodule = self._split(dataloaders, datamodule)
        datamodule = self._kept_datamodule(model, given, datamodule)
        request = Request(fn, module, datamodule, {loader: given}, path, weights_only, verbose=verbose)
        return run(self, request)

    def _split(self, loaders: Any, datamodule: Any) -> tuple[Any, Any]:
        from fulmen.core.datamodule import LightningDataModule

        if isinstance(loaders, LightningDataModule):
            return None, loaders
        return loaders, datamodule

    def _kept_datamodule(self, model: Any, loaders: Any, datamodule: Any) -> Any:
        """Without a module the last call's data module serves too."""
        if model is None and loaders is None and datamodule is None:
            return self.datamodule
        return datamodule

    def _module_and_path(self, fn: TrainerFn, model: Any, ckpt_path: Any) -> tuple[Any, Any]:
        where = f"Trainer.{fn.value}"
        if model is not None:
            return check_module(model, where), ckpt_path
        if self._module is None:
            raise TypeError(f"{where}() without a module works after `fit` only; pass `model`.")
        if ckpt_path is None:
            best = getattr(self.checkpoint_callback, "best_model_path", "")
            if best:
                warn(
                    "W407",
                    f"{where}() without a module and without ckpt_path takes the best checkpoint of the last fit. Say "
                    "ckpt_path='best', or pass the module to use its present weights.",
                    key=fn.value,
                )
                ckpt_path = "best"
        return self._module, ckpt_path

    # --- what user code calls ----------------------------------------------------------------------------------

    def save_checkpoint(
        self, filepath: PathOrStr, weights_only: bool | None = None, storage_options: Any = None
    ) -> None:
        """Write a checkpoint.

        Args:
            filepath: Path or URL.
            weights_only: Leave out everything but weights and hyperparameters.
            storage_options: Passed to the CheckpointIO.
        """
        checkpoint = checkpointing.dump(self, weights_only=bool(weights_only))
        self.strategy.save_checkpoint(checkpoint, filepath, storage_options=storage_options)
        if self.session is None and callable(flush := getattr(self.strategy.checkpoint_io, "flush", None)):
            flush()  # no run is there that training could go on in
        self.strategy.barrier("Trainer.save_checkpoint")
        self._hub.note(
            "checkpoint",
            path=str(filepath),
            epoch=self.current_epoch,
            step=self.global_step,
            weights_only=bool(weights_only),
        )

    @contextmanager
    def init_module(self, empty_init: bool | None = None) -> Iterator[None]:
        """Context in which a module is made on its device and in its precision.

        Args:
            empty_init: Leave weights uninitialised, because a checkpoint follows.
        """
        with self.strategy.init_context(empty_init):
            yield

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print on local rank zero, without breaking a progress bar."""
        if self.local_rank == 0:
            bar = self.progress_bar_callback
            if bar is not None and self.session is not None:
                bar.print(*args, **kwargs)
            else:
                print(*args, **kwargs)

    # --- what the run guard calls ------------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """Hardware layer."""
        return self._runtime

    @property
    def cursor(self) -> Cursor:
        """Where the run is."""
        return self._cursor

    @property
    def hub(self) -> MetricsHub:
        """Logged values."""
        return self._hub

    @property
    def callback_list(self) -> CallbackList:
        """The live list of callbacks."""
        return self._callbacks

    def attach(self, module: Any, datamodule: Any) -> None:
        """Connect module and data module with this Trainer."""
        self._module = module
        self.manifest = None
        module.trainer = self
        self.datamodule = datamodule
        if datamodule is not None:
            datamodule.trainer = self

    def open_session(self, session: Session) -> None:
        """Make `session` the running one."""
        self.session = session

    def close_session(self, outer: Session | None) -> None:
        """Back to the session around this one, if any."""
        if self.session is not None:
            self.session.loaders.close()
            self.session.optimization.release()
        self.session = outer
        if outer is None:
            self._control.interrupt = None

    def keep_loop(self, name: str, loop: Any) -> None:
        """Remember a loop for the views."""
        self._loops[name] = loop

    def kept_loop(self, name: str) -> Any:
        """What `keep_loop` was given under that name, or `None`."""
        return self._loops.get(name)

    def running_loop(self) -> Any:
        """The loop of the running call, or `None`."""
        return self._loops.get(self.state.fn.value) if self.state.fn is not None else None

    def position(self) -> dict[str, Any]:
        """Where the fit is in its data, for a checkpoint; empty before the first fit."""
        loop = self._loops.get("fit")
        return loop.position() if loop is not None else {}

    def _current_loggers(self) -> list[Any]:
        return self._control.loggers

    def start_record(self, what: str) -> None:
        """Open the run record, if this run writes files."""
        writes = bool(self.loggers) or bool(self.checkpoint_callbacks)
        if not (self.policy.run_record and writes and self.is_global_zero and not self.fast_dev_run):
            return
        from pathlib import Path

        from fulmen.loggers.record import RunRecord

        if self._record is None:
            self._record = RunRecord(Path(str(self.log_dir)) / "run.jsonl", self.run_id)
            self._hub.record = self._record.write
        self._record.write(
            "start",
            call=what,
            trainer=describe_trainer(self),
            resumed_from=self.ckpt_path,
            seed=current_seed(),
            manifest=run_manifest(self),
        )

    def end_record(self, status: str, *, seconds: float, error: BaseException | None = None) -> None:
        """Say and write how the call ended, and close the record."""
        if self.session is not None and self.state.fn == TrainerFn.FITTING:
            self.session.optimization.report()
        record, self._record, self._hub.record = self._record, None, None
        if record is None:
            return
        if error is not None:
            record.write("error", **describe_failure(self, error))
        record.write("end", status=status, seconds=seconds, epoch=self.current_epoch, step=self.global_step)
        record.close()

    def _make_hub(self) -> MetricsHub:
        sender = RowSender(
            survives=self.policy.survive_logger_failure,
            folder=lambda: str(self.log_dir) if self.log_dir is not None else None,
        )
        return MetricsHub(self._cursor, self._current_loggers, sender=sender)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.update(session=None, _loops={}, _record=None, _hub=self._hub.state_dict(), _cursor=None)
        state["state"] = (self.state.fn, self.state.status)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cursor = Cursor()
        self.state = TrainerState(self._cursor)
        self.state.fn, status = state["state"]
        if status.stopped:  # a copy made inside of a run does not run
            self.state.status = status
        self._hub = self._make_hub()
        self._hub.load_state_dict(state["_hub"])

    def __repr__(self) -> str:
        return describe_trainer(self)


def _control(plan: Any, *, timed: bool) -> RunControl:
    """The changeable half of a plan; `timed`: a `Timer` ends the run."""
    flags = plan.flags
    dev = plan.fast_dev_run
    max_epochs, max_steps = flags.max_epochs, flags.max_steps
    if dev:
        max_epochs, max_steps = 1, dev
    elif max_epochs is None and max_steps == -1 and not timed:
        warn(
            "W408",
            "Trainer(max_epochs=None): no limit was given, training stops after 1000 epochs. Set max_epochs (-1 for no "
            "limit), max_steps, max_time or a Timer.",
        )
        max_epochs = 1000
    elif max_epochs is None:
        max_epochs = -1
    limits = Limits(
        *(dev or batches_of(getattr(flags, f"limit_{stage}_batches")) for stage in ("train", "val", "test", "predict"))
    )
    if flags.overfit_batches:
        limits.train = limits.val = batches_of(flags.overfit_batches)
    control = RunControl(
        accumulate=flags.accumulate_grad_batches,
        clip_value=flags.gradient_clip_val,
        clip_algorithm=flags.gradient_clip_algorithm,
        limits=limits,
        max_epochs=max_epochs,
        min_epochs=flags.min_epochs,
        max_steps=max_steps,
        min_steps=flags.min_steps,
        log_every=plan.log_every if not dev else 1,
        reload_every=flags.reload_dataloaders_every_n_epochs,
        sanity_steps=plan.sanity_steps,
        val_every_epochs=1 if dev else flags.check_val_every_n_epoch,
        fast_dev_run=bool(dev),
    )
    control.set_val_interval(plan.val_interval)
    return control

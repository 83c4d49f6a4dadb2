"""One call of fit, validate, test or predict from set-up to clean-up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.results_table import print_results_table
from fulmen.core.datahooks import DataHooks
from fulmen.core.hparams import merge_hparams
from fulmen.core.module import LightningModule
from fulmen.data.batch_size import batch_size_of, no_rows
from fulmen.data.overfit import in_order
from fulmen.engine.hooks import spec
from fulmen.engine.hooks.running import pop_module, push_module
from fulmen.engine.hooks.table import HookTable, overrides
from fulmen.engine.loops.anomaly import ANOMALY, AnomalyWatch
from fulmen.engine.loops.evaluate import EvaluationLoop
from fulmen.engine.loops.fit import FitLoop
from fulmen.engine.loops.guarded import make_room
from fulmen.engine.loops.loaders import Loaders
from fulmen.engine.loops.predict import PredictLoop
from fulmen.engine.loops.session import Session
from fulmen.engine.results.first_batch import FirstBatchResults
from fulmen.engine.results.metrics import warn_of_loose_metrics
from fulmen.engine.results.silent import SilentResults
from fulmen.engine.results.store import Results
from fulmen.engine.runtime.policy import compat_mode
from fulmen.errors import CheckpointError, warn
from fulmen.loggers.logger import Logger
from fulmen.trainer import checkpointing
from fulmen.trainer.aside import refuse_beside_stream
from fulmen.trainer.auto_resume import AUTO, find_own_checkpoint
from fulmen.trainer.checks import check_request
from fulmen.trainer.ending import call_all, raise_save_errors, teardown_calls
from fulmen.trainer.failure import end_failed_run
from fulmen.trainer.header import say_start
from fulmen.trainer.limits import KeptCounters, counters_of, train_on
from fulmen.trainer.optimizers import set_up_optimizers
from fulmen.trainer.prompts import unwatch_prompts, watch_prompts
from fulmen.trainer.requeue import requeued_checkpoint
from fulmen.trainer.run_manifest import run_manifest
from fulmen.trainer.setup import attach_model_callbacks, check_hooks
from fulmen.trainer.signals import SignalGuard
from fulmen.trainer.states import TrainerFn, TrainerStatus
from fulmen.utilities.seed import seed_calls, seed_rank

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


@dataclass
class Request:
    """What a call asks for.

    Attributes:
        fn: Which method.
        module: The module.
        datamodule: The data module, or `None`.
        loaders: Loaders given as arguments, by hook name.
        ckpt_path: Checkpoint to load.
        weights_only: As in `torch.load`.
        verbose: Whether evaluation prints its table.
        keep: Whether predictions are returned.
        limits: What `fit` was given of limits, by name; `None` for what was not.
        launched: Whether this is one of the processes that a launcher started.
    """

    fn: TrainerFn
    module: Any
    datamodule: Any = None
    loaders: dict[str, Any] = field(default_factory=dict)
    ckpt_path: Any = None
    weights_only: bool | None = None
    verbose: bool = True
    keep: bool = True
    limits: dict[str, int | None] = field(default_factory=dict)
    launched: bool = False


def run(trainer: Trainer, request: Request) -> Any:
    """Set up, run the loop, clean up, whatever happens; in the processes that a strategy's launcher starts."""
    launcher = trainer.strategy.launcher
    if launcher is not None and not request.launched:
        request.launched = True
        return launcher.launch(run, trainer, request)
    with RunGuard(trainer, request) as guard:
        loop = guard.prepare()
        result = loop.run()
        guard.finish(result)
    return guard.result


class RunGuard:
    """Set-up and clean-up around a loop; an exception passes through it with hooks, notes and closed loggers."""

    def __init__(self, trainer: Trainer, request: Request) -> None:
        self.trainer = trainer
        self.request = request
        self.stack = ExitStack()
        self.hooks: HookTable | None = None
        self.outer: Session | None = None
        self.outer_state: Any = None
        self.mark: Any = None
        self.result: Any = None
        self.set_up = False
        self.signals = SignalGuard(trainer.control, gentle_interrupt=trainer.policy.raise_keyboard_interrupt)
        self.counters = KeptCounters(trainer.progress)
        self.started = 0.0
        self.seedings = seed_calls()

    def __enter__(self) -> RunGuard:
        trainer, request = self.trainer, self.request
        refuse_beside_stream(trainer, request)
        self.outer, self.mark = trainer.session, trainer.cursor.mark()
        self.outer_state = (trainer.state.fn, trainer.state.status)
        check_request(trainer, request)
        if request.fn == TrainerFn.FITTING:
            trainer.control.should_stop = False
            trainer.control.stop_reason = None
        trainer.state.fn = request.fn
        trainer.state.status = TrainerStatus.RUNNING
        trainer.cursor.stage = "train" if request.fn == TrainerFn.FITTING else request.fn.value
        if self.outer is None:
            trainer.control.sigterm = trainer.control.requeue = False
        push_module(request.module)
        watch_prompts(trainer)
        self.started = time.time()
        return self

    @property
    def nested(self) -> bool:
        """Whether the call came out of a hook of another run, which goes on afterwards."""
        return self.outer is not None

    # --- set-up ------------------------------------------------------------------------------------------------

    def prepare(self) -> Any:
        """Everything before the loop, in the order of Lightning's hooks; returns the loop."""
        trainer, request = self.trainer, self.request
        module, fitting = request.module, request.fn == TrainerFn.FITTING
        trainer.attach(module, request.datamodule)
        trainer.runtime.connect(module)
        trainer.cursor.hook = spec.SPECS[spec.CONFIGURE_CALLBACKS]
        attach_model_callbacks(trainer, module)
        trainer.cursor.hook = None
        if request.ckpt_path == AUTO:
            request.ckpt_path = find_own_checkpoint(trainer, module)
        check_hooks(trainer, module, request.datamodule)
        trainer.strategy.setup_environment()
        loaders = self.make_loaders()
        trainer.keep_loop("loaders", loaders)
        self.prepare_data()
        self.call_setup()
        self.configure_model()
        checkpoint = self.load_checkpoint()
        if not self.nested:
            trainer.hub.reset()
            trainer.hub.axes.begin(trainer.loggers, lambda: trainer.progress.total_batches)
        session = self.make_session(loaders)
        trainer.open_session(session)
        self.set_up_module(session, fitting=fitting)
        self.warn_of_seeding()
        if fitting:
            seed_rank(trainer.global_rank)
            session.hooks.fire(spec.FIT_START)
        if trainer.enable_autolog_hparams:
            self.log_hyperparameters()
        resume = checkpointing.restore_training(trainer, checkpoint) if fitting and checkpoint is not None else None
        trainer.start_record(request.fn.value)
        self.stack.enter_context(self.signals)
        module.zero_grad()
        return self.make_loop(session, resume)

    def make_loaders(self) -> Loaders:
        """Where this run's loaders come from."""
        trainer, request = self.trainer, self.request
        precision = trainer.precision_plugin
        return Loaders(
            request.module,
            request.datamodule,
            request.loaders,
            trainer.control,
            trainer.strategy.root_device,
            None if precision.plain else precision.convert_input,
            trainer.strategy.bind_transfer,
            cursor=trainer.cursor,
            by_count=not trainer.policy.ends_with_data,
            process=trainer.runtime.process_loader,
            overfit=partial(in_order, own_batches=trainer.policy.overfit_own_batches)
            if trainer.overfit_batches and request.fn == TrainerFn.FITTING
            else None,
        )

    def prepare_data(self) -> None:
        """`prepare_data` of data module and module, once per node."""
        trainer, request = self.trainer, self.request
        for owner, base in ((request.datamodule, DataHooks), (request.module, DataHooks)):
            if owner is not None and overrides(owner, spec.PREPARE_DATA, base):
                per_node = owner.prepare_data_per_node
                if trainer.local_rank == 0 and (per_node or trainer.node_rank == 0):
                    trainer.cursor.hook = spec.SPECS[spec.PREPARE_DATA]
                    owner.prepare_data()
                    trainer.cursor.hook = None

    def call_setup(self) -> None:
        """`setup` of data module, callbacks and module."""
        trainer, request = self.trainer, self.request
        stage = request.fn.value
        for logger in trainer.loggers:
            if hasattr(logger, "experiment"):
                _ = logger.experiment  # made now, so that all have their folder and version
        trainer.cursor.hook = spec.SPECS[spec.SETUP]
        self.set_up = True
        if request.datamodule is not None and overrides(request.datamodule, spec.SETUP, DataHooks):
            request.datamodule.setup(stage)
        for callback in trainer.callbacks:
            if overrides(callback, spec.SETUP, Callback):
                callback.setup(trainer, request.module, stage)
        if overrides(request.module, spec.SETUP, LightningModule):
            request.module.setup(stage)
        trainer.cursor.hook = None

    def configure_model(self) -> None:
        """`configure_model` or its old name, inside of the precision's and strategy's context."""
        module = self.request.module
        for name in spec.CONFIGURE_MODEL:
            if overrides(module, name, LightningModule):
                self.trainer.cursor.hook = spec.SPECS[name]
                with self.trainer.strategy.init_context():
                    getattr(module, name)()
                self.trainer.cursor.hook = None

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Read the checkpoint and give weights and callback states back."""
        trainer, request = self.trainer, self.request
        given = requeued_checkpoint(trainer) or request.ckpt_path
        path = checkpointing.resolve_path(trainer, given, fn=request.fn.value)
        trainer.ckpt_path = path
        if path is None:
            return None
        checkpoint, trainer.ckpt_path = checkpointing.read(trainer, path, request.weights_only)
        # Before the weights come, or a float64 file would be cut to the float32 that the module was made in.
        trainer.precision_plugin.convert(request.module)
        checkpointing.restore_module(trainer, checkpoint)
        checkpointing.restore_callbacks(trainer, checkpoint)
        if request.fn == TrainerFn.FITTING:
            own = checkpoint.get("fulmen") or {}
            trainer.run_id = own.get("run_id") or trainer.run_id
            train_on(trainer, request, counters_of(checkpoint))
            checkpointing.rewind_loggers(trainer, checkpoint)
        elif trainer.policy.evaluates_at_checkpoint and "global_step" in checkpoint:
            self.counters.lend(counters_of(checkpoint))
        return checkpoint

    def make_session(self, loaders: Loaders) -> Session:
        """The frozen set of objects that the loops get."""
        trainer, module, policy = self.trainer, self.request.module, self.trainer.policy
        cursor = trainer.cursor
        hooks = HookTable(
            trainer,
            module,
            LightningModule,
            trainer.callback_list,
            cursor,
            monitors_last=policy.monitors_last,
            strategy_hooks=trainer.runtime.hooks,
            old_hooks=compat_mode(),
        )
        parts = (trainer.runtime, cursor, trainer.progress, trainer.control, policy)
        room = make_room(module, *parts, flags=trainer.plan.flags, note=trainer.hub.note)
        room.connect(hooks)
        self.hooks = hooks

        def store(*, training: bool) -> Results:
            size = partial(self.batch_size, training=training)
            kind = Results if policy.counts_first_batch else FirstBatchResults
            return (SilentResults if trainer.barebones else kind)(
                cursor,
                training=training,
                keep_integers=policy.keep_integers,
                batch_size=size,
                merge_loaders=policy.merge_loaders,
                module=module,
                axes=trainer.hub.axes,
            )

        return Session(
            module=module,
            model=trainer.strategy.model,
            loaders=loaders,
            runtime=trainer.runtime,
            hooks=hooks,
            cursor=cursor,
            hub=trainer.hub,
            train_results=store(training=True),
            eval_results=store(training=False),
            progress=trainer.progress,
            control=trainer.control,
            policy=policy,
            optimization=room,
            inference_mode=trainer.plan.flags.inference_mode,
        )

    def batch_size(self, batch: Any, *, training: bool) -> float:
        """Size of a batch for means: its first dimension, else the number of indices that the sampler gave."""
        size = batch_size_of(batch)
        if size is None:
            loop = self.trainer.running_loop()
            loop = loop if training else getattr(loop, "validation", loop)
            batches = getattr(loop, "batches", None)
            size = batches.indices_count() if batches is not None else None
        if size is None:
            warn(
                "W204",
                "The batch size cannot be told from the batch (its tensors have different first dimensions, or there "
                "are none): epoch means count each batch once. Give `batch_size=` to `self.log`.",
            )
            return 1
        if not size and self.trainer.policy.empty_data_raises:
            raise no_rows(self.trainer.cursor.batch_idx, self.trainer.cursor.stage)
        return size

    def set_up_module(self, session: Session, *, fitting: bool) -> None:
        """Module to its device, then `configure_optimizers`."""
        trainer, module = self.trainer, session.module
        trainer.strategy.setup_module(module)
        warn_of_loose_metrics(module)
        if fitting:
            set_up_optimizers(trainer, session)

    def log_hyperparameters(self) -> None:
        """Hyperparameters and graph to the loggers."""
        trainer, request = self.trainer, self.request
        values = merge_hparams(request.module, request.datamodule)
        for logger in trainer.loggers:
            if values is not None:
                logger.log_hyperparams(values)
            if overrides(logger, "log_manifest", Logger):
                logger.log_manifest(run_manifest(trainer))
            logger.log_graph(request.module)
            logger.save()

    def make_loop(self, session: Session, resume: Any) -> Any:
        """The loop of this call; for a fit the sanity check has run."""
        trainer, fn = self.trainer, self.request.fn
        if fn == TrainerFn.FITTING:
            if resume is None and self.outer is None:
                trainer.progress.restart_epoch()
            loop = FitLoop(session, validates=trainer.enable_validation, resume=resume)
            trainer.keep_loop(fn.value, loop)
            loop.sanity_check()
            if trainer.plan.flags.detect_anomaly:
                trainer.keep_loop(ANOMALY, self.stack.enter_context(AnomalyWatch(session)))
            say_start(trainer, session.loaders)
            return loop
        if fn == TrainerFn.PREDICTING:
            predict = PredictLoop(session, keep=self.request.keep)
            trainer.keep_loop(fn.value, predict)
            return predict
        names = spec.VALIDATION if fn == TrainerFn.VALIDATING else spec.TEST
        evaluation = EvaluationLoop(session, names, fn.value, alone=True)
        trainer.keep_loop(fn.value, evaluation)
        return evaluation

    def warn_of_seeding(self) -> None:
        """Say that a hook seeded the generators, which makes random numbers come again."""
        if seed_calls() == self.seedings:
            return
        self.seedings = seed_calls()
        warn(
            "W409",
            f"seed_everything was called while Trainer.{self.request.fn.value} ran, in a hook or a step of "
            f"{type(self.request.module).__name__} or its data: numbers that were drawn before come again. Call it "
            "once, before the Trainer is made.",
        )

    # --- end ---------------------------------------------------------------------------------------------------

    def finish(self, result: Any) -> None:
        """After the loop: clean-up, `on_fit_end`, `teardown`, the table of results."""
        trainer, request = self.trainer, self.request
        self.warn_of_seeding()
        self.stack.close()
        trainer.hub.keep()
        if request.fn == TrainerFn.FITTING and not trainer.fast_dev_run:
            trainer.hub.warn_of_silence(log_every=trainer.control.log_every, batches=trainer.progress.stepped_batches)
        trainer.cursor.results = None
        unwritten: list[CheckpointError] = []
        if not self.nested:
            try:
                trainer.strategy.teardown()
            except CheckpointError as error:  # of a file that was written beside training; raised when all is closed
                unwritten.append(error)
        assert self.hooks is not None
        if request.fn == TrainerFn.FITTING:
            self.hooks.fire(spec.FIT_END)
        trainer.cursor.hook = spec.SPECS[spec.TEARDOWN]
        call_all(self.teardown_calls())
        trainer.cursor.hook = None
        if not self.nested:
            trainer.end_record("finished", seconds=time.time() - self.started)
            sender = trainer.hub.sender
            sender.finish(trainer.loggers)
            call_all([partial(sender.call, logger, "finalize", "success") for logger in trainer.loggers])
        trainer.state.status = TrainerStatus.FINISHED
        self.result = result
        if request.fn == TrainerFn.FITTING:
            raise_save_errors(trainer, unwritten)
        elif request.fn != TrainerFn.PREDICTING and request.verbose and trainer.is_global_zero:
            names = trainer.session.eval_results.loader_names if trainer.session is not None else None
            print_results_table(result, request.fn.value, loader_names=names)

    def teardown_calls(self) -> list[Callable[[], Any]]:
        """`teardown` of data module, callbacks and module, if their `setup` was called; only once."""
        called, self.set_up = self.set_up, False
        return teardown_calls(self.trainer, self.request) if called else []

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        trainer = self.trainer
        try:
            if error is not None:
                self.fail(error)
        finally:
            self.stack.close()
            unwatch_prompts(trainer)
            pop_module()
            self.counters.back()
            trainer.close_session(self.outer)
            trainer.cursor.back(self.mark)
            if self.nested:
                trainer.state.fn, trainer.state.status = self.outer_state
        if isinstance(error, KeyboardInterrupt) and not trainer.policy.raise_keyboard_interrupt:
            sys.exit(1)

    def fail(self, error: BaseException) -> None:
        """An exception ends the run."""
        trainer = self.trainer
        end_failed_run(
            trainer,
            error,
            saves=self.request.fn == TrainerFn.FITTING and self.hooks is not None,
            seconds=time.time() - self.started,
            nested=self.nested,
            teardown=self.teardown_calls() if trainer.policy.teardown_after_exception else [],
        )

"""The fit loop. Reads like the loop you would write by hand: `FitLoop.run`, then `train_epoch`."""

from __future__ import annotations

from typing import Any

import torch

from fulmen.data.plan import LoaderPlan
from fulmen.data.sources import set_epoch
from fulmen.engine.hooks.spec import (
    SANITY_END,
    SANITY_START,
    TRAIN_END,
    TRAIN_EPOCH_END,
    TRAIN_EPOCH_START,
    TRAIN_START,
    TRAINING_STEP,
    VALIDATION,
    ZERO_GRAD_BEFORE_VALIDATION,
)
from fulmen.engine.loops.evaluate import EvaluationLoop
from fulmen.engine.loops.feed import BatchFeed
from fulmen.engine.loops.schedule import (
    can_stop,
    epoch_validates,
    set_val_batch,
    step_schedulers,
    steps_done,
    validation_due,
    why_done,
)
from fulmen.engine.loops.session import Session
from fulmen.engine.loops.signatures import check_step
from fulmen.errors import PossibleUserWarning, SIGTERMException, warn
from fulmen.utilities.rank_zero import rank_zero_info
from fulmen.utilities.seed import isolate_rng


class FitLoop:
    """Trains for epochs until a stop condition holds.

    Args:
        session: The run.
        validates: Whether there is something to validate.
        resume: Stream state of the loader to go on from (in the middle of an epoch), or `None`.
    """

    def __init__(self, session: Session, *, validates: bool, resume: Any = None) -> None:
        self.session = session
        self.validates = validates
        self.resume = resume
        self.validation = EvaluationLoop(session, VALIDATION, "validate")
        self.plan: LoaderPlan | None = None
        self.batches: Any = None
        self.num_batches: int | float = 0
        self.last_reload = 0
        self.is_last = False
        self.stop_reason = ""

    def run(self) -> None:
        """Train."""
        if not self.prepare():
            return
        hooks = self.session.hooks
        hooks.fire(TRAIN_START)
        while not self.done():
            self.train_epoch()
            self.end_epoch()
        hooks.fire(TRAIN_END)

    def done(self) -> bool:
        """Whether no further epoch runs; says why."""
        session = self.session
        reason = why_done(session.control, session.progress, self.num_batches)
        if reason is not None:
            self.stop_reason = reason
            rank_zero_info(f"`Trainer.fit` stopped: {reason}.")
        return reason is not None

    def prepare(self) -> bool:
        """Make the loaders and start the first epoch's; `False` if there is nothing to train."""
        session = self.session
        control, progress = session.control, session.progress
        if control.limits.train == 0:
            return False
        self.plan = session.loaders.train()
        self.num_batches = self.plan.num_batches
        self.last_reload = progress.epoch
        name = type(session.module).__name__
        check_step(getattr(session.module, TRAINING_STEP.name), name, TRAINING_STEP.name)
        self.batches = self.start_batches()
        if self.num_batches:
            set_val_batch(control, self.num_batches)
            self.warn_of_short_epoch()
        if self.done():
            return False
        torch.set_grad_enabled(True)
        if self.validates and epoch_validates(control, progress):
            self.validation.plans()
        if any(not m.training for m in session.module.modules()):
            self.warn_of_eval_mode()
        session.cursor.stage, session.cursor.results = "train", session.train_results
        return True

    def start_batches(self) -> Any:
        """Start the loader, after the last batch of a resumed epoch if there is one."""
        plan, progress = self.plan, self.session.progress
        assert plan is not None
        set_epoch(plan.loader, progress.epoch)
        if progress.batches and not progress.epoch_done:
            stream, self.resume = self.resume, None
            return plan.start(skip=progress.batches, stream=stream)
        return plan.start()

    def start_epoch(self) -> None:
        """Reload what is due, fire `on_train_epoch_start`, start the loader."""
        session = self.session
        progress, every = session.progress, session.control.reload_every
        if every and progress.epoch - self.last_reload >= every:
            self.plan = session.loaders.train(reload=True)
            self.num_batches = self.plan.num_batches
            self.last_reload = progress.epoch
            set_val_batch(session.control, self.num_batches)
        if self.plan is not None:
            set_epoch(self.plan.loader, progress.epoch)
        if not progress.batches:
            session.hooks.fire(TRAIN_EPOCH_START)
        if self.batches is None:
            self.batches = self.start_batches()
        if self.plan is not None:
            self.batches = session.loaders.prefetched(self.batches, self.plan)

    def train_epoch(self) -> None:
        """All batches of an epoch."""
        self.start_epoch()
        session = self.session
        hooks, cursor, progress = session.hooks, session.cursor, session.progress
        step, results, control = session.optimization, session.train_results, session.control
        batches, transfer = self.batches, session.loaders.transfer_of(self.batches)
        step.length = self.num_batches
        feed = BatchFeed(self.fetch) if step.takes_iterator else None
        for batch in batches:
            if hooks.stale():
                hooks.build()
                transfer = session.loaders.transfer_of(batches)
            batch_idx = progress.batches
            batch = transfer(batch, 0)
            cursor.batch, cursor.batch_idx = batch, batch_idx
            progress.batches += 1
            progress.total_batches += 1
            results.batch_size, results.on_step = None, True
            self.is_last = is_last = batches.is_last
            if hooks.on_train_batch_start is not None and hooks.on_train_batch_start(batch, batch_idx) == -1:
                self.is_last = True
                self.end_schedules(stepped=False)
                break
            if feed is None:
                step.run(batch, batch_idx, is_last)
            else:
                step.run(feed.offer(batch, batch_idx), batch_idx, is_last)
                is_last = self.is_last
            if control.schedulers:
                self.end_schedules(stepped=step.ends_window)
            if hooks.on_train_batch_end is not None:
                hooks.on_train_batch_end(step.outputs, batch, batch_idx)
            step.reset()
            if step.ends_window and self.row_due():
                self.write_step()
            if self.validates and validation_due(control, progress, is_last=is_last):
                self.validate(clear=step.ends_window)
            if step.ends_window:
                if control.schedulers and step.automatic:
                    step_schedulers(session, "step", plateau=True)
                progress.stepped_batches += 1
            if self.leave():
                break
        cursor.batch = None
        batches.close()
        self.batches = None

    def fetch(self) -> tuple[Any, int, int]:
        """A further batch for a step that fetches its batches itself."""
        session = self.session
        progress, batch_idx = session.progress, session.progress.batches
        batch = session.loaders.transfer_of(self.batches)(next(self.batches), 0)
        session.cursor.batch, session.cursor.batch_idx = batch, batch_idx
        progress.batches += 1
        progress.total_batches += 1
        self.is_last = self.batches.is_last
        return batch, batch_idx, 0

    def leave(self) -> bool:
        """Whether to leave the epoch before its last batch; what was asked for from outside is agreed on here.

        Raises:
            KeyboardInterrupt: After Ctrl-C.
            SIGTERMException: After SIGTERM.
        """
        control, progress = self.session.control, self.session.progress
        if control.interrupt is not None or control.should_stop:
            exchange = self.session.runtime.exchange
            decision = exchange.agree(stop=control.should_stop, error=control.interrupt is not None)
            if decision.error:
                raise control.interrupt or SIGTERMException(0)
            control.should_stop = decision.stop
        if control.max_steps != -1 and steps_done(control, progress):
            return True
        if control.should_stop:
            if can_stop(control, progress):
                return True
            warn(
                "W602",
                f"A stop was asked for, but min_epochs={control.min_epochs} or min_steps={control.min_steps} is not "
                "reached; training goes on until then.",
            )
        return False

    def end_schedules(self, *, stepped: bool) -> None:
        """Move the schedulers that watch no value, of the step and at the last batch of the epoch."""
        session = self.session
        step = session.optimization
        if not step.automatic:
            return
        skipped = not step.stepped and session.policy.skip_scheduler_on_overflow
        if stepped and not skipped:
            step_schedulers(session, "step", plateau=False)
        if self.is_last:
            step_schedulers(session, "epoch", plateau=False)

    def row_due(self) -> bool:
        """Whether the step values of this batch go to the loggers."""
        control = self.session.control
        if not control.log_every:
            return False
        return not (self.session.progress.stepped_batches + 1) % control.log_every or control.should_stop

    def write_step(self) -> None:
        """A row of step values for the loggers."""
        session = self.session
        view, progress = session.hub.keep(), session.progress
        session.hub.write(view.log, step=None, epoch=progress.epoch, default_step=progress.stepped_batches)

    def validate(self, *, clear: bool) -> None:
        """Validate inside of training.

        Args:
            clear: Free gradients first (not inside an accumulation window).
        """
        session = self.session
        session.hub.keep()
        session.cursor.stage = "validate"
        if clear:
            session.hooks.call_module(ZERO_GRAD_BEFORE_VALIDATION)
        self.validation.run()
        session.cursor.stage = "train"
        session.progress.validated_at = session.progress.total_batches

    def end_epoch(self) -> None:
        """Epoch values, end hooks, plateau schedulers, one row for the loggers."""
        session = self.session
        hub, progress, results = session.hub, session.progress, session.train_results
        hub.keep()
        results.on_step = False
        progress.epoch_done = True
        session.hooks.fire(TRAIN_EPOCH_END)
        view = hub.keep()
        if self.is_last and session.optimization.automatic:
            step_schedulers(session, "epoch", plateau=True)
        hub.write(view.log, step=None, epoch=progress.epoch, default_step=progress.stepped_batches - 1)
        results.reset()
        progress.epoch += 1
        progress.epoch_done = False
        progress.batches = 0
        progress.in_window = 0
        if session.control.interrupt is not None:
            raise session.control.interrupt

    def sanity_check(self) -> None:
        """Run a few validation batches before training, without a trace in logs and random numbers."""
        session = self.session
        steps = session.control.sanity_steps
        if not self.validates or not steps:
            return
        session.cursor.stage, session.cursor.results = "sanity_check", session.eval_results
        session.hub.reset()
        with isolate_rng():
            session.hooks.fire(SANITY_START)
            self.validation.run(most=float("inf") if steps == -1 else steps)
            session.hooks.fire(SANITY_END)
        session.eval_results.reset()
        session.hub.reset()

    def warn_of_short_epoch(self) -> None:
        """Say that no step row will be written when the epoch is shorter than the interval."""
        control = self.session.control
        if control.loggers and self.num_batches < control.log_every and not control.fast_dev_run:
            warn(
                "W203",
                f"An epoch has {self.num_batches} training batches, fewer than Trainer(log_every_n_steps="
                f"{control.log_every}): step values are seldom logged. Set log_every_n_steps to at most "
                f"{self.num_batches}.",
                category=PossibleUserWarning,
            )

    def warn_of_eval_mode(self) -> None:
        """Say which submodules are in evaluation mode when training begins."""
        names = [name or "the module itself" for name, m in self.session.module.named_modules() if not m.training]
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        warn(
            "W603",
            f"{len(names)} submodule(s) are in evaluation mode at the start of training ({shown}): their dropout and "
            "batch norm do not train. If that is not meant, call `model.train()` before `fit`.",
            category=PossibleUserWarning,
        )

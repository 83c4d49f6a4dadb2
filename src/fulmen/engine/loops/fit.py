"""The fit loop. Reads like the loop you would write by hand: `FitLoop.run`, then `train_epoch`."""

from __future__ import annotations

import time
from typing import Any

import torch

from fulmen.data.combined import AnyPlan
from fulmen.data.sources import set_epoch
from fulmen.data.trouble import explain_empty, refuse_empty
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
from fulmen.engine.loops.advice import warn_of_eval_mode, warn_of_short_epoch
from fulmen.engine.loops.evaluate import EvaluationLoop
from fulmen.engine.loops.feed import BatchFeed
from fulmen.engine.loops.lr_schedule import step_schedulers
from fulmen.engine.loops.schedule import (
    can_stop,
    epoch_validates,
    set_val_batch,
    steps_done,
    validation_due,
    why_done,
)
from fulmen.engine.loops.session import Session
from fulmen.engine.loops.signatures import check_step
from fulmen.engine.results.metrics import load_metric_states, metric_states
from fulmen.errors import DataError, SIGTERMException, warn
from fulmen.utilities.rank_zero import rank_zero_info
from fulmen.utilities.seed import isolate_rng, set_rng_states


class FitLoop:
    """Trains for epochs until a stop condition holds.

    Args:
        session: The run.
        validates: Whether there is something to validate.
        resume: What `position` returned when the checkpoint was written, with the random states of then under `"rng"`
            and the logged values under `"metrics"`; `None` for a fresh start.
    """

    def __init__(self, session: Session, *, validates: bool, resume: Any = None) -> None:
        self.session = session
        self.validates = validates
        self.resume = resume
        self.validation = EvaluationLoop(session, VALIDATION, "validate")
        self.end_validates = session.policy.end_validates
        self.plan: AnyPlan | None = None
        self.batches: Any = None
        self.num_batches: int | float = 0
        self.last_reload = 0
        self.end_position: dict[str, Any] | None = None
        self.stop_reason = ""

    def run(self) -> None:
        """Train."""
        if not self.prepare():
            if self.resume is not None and self.resume.get("rng"):
                set_rng_states(self.resume["rng"])  # of a run that is over
            return
        hooks = self.session.hooks
        unfinished = self.unfinished()
        hooks.fire(TRAIN_START)
        if self.resume is not None:
            self.go_on(self.resume)
        while unfinished or not self.done():
            unfinished = False
            self.train_epoch()
            self.end_epoch()
        hooks.fire(TRAIN_END)
        self.end_position = self.position()

    def done(self) -> bool:
        """Whether no further epoch runs; says why."""
        session = self.session
        reason = why_done(session.control, session.progress, self.num_batches)
        if reason is not None:
            self.stop_reason = reason
            rank_zero_info(
                f"`Trainer.fit` stopped: {reason}."
                if self.resume is None
                else f"The checkpoint is of a run that is over: {reason}. Nothing is trained; to train on, call "
                "`fit(..., additional_epochs=...)`, or give a higher `max_epochs` or `max_steps`."
            )
        return reason is not None

    def unfinished(self) -> bool:
        """Whether a checkpoint was written at the run's last batch, before what follows that batch was done."""
        progress = self.session.progress
        return self.end_validates and self.resume is not None and progress.closed_batches < progress.total_batches

    def prepare(self) -> bool:
        """Make the loaders and start the first epoch's; `False` if there is nothing to train."""
        session = self.session
        control, progress = session.control, session.progress
        if control.limits.train == 0:
            return False
        if self.resume is not None and progress.epoch_done:
            self.finish_resumed_epoch(self.resume)
        self.plan = session.loaders.train()
        self.num_batches = self.plan.num_batches
        if session.policy.empty_data_raises:
            refuse_empty([self.plan])
        self.last_reload = progress.epoch
        name = type(session.module).__name__
        check_step(getattr(session.module, TRAINING_STEP.name), name, TRAINING_STEP.name, indexed=True)
        if self.resume is None:
            self.batches = self.start_batches()
            if progress.epoch and not session.policy.reloads_draw_once:
                self.batches = None
        if self.num_batches:
            set_val_batch(control, self.num_batches)
            warn_of_short_epoch(control, self.plan)
        control.val_clock = time.monotonic()
        if not self.unfinished() and self.done():
            return False
        torch.set_grad_enabled(True)
        if self.validates and epoch_validates(control, progress):
            self.validation.plans()
        warn_of_eval_mode(session.module)
        session.cursor.stage, session.cursor.results = "train", session.train_results
        return True

    def finish_resumed_epoch(self, resume: dict[str, Any]) -> None:
        """The checkpoint was written in an epoch's last hook: do what was left of that epoch."""
        session = self.session
        if resume.get("metrics"):
            session.hub.load_state_dict(resume["metrics"])
        if resume.get("torchmetrics") is not None:
            load_metric_states(session.module, resume["torchmetrics"])
        session.cursor.results, session.train_results.on_step = session.train_results, False
        self.finish_epoch()
        self.resume = {**resume, "metrics": session.hub.state_dict(), "torchmetrics": None}

    def start_batches(self, stream: Any = None) -> Any:
        """Start the loader, after the last batch of a resumed epoch if there is one."""
        plan, progress = self.plan, self.session.progress
        assert plan is not None
        set_epoch(plan.loader, progress.epoch)
        return plan.start(skip=progress.batches, stream=stream)

    def position(self) -> dict[str, Any]:
        """What a checkpoint keeps to go on exactly from here, besides counters, logged values and random states."""
        if self.resume is not None:
            return {key: value for key, value in self.resume.items() if key not in ("rng", "metrics")}
        if self.end_position is not None or self.plan is None:
            return self.end_position or {}
        run = self.batches if self.batches is not None else self.plan
        return {
            "stream": run.stream_state(),
            "validation": [plan.stream_state() for plan in self.session.loaders.opened(VALIDATION)],
            "reloaded": [self.last_reload, self.validation.last_reload],
            "validated": dict(self.validation.seen),
            "validating": self.validation.position(),
            **self.since_validation(),
            "window": self.session.optimization.state_dict(),
            "torchmetrics": self.metric_states(),
        }

    def since_validation(self) -> dict[str, float]:
        """Seconds since the last validation, if validation goes by time."""
        control, progress = self.session.control, self.session.progress
        if control.val_seconds is None:
            return {}
        # In the hooks at a validation's end the clock does not run anew yet.
        ended = progress.validated_at == progress.total_batches > progress.closed_batches
        return {"since_validation": 0.0 if ended else time.monotonic() - control.val_clock}

    def metric_states(self) -> dict[str, Any]:
        """States of torchmetrics objects; those that an evaluation logs begin anew, unless it is under way."""
        session = self.session
        done = session.eval_results.metrics() if self.validation.place is None else []
        return metric_states(session.module, done)

    def go_on(self, resume: dict[str, Any]) -> None:
        """Be where the checkpoint was written: open windows, data, and last of all random numbers.

        It comes after `on_train_start`, so that nothing that is done on the way to the first batch counts.
        """
        self.resume = None
        session = self.session
        progress, plan = session.progress, self.plan
        assert plan is not None
        if resume.get("metrics"):
            session.hub.load_state_dict(resume["metrics"])
        if resume.get("torchmetrics") is not None:
            load_metric_states(session.module, resume["torchmetrics"])
        session.optimization.load_state_dict(resume.get("window") or {})
        self.last_reload, self.validation.last_reload = resume.get("reloaded") or (self.last_reload, -1)
        self.validation.seen = dict(resume.get("validated") or {})
        session.train_results.on_step = progress.batches > 0
        if progress.batches:
            session.optimization.gave_loss = True  # perhaps before the stop; only whole epochs are judged
        session.control.val_clock = time.monotonic() - float(resume.get("since_validation") or 0.0)
        stream = resume.get("stream")
        inside = stream is not None and not stream["complete"] and stream["batches"] == progress.batches
        if progress.batches or inside:
            same = stream is not None and stream["batches"] == progress.batches
            self.batches = self.start_batches(stream if same else None)
        elif stream is not None:
            # An epoch that was left early: its sampler was not asked for more either.
            plan.skip_epoch(stream if stream["complete"] else {**stream, "finished": True})
        if self.validates and resume.get("validation"):
            for validation, kept in zip(self.validation.plans(), resume["validation"], strict=False):
                if kept is not None:
                    validation.skip_epoch(kept)
        validating = resume.get("validating")
        if validating is not None:
            self.validation.resume = {**validating, "rng": resume.get("rng")}
        if resume.get("rng"):
            set_rng_states(resume["rng"])

    def relimit(self) -> None:
        """`limit_train_batches` was set during the run: the epoch ends there, or after the batch at hand."""
        control, progress, plan = self.session.control, self.session.progress, self.plan
        if plan is None:
            return
        plan.relimit(control.limits.train)
        self.num_batches = self.session.optimization.length = plan.num_batches
        if self.num_batches:
            set_val_batch(control, self.num_batches)
        else:
            control.val_batch = 1  # the epoch ends with the batch at hand
        if progress.batches and not progress.epoch_done:
            progress.is_last = progress.batches >= self.num_batches

    def start_epoch(self) -> None:
        """Reload what is due, fire `on_train_epoch_start`, start the loader."""
        session = self.session
        progress, every = session.progress, session.control.reload_every
        if every and progress.epoch - self.last_reload >= every:
            self.plan = session.loaders.train(reload=True)
            self.num_batches = self.plan.num_batches
            self.last_reload = progress.epoch
            set_val_batch(session.control, self.num_batches)
            if not session.policy.reloads_draw_once:
                self.plan.start()
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
        step, results, control, axes = session.optimization, session.train_results, session.control, session.hub.axes
        batches, transfer, builds = self.batches, session.loaders.transfer_of(self.batches), hooks.builds
        step.length = self.num_batches
        feed = BatchFeed(self.fetch, batches, self.num_batches) if step.takes_iterator else None
        if progress.closed_batches < progress.total_batches and self.close_batch():
            batches.close()  # a resumed epoch that ends with what was left to do for its last batch
        for batch in batches:
            if hooks.stale():
                hooks.build()
            if hooks.builds != builds:
                builds, transfer = hooks.builds, session.loaders.transfer_of(batches)
            batch_idx = progress.batches
            batch = transfer(batch, 0)
            cursor.batch, cursor.batch_idx = batch, batch_idx
            progress.batches += 1
            progress.total_batches += 1
            results.batch_size, results.on_step = None, True
            if axes.counting:
                axes.count(results.current_size())
            progress.is_last = batches.is_last
            if hooks.on_train_batch_start is not None and hooks.on_train_batch_start(batch, batch_idx) == -1:
                progress.is_last = True
                self.end_schedules(stepped=not session.policy.scheduler_counts_updates)
                break
            if feed is None:
                step.run(batch, batch_idx, progress.is_last)
            elif self.feed_step(feed.offer(batch, batch_idx), batch_idx):
                batch, batch_idx = cursor.batch, cursor.batch_idx  # the last one that it fetched
            else:
                break
            if control.schedulers:
                self.end_schedules(stepped=step.ends_window)
            if (end := hooks.on_train_batch_end) is not None:
                end(step.outputs if end.reads_outputs else {}, batch, batch_idx)
            step.reset()
            if self.close_batch():
                break
        cursor.batch = None
        batches.close()
        self.batches = None
        if not progress.batches and self.num_batches and session.policy.empty_data_raises and self.plan is not None:
            raise DataError(explain_empty(self.plan.loader, self.plan.name))

    def close_batch(self) -> bool:
        """What follows a batch: the loggers' row, validation, schedulers that watch a value.

        A checkpoint may be written before it or in validation; the resumed run then begins with what was left to do.

        Returns:
            Whether to leave the epoch.
        """
        session = self.session
        step, control, progress = session.optimization, session.control, session.progress
        if self.validation.resume is not None:
            self.validate(clear=False)  # goes on in the middle of it
        elif progress.validated_at != progress.total_batches:
            every = control.log_every
            if every and step.ends_window and (not (progress.stepped_batches + 1) % every or control.should_stop):
                self.write_step()
            if self.validates and validation_due(
                control, progress, is_last=progress.is_last, at_end=self.end_validates
            ):
                self.validate(clear=step.ends_window)
        if step.ends_window:
            if control.schedulers and step.automatic:
                step_schedulers(session, "step", plateau=True)
            progress.stepped_batches += 1
        progress.closed_batches = progress.total_batches
        if control.interrupt is None and not control.should_stop and control.max_steps == -1:
            return False
        return self.leave()

    def feed_step(self, feed: BatchFeed, batch_idx: int) -> bool:
        """Run a step that fetches its batches itself; `False` if it wanted more than are left, which ends the epoch."""
        session = self.session
        progress, step = session.progress, session.optimization
        try:
            step.run(feed, batch_idx, progress.is_last)
        except StopIteration:
            if not feed.ended:
                raise
            step.finish, session.cursor.hook = None, None
            if session.policy.ends_with_data:
                progress.is_last = True
                self.end_schedules(stepped=False)
                if self.validates and validation_due(
                    session.control, progress, is_last=True, at_end=self.end_validates
                ):
                    self.validate(clear=True)
            return False
        return True

    def fetch(self) -> tuple[Any, int, int]:
        """A further batch for a step that fetches its batches itself."""
        session = self.session
        progress, batch_idx = session.progress, session.progress.batches
        batch = session.loaders.transfer_of(self.batches)(next(self.batches), 0)
        session.cursor.batch, session.cursor.batch_idx = batch, batch_idx
        progress.batches += 1
        progress.total_batches += 1
        progress.is_last = self.batches.is_last
        if session.hub.axes.counting:
            session.train_results.batch_size = None
            session.hub.axes.count(session.train_results.current_size())
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
        if session.progress.is_last:
            step_schedulers(session, "epoch", plateau=False)

    def write_step(self) -> None:
        """A row of step values for the loggers."""
        session = self.session
        row, progress = session.train_results.row(), session.progress
        session.hub.write(row, step=None, epoch=progress.epoch, default_step=progress.stepped_batches)

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
        if session.progress.is_last and self.batches is not None:
            self.batches.end_workers()  # they have nothing left to do, and would keep their memory meanwhile
        self.validation.run()
        session.cursor.stage = "train"
        session.control.val_clock = time.monotonic()

    def end_epoch(self) -> None:
        """Epoch values, end hooks, plateau schedulers, one row for the loggers."""
        session = self.session
        hub, progress, results = session.hub, session.progress, session.train_results
        hub.keep()
        results.on_step = False
        progress.epoch_done = True
        progress.closed_batches = progress.total_batches
        session.hooks.fire(TRAIN_EPOCH_END)
        self.finish_epoch()

    def finish_epoch(self) -> None:
        """What follows the epoch's last hook; a checkpoint may be written before it."""
        session = self.session
        hub, progress, results = session.hub, session.progress, session.train_results
        view = hub.keep()
        if progress.is_last and session.optimization.automatic:
            step_schedulers(session, "epoch", plateau=True)
        hub.write(view.log, step=None, epoch=progress.epoch, default_step=progress.stepped_batches - 1)
        if session.optimization.gave_loss is False:
            warn(
                "W606",
                f"{type(session.module).__name__}.{TRAINING_STEP.name} returned no loss in the whole epoch: no weight "
                "was trained. Is a `return loss` missing?",
            )
        session.optimization.gave_loss = None
        hub.note("epoch", epoch=progress.epoch, step=progress.global_step, batches=progress.batches)
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

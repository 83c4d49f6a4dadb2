"""Validation and test: every batch through the step, logged values reduced per loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from fulmen.data.combined import AnyPlan
from fulmen.data.sources import set_epoch
from fulmen.data.trouble import refuse_empty
from fulmen.engine.hooks.spec import SPECS, StageNames
from fulmen.engine.loops.feed import BatchFeed
from fulmen.engine.loops.modes import ModeKeeper
from fulmen.engine.loops.schedule import epoch_validates
from fulmen.engine.loops.session import Session
from fulmen.engine.loops.signatures import check_step, step_takes, takes_iterator
from fulmen.engine.loops.step_output import warn_of_old_keys
from fulmen.engine.results.store import to_numbers
from fulmen.utilities.seed import set_rng_states

SANITY = "sanity_check"
VALIDATE = "validate"


@contextmanager
def no_gradients(*, inference: bool) -> Iterator[None]:
    """Evaluation's context: `torch.inference_mode` or `torch.no_grad`."""
    with torch.inference_mode() if inference else torch.no_grad():
        yield


@dataclass
class Place:
    """Where an evaluation is.

    Attributes:
        loader: Number of the loader.
        over: All loaders are.
        outputs: What the loaders that are over logged.
        noted: Batches of this loader after which everything was done.
    """

    loader: int = 0
    over: bool = False
    outputs: list[dict[str, Any]] = field(default_factory=list)
    noted: int = 0


class EvaluationLoop:
    """Runs one evaluation stage.

    Args:
        session: The run.
        names: The stage's hooks.
        stage: What the cursor shows (`"validate"` or `"test"`).
        alone: It is a run of its own, not part of a fit.
    """

    def __init__(self, session: Session, names: StageNames, stage: str, *, alone: bool = False) -> None:
        self.session = session
        self.names = names
        self.stage = stage
        self.alone = alone
        self.last_reload = -1
        self.num_batches: list[int | float] = []
        self.run_index = 0
        self.batches: Any = None
        self.seen: dict[int, int] = {}
        self.place: Place | None = None
        self.resume: dict[str, Any] | None = None

    def position(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of an evaluation that is under way, to go on after its last batch; else `None`."""
        place = self.place
        if place is None:
            return None
        results, stream = self.session.eval_results, self.batches.stream_state()
        return {
            "loader": place.loader,
            "over": place.over,
            "outputs": [dict(output) for output in place.outputs],
            "noted": place.noted,
            "batches": stream["batches"],
            "stream": stream,
            "results": results.state_dict(),
            "on_step": results.on_step,
        }

    def plans(self) -> list[AnyPlan]:
        """Loader plans of the stage, made anew when their time has come."""
        session = self.session
        every, epoch = session.control.reload_every, session.progress.epoch
        first = not session.loaders.opened(self.names)
        reload = bool(every) and not first and (self.last_reload < 0 or epoch - self.last_reload >= every)
        plans = session.loaders.evaluation(self.names, reload=reload)
        if first or reload:
            self.seen = {}
        # Loaders that the sanity check made in an epoch without validation do not count (as in Lightning).
        if reload or self.last_reload < 0:
            counts = session.cursor.stage != SANITY or epoch_validates(session.control, session.progress)
            self.last_reload = epoch if counts else -1
        self.num_batches = [plan.num_batches for plan in plans]
        step = self.names.step
        check_step(getattr(session.module, step), type(session.module).__name__, step, loaders=len(plans))
        return plans

    def run(self, most: int | float | None = None) -> list[dict[str, float]]:
        """Run the stage.

        Args:
            most: Upper limit of batches per loader (sanity check).

        Returns:
            One dict of logged values per loader.
        """
        session = self.session
        cursor, results = session.cursor, session.eval_results
        outer = (cursor.stage, cursor.results, cursor.batch, cursor.batch_idx, cursor.dataloader_idx)
        cursor.stage = cursor.stage if most is not None else self.stage
        cursor.results = results
        cursor.batch, cursor.batch_idx = None, -1
        # Until its first batch, an evaluation inside of an epoch shows step values only, as the epoch around it does.
        results.on_step = outer[1] is not None and outer[1].on_step
        with no_gradients(inference=session.inference_mode):
            plans = self.plans()
            if self.alone and session.policy.empty_data_raises:
                refuse_empty(plans)
            limits = [n if most is None else min(n, most) for n in self.num_batches]
            values = self._evaluate(plans, limits) if sum(limits) else []
            self.place = None  # kept after an exception: a last checkpoint may be written
        # Not after an exception: the note on it names the place.
        cursor.stage, cursor.results, cursor.batch, cursor.batch_idx, cursor.dataloader_idx = outer
        return values

    def _evaluate(self, plans: list[AnyPlan], limits: list[int | float]) -> list[dict[str, float]]:
        session, names = self.session, self.names
        hooks, results, hub = session.hooks, session.eval_results, session.hub
        results.name_loaders(self.loader_names(plans))
        resume, self.resume = self.resume, None
        begin = int(resume["loader"]) if resume is not None else 0
        first = self._start(plans[begin], limits[begin], resume)
        with ModeKeeper(session.module) as modes:
            hooks.call_module(names.model_eval)
            self.place = place = Place() if session.cursor.stage != SANITY else None
            if resume is None:
                hooks.fire(names.start)
                hooks.fire(names.epoch_start)
            outputs = [] if resume is None else list(resume["outputs"])
            for index, plan in enumerate(plans[begin:] if resume is None or not resume["over"] else (), begin):
                number = index if len(plans) > 1 else None
                if resume is not None and index == begin:
                    results.dataloader_idx = number
                run = first if index == begin else self._start(plan, limits[index])
                if place is not None:
                    place.loader, place.outputs = index, outputs
                self._loader(run, index, several=len(plans) > 1, resume=resume if index == begin else None)
                plan.close_run()
                results.dataloader_idx = number  # until here the values of the loader before could be read
                hub.keep()  # the last batch's step values stay readable after the epoch's come
                results.on_step = False
                outputs.append(dict(hub.keep().log) if session.cursor.stage != SANITY else {})
            if place is not None:
                place.over, place.outputs = True, outputs
            results.dataloader_idx = None
            hooks.fire(names.epoch_end)
            overall = dict(hub.keep().log)
            if session.cursor.stage != SANITY:
                self._write(outputs, overall)
            self.place = None  # a checkpoint of the end hook does not come back here
            hooks.fire(names.end)
            results.reset()
            if names.model_train is not None and hooks.own(names.model_train) is not None:
                hooks.call_module(names.model_train)
            else:
                modes.restore(session.module)
        found = [to_numbers({**output, **overall}) for output in outputs]
        if session.cursor.stage != SANITY:
            progress = session.progress
            hub.note(names.stage, epoch=progress.epoch, step=progress.global_step, results=found)
        return found

    def loader_names(self, plans: list[AnyPlan]) -> list[str] | None:
        """Names of several loaders that were given as a dict, if keys of logged values shall have them."""
        names = [plan.name for plan in plans]
        numbered = any(name.startswith(f"{self.names.loader}[") for name in names)
        if len(names) < 2 or numbered or len(set(names)) < len(names) or not self.session.policy.named_loaders:
            return None
        return names

    def _start(self, plan: AnyPlan, limit: int | float, resume: dict[str, Any] | None = None) -> Iterator[Any]:
        """Start a loader, or go on in the middle of it."""
        set_epoch(plan.loader, self.session.progress.epoch)
        skip = 0 if resume is None else int(resume["batches"])
        self.batches = run = plan.start(skip, None if resume is None else resume["stream"])
        if resume is not None:
            self.session.eval_results.load_state_dict(resume["results"])
            self.session.eval_results.on_step = resume["on_step"]
            if resume.get("rng"):
                set_rng_states(resume["rng"])
        return islice(run, max(0, int(limit) - skip)) if limit < plan.num_batches else run

    def _write(self, outputs: list[dict[str, Any]], overall: dict[str, Any]) -> None:
        session = self.session
        values: dict[str, Any] = {}
        for output in outputs:
            values.update(output)
        values.update(overall)
        progress = session.progress
        session.hub.write(values, step=None, epoch=progress.epoch, default_step=progress.stepped_batches)
        if session.cursor.stage == VALIDATE:
            progress.validated_at, progress.validated_step = progress.total_batches, progress.stepped_batches

    def _loader(self, run: Iterator[Any], index: int, *, several: bool, resume: dict[str, Any] | None = None) -> None:
        """All batches of one loader, or those that are left of it."""
        session, place = self.session, self.place
        done = 0 if resume is None else int(resume["batches"])
        if place is not None:
            place.noted = done if resume is None else int(resume["noted"])
            if place.noted < done:  # the file was written in the last batch's hook
                self._note(index)
        for batch_idx, output in each_batch(session, self.names, run, index, several=several, first=done):
            if not batch_idx:
                warn_of_old_keys(output, f"{type(session.module).__name__}.{self.names.step}")
            if place is not None:
                self._note(index)

    def _note(self, index: int) -> None:
        """After a batch: values that are logged per step are written at once."""
        session, results, place = self.session, self.session.eval_results, self.place
        if place is not None:
            place.noted += 1
        # The x value of step rows goes on over all evaluations of this loop.
        seen = self.seen[index] = self.seen.get(index, -1) + 1
        if results.logs_steps:
            view = session.hub.keep()
            session.hub.write(view.log, step=seen, epoch=session.progress.epoch, default_step=seen)


def each_batch(
    session: Session, names: StageNames, run: Iterator[Any], index: int, *, several: bool, first: int = 0
) -> Iterator[tuple[int, Any]]:
    """Run a stage's step and batch hooks over a loader.

    Args:
        session: The run.
        names: The stage's hooks.
        run: Its batches.
        index: Number of the loader.
        several: Whether there are others, so that steps and hooks get the number.
        first: Index of its first batch, if others are over.

    Yields:
        Index of the batch and what the step returned.
    """
    cursor, hooks, results = session.cursor, session.hooks, session.cursor.results
    context = None if session.runtime.precision.plain else session.runtime.precision.context
    spec, dataloader_idx = SPECS[names.step], index if several else None
    extra: tuple[Any, ...] = (index,) if several else ()
    transfer, (step, arity) = session.loaders.transfer(), bound_step(session, names.step)
    cursor.dataloader_idx, builds = dataloader_idx, hooks.builds
    numbered = enumerate(run, first)

    def fetch() -> tuple[Any, int, int]:
        cursor.batch_idx, further = next(numbered)
        cursor.batch = transfer(further, index)
        return cursor.batch, cursor.batch_idx, index

    feed = BatchFeed(fetch, run) if arity == 0 else None
    for batch_idx, batch in numbered:
        if hooks.stale():
            hooks.build()
        if hooks.builds != builds:
            builds, transfer = hooks.builds, session.loaders.transfer()
            step, arity = bound_step(session, names.step)
        batch = transfer(batch, index)
        cursor.batch, cursor.batch_idx = batch, batch_idx
        if results is not None:
            results.start_batch(dataloader_idx)
        if (slot := getattr(hooks, names.batch_start)) is not None:
            slot(batch, batch_idx, *extra)
            if hooks.builds != builds:
                step, arity = bound_step(session, names.step)
        cursor.hook = spec
        args = (batch, batch_idx, *extra)[:arity] if feed is None else (feed.offer(batch, batch_idx, index),)
        try:
            if context is None:
                output = step(*args)
            else:
                with context():
                    output = step(*args)
        except StopIteration:
            if feed is None or not feed.ended:
                raise
            cursor.hook = None
            break  # it wanted more batches than are left
        cursor.hook = None
        if (slot := getattr(hooks, names.batch_end)) is not None:
            slot(output, cursor.batch, cursor.batch_idx, *extra)
        yield cursor.batch_idx, output
        if session.control.interrupt is not None:
            raise session.control.interrupt
    cursor.batch = None


def bound_step(session: Session, name: str) -> tuple[Callable[..., Any], int]:
    """The step as the strategy leads to it, and how many arguments it takes: 0 if it fetches its batches itself."""
    method = getattr(session.module, name)
    arity = 3 if step_takes(method, "dataloader_idx", 3) else 2 if step_takes(method, "batch_idx", 2) else 1
    return session.runtime.strategy.bind(session.module, name), 0 if takes_iterator(method) else arity

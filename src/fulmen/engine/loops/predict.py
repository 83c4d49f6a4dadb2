"""Prediction: every batch through `predict_step`, outputs kept per loader."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fulmen.engine.hooks.spec import PREDICT, PREDICT_STEP
from fulmen.engine.loops.evaluate import no_gradients
from fulmen.engine.loops.feed import BatchFeed
from fulmen.engine.loops.modes import ModeKeeper
from fulmen.engine.loops.session import Session
from fulmen.engine.loops.signatures import check_step, step_takes, takes_iterator
from fulmen.utilities.collections import apply_to_collection


class PredictLoop:
    """Runs prediction.

    Args:
        session: The run.
        keep: Whether outputs are kept and returned.
    """

    def __init__(self, session: Session, *, keep: bool) -> None:
        self.session = session
        self.keep = keep
        self.num_batches: list[int | float] = []

    def run(self) -> list[Any] | None:
        """Predict all batches.

        Returns:
            A list of outputs on the CPU, for several loaders a list of such lists; `None` if they are not kept.
        """
        session = self.session
        cursor, hooks = session.cursor, session.hooks
        cursor.stage, cursor.results = "predict", None
        with no_gradients(inference=session.inference_mode):
            plans = session.loaders.evaluation(PREDICT)
            self.num_batches = [plan.num_batches for plan in plans]
            if not sum(self.num_batches):
                return [] if self.keep else None
            check_step(
                getattr(session.module, PREDICT.step), type(session.module).__name__, PREDICT.step, loaders=len(plans)
            )
            first = plans[0].start()
            modes = ModeKeeper(session.module)
            hooks.call_module(PREDICT.model_eval)
            hooks.fire(PREDICT.start)
            hooks.fire(PREDICT.epoch_start)
            kept: list[list[Any]] = []
            for index, plan in enumerate(plans):
                kept.append([])
                self._loader(first if index == 0 else plan.start(), index, kept[-1], several=len(plans) > 1)
                plan.close_run()
            hooks.fire(PREDICT.epoch_end)
            hooks.fire(PREDICT.end)
            modes.restore(session.module)
        if not self.keep:
            return None
        return kept if len(kept) > 1 else kept[0]

    def _loader(self, run: Any, index: int, kept: list[Any], *, several: bool) -> None:
        session, cursor = self.session, self.session.cursor
        hooks, precision = session.hooks, session.runtime.precision
        transfer = session.loaders.transfer()
        method = getattr(session.module, PREDICT.step)
        arity = 3 if step_takes(method, "dataloader_idx", 3) else 2 if step_takes(method, "batch_idx", 2) else 1
        step = session.runtime.strategy.bind(session.module, PREDICT.step)
        cursor.dataloader_idx = index if several else None
        numbered = enumerate(run)

        def fetch() -> tuple[Any, int, int]:
            batch_idx, batch = next(numbered)
            return transfer(batch, index), batch_idx, index

        feed = BatchFeed(fetch) if takes_iterator(method) else None
        for batch_idx, batch in numbered:
            if hooks.stale():
                hooks.build()
            batch = transfer(batch, index)
            cursor.batch, cursor.batch_idx = batch, batch_idx
            extra: tuple[Any, ...] = (index,) if several else ()
            if (slot := getattr(hooks, PREDICT.batch_start)) is not None:
                slot(batch, batch_idx, *extra)
            cursor.hook = PREDICT_STEP
            with precision.context():
                if feed is None:
                    output = step(*(batch, batch_idx, *extra)[:arity])
                else:
                    output = step(feed.offer(batch, batch_idx, index))
            cursor.hook = None
            output = precision.convert_output(output)
            if (slot := getattr(hooks, PREDICT.batch_end)) is not None:
                slot(output, batch, batch_idx, *extra)
            if self.keep:
                kept.append(apply_to_collection(output, Tensor, Tensor.cpu))
            if session.control.interrupt is not None:
                raise session.control.interrupt
        cursor.batch = None

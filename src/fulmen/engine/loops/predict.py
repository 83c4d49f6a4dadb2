"""Prediction: every batch through `predict_step`, outputs kept per loader."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fulmen.data.trouble import refuse_empty
from fulmen.engine.hooks.spec import PREDICT
from fulmen.engine.loops.evaluate import each_batch, no_gradients
from fulmen.engine.loops.modes import ModeKeeper
from fulmen.engine.loops.session import Session
from fulmen.engine.loops.signatures import check_step
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
        cursor.stage, cursor.results, cursor.batch = "predict", None, None
        with no_gradients(inference=session.inference_mode):
            plans = session.loaders.evaluation(PREDICT)
            self.num_batches = [plan.num_batches for plan in plans]
            if session.policy.empty_data_raises:
                refuse_empty(plans)
            if not sum(self.num_batches):
                return [] if self.keep else None
            check_step(
                getattr(session.module, PREDICT.step), type(session.module).__name__, PREDICT.step, loaders=len(plans)
            )
            first = plans[0].start()
            with ModeKeeper(session.module) as modes:
                hooks.call_module(PREDICT.model_eval)
                hooks.fire(PREDICT.start)
                hooks.fire(PREDICT.epoch_start)
                kept: list[list[Any]] = []
                for index, plan in enumerate(plans):
                    run = first if index == 0 else plan.start()
                    outputs: list[Any] = []
                    for _, output in each_batch(session, PREDICT, run, index, several=len(plans) > 1):
                        if self.keep:
                            outputs.append(apply_to_collection(output, Tensor, Tensor.cpu))
                    kept.append(outputs)
                    plan.close_run()
                hooks.fire(PREDICT.epoch_end)
                hooks.fire(PREDICT.end)
                modes.restore(session.module)
        if not self.keep:
            return None
        return kept if len(kept) > 1 else kept[0]

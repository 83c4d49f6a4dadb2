"""Prediction: every batch through `predict_step`, outputs kept per loader or given on as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from fulmen.data.sources import set_epoch
from fulmen.data.trouble import refuse_empty
from fulmen.engine.hooks.spec import PREDICT
from fulmen.engine.loops.evaluate import each_batch, no_gradients
from fulmen.engine.loops.modes import ModeKeeper
from fulmen.engine.loops.session import Session
from fulmen.engine.loops.signatures import check_step
from fulmen.utilities.collections import apply_to_collection

_OVER = object()


class PredictLoop:
    """Runs prediction.

    Args:
        session: The run.
        keep: Whether outputs are kept and returned.

    Attributes:
        stopped: Set to end the run after the batch at hand, with all hooks of an end.
    """

    def __init__(self, session: Session, *, keep: bool) -> None:
        self.session = session
        self.keep = keep
        self.num_batches: list[int | float] = []
        self.stopped = False

    def run(self) -> list[Any] | None:
        """Predict all batches.

        Returns:
            A list of outputs on the CPU, for several loaders a list of such lists; `None` if they are not kept.
        """
        kept: list[list[Any]] = []
        with no_gradients(inference=self.session.inference_mode):
            for index, _, output in self._outputs():
                if self.keep:
                    kept += [[] for _ in range(index + 1 - len(kept))]  # a loader without batches has its list too
                    kept[index].append(apply_to_collection(output, Tensor, Tensor.cpu))
        if not self.keep:
            return None
        if not kept:
            return []
        kept += [[] for _ in range(len(self.num_batches) - len(kept))]
        return kept if len(kept) > 1 else kept[0]

    def stream(self) -> Iterator[Any]:
        """Predict batch by batch; gradients are on again, and nothing is held, while the caller has an output.

        Yields:
            The output on the CPU; for several loaders `(dataloader_idx, batch_idx, output)`.
        """
        session, outputs = self.session, self._outputs()
        while True:
            with no_gradients(inference=session.inference_mode):
                item = next(outputs, _OVER)
                if item is not _OVER:
                    # A tuple that has been unpacked here would hold its output until the next one is there.
                    item = self._on_cpu(item)
            if item is _OVER:
                return
            if session.control.interrupt is not None:
                raise session.control.interrupt
            yield item
            del item

    def _on_cpu(self, item: Any) -> Any:
        index, batch_idx, output = item
        output = apply_to_collection(output, Tensor, Tensor.cpu)
        return (index, batch_idx, output) if len(self.num_batches) > 1 else output

    def _outputs(self) -> Iterator[tuple[int, int, Any]]:
        """The whole run, with its hooks.

        Yields:
            Number of the loader, index of the batch, what the step returned.
        """
        session = self.session
        cursor, hooks = session.cursor, session.hooks
        cursor.stage, cursor.results, cursor.batch = "predict", None, None
        plans = session.loaders.evaluation(PREDICT)
        self.num_batches = [plan.num_batches for plan in plans]
        if session.policy.empty_data_raises:
            refuse_empty(plans)
        if not sum(self.num_batches):
            return
        check_step(
            getattr(session.module, PREDICT.step), type(session.module).__name__, PREDICT.step, loaders=len(plans)
        )
        for plan in plans:
            set_epoch(plan.loader, session.progress.epoch)
        first = plans[0].start()
        with ModeKeeper(session.module) as modes:
            hooks.call_module(PREDICT.model_eval)
            hooks.fire(PREDICT.start)
            hooks.fire(PREDICT.epoch_start)
            for index, plan in enumerate(plans):
                run = first if index == 0 else plan.start()
                for batch_idx, output in each_batch(session, PREDICT, run, index, several=len(plans) > 1):
                    yield index, batch_idx, output
                    del output
                    if self.stopped:
                        break
                cursor.batch = None
                plan.close_run()
                if self.stopped:
                    break
            hooks.fire(PREDICT.epoch_end)
            hooks.fire(PREDICT.end)
            modes.restore(session.module)

"""`Trainer(retry=...)`: a fit that failed for a reason that may pass is tried again from its newest checkpoint."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.checkpoint_names import run_folder
from fulmen.engine.hooks.spec import STATE
from fulmen.engine.hooks.table import overrides
from fulmen.engine.storage.reader import newest_resumable
from fulmen.errors import warn
from fulmen.trainer.run import Request, run
from fulmen.utilities.rank_zero import rank_zero_info
from fulmen.utilities.retry import RetryPolicy
from fulmen.utilities.seed import collect_rng_states, set_rng_states
from fulmen.utilities.system import garbage_collection_cuda

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


def fit_with_retries(trainer: Trainer, request: Request, policy: RetryPolicy) -> None:
    """Run a fit, again and again as the policy allows.

    Raises:
        Exception: The last failure, with a note on the tries.
    """
    start = _Start(trainer, request)
    attempt, reached, given = 0, trainer.global_step, request.ckpt_path
    while True:
        try:
            run(trainer, request)
        except Exception as error:
            if trainer.session is not None or not policy.wants(error):
                raise
            attempt = 1 if trainer.global_step > reached else attempt + 1
            reached = max(reached, trainer.global_step)
            if attempt > policy.attempts:
                if policy.attempts:
                    error.add_note(f"Trainer(retry=...): given up after {policy.attempts} further tries in a row.")
                raise
            _tell(trainer, error, attempt, policy)
        else:
            return
        garbage_collection_cuda()
        policy.sleep(policy.pause(attempt))
        found = _newest(trainer)
        request.ckpt_path = found if found is not None else given
        if found is None:
            start.restore(trainer)


def _tell(trainer: Trainer, error: Exception, attempt: int, policy: RetryPolicy) -> None:
    first = (str(error).splitlines() or [""])[0][:200]
    warn(
        "W415",
        f"The fit failed at epoch {trainer.current_epoch}, step {trainer.global_step} ({type(error).__name__}: "
        f"{first}); try {attempt} of {policy.attempts} begins in {policy.pause(attempt):g} s.",
        key=f"{trainer.run_id}/{trainer.global_step}/{attempt}",
    )


def _newest(trainer: Trainer) -> str | None:
    folders = [
        str(getattr(callback, "dirpath", None) or run_folder(trainer)) for callback in trainer.checkpoint_callbacks
    ]
    found = newest_resumable(folders, {"run_id": trainer.run_id})
    where = found if found is not None else "the beginning: there is no checkpoint of this run yet"
    rank_zero_info(f"Trainer(retry=...): going on from {where}.")
    return found


class _Start:
    """What a fit began with, for a failure before the first checkpoint: weights, states, random numbers."""

    def __init__(self, trainer: Trainer, request: Request) -> None:
        self.module = request.module
        self.progress = trainer.progress.state_dict()
        self.callbacks = [
            (callback, copy.deepcopy(callback.state_dict()))
            for callback in trainer.callbacks
            if overrides(callback, STATE, Callback) and callback not in trainer.checkpoint_callbacks
        ]
        self.weights: dict[str, Any] = {
            name: value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value
            for name, value in self.module.state_dict().items()
        }
        self.rng = collect_rng_states()

    def restore(self, trainer: Trainer) -> None:
        self.module.load_state_dict(self.weights, strict=False)  # `configure_model` may have added some
        trainer.progress.load_state_dict(self.progress)
        for callback, state in self.callbacks:
            callback.load_state_dict(state)
        for logger in trainer.loggers:
            rewind = getattr(logger, "rewind", None)
            if callable(rewind):
                rewind(self.progress["stepped_batches"])
        set_rng_states(self.rng)

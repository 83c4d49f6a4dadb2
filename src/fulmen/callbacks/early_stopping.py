"""Stop training when a monitored value stops improving."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.monitors import (
    MissingMonitorError,
    MonitorWatch,
    can_validate,
    check_count,
    check_flag,
    check_mode,
    check_monitor,
    check_number,
    is_fitting,
    missing_monitor,
    policy_of,
)
from fulmen.callbacks.plain_state import PlainState
from fulmen.errors import warn
from fulmen.utilities.rank_zero import rank_prefixed_message

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer

log = logging.getLogger(__name__)


class EarlyStoppingReason(Enum):
    """Why training was stopped."""

    NOT_STOPPED = 0
    STOPPING_THRESHOLD = 1
    DIVERGENCE_THRESHOLD = 2
    PATIENCE_EXHAUSTED = 3
    NON_FINITE_METRIC = 4


class EarlyStopping(PlainState, Callback):
    """Stop training when a monitored value stops improving, reaches a goal, diverges or is not finite.

    Each check decides anew: where a stop is put off (`Trainer(min_epochs=...)`) and the value recovers meanwhile,
    training goes on (`fulmen.Policy.stops_anew`; Lightning stops at `min_epochs` all the same). Checks are skipped
    in `fast_dev_run`, in the sanity check, and in epochs without a validation if the value comes from validation.

    Args:
        monitor: Name of the logged value.
        min_delta: What counts as an improvement is a change of more than this.
        patience: Stop at this number of checks in a row without improvement. Checks are counted, not epochs.
        verbose: Say when the value improved and why training stops.
        mode: ``"min"`` or ``"max"``: which values are better.
        strict: A missing value is an error.
        check_finite: Stop when the value is NaN or infinite.
        stopping_threshold: Stop when the value is better than this.
        divergence_threshold: Stop when the value is worse than this.
        check_on_train_epoch_end: Check at the end of the training epoch (`True`) or of validation (`False`); by
            default at the former if there is one validation per epoch.
        log_rank_zero_only: What `verbose` says comes from rank zero only.

    Attributes:
        wait_count: Checks in a row without improvement.
        stopped_epoch: Epoch in which training was stopped; 0 if it was not.
        best_score: Best value so far, 0-dim.
        stopping_reason: Why training was stopped.
        stopping_reason_message: The same in words.

    Raises:
        ArgumentTypeError: If an argument has a wrong type.
        ArgumentValueError: If an argument has a wrong value.
    """

    mode_dict: ClassVar[dict[str, Callable[..., Tensor]]] = {"min": torch.lt, "max": torch.gt}
    _helpers: ClassVar[dict[str, type]] = {"_watch": MonitorWatch}
    order_dict: ClassVar[dict[str, str]] = {"min": "<", "max": ">"}
    decides_last: ClassVar[bool] = True

    def __init__(
        self,
        monitor: str,
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: str = "min",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        check_monitor(owner, monitor, optional=False)
        check_mode(owner, mode)
        check_number(owner, "min_delta", min_delta)
        check_count(owner, "patience", patience, least=0)
        check_number(owner, "stopping_threshold", stopping_threshold, optional=True)
        check_number(owner, "divergence_threshold", divergence_threshold, optional=True)
        check_flag(owner, "check_on_train_epoch_end", check_on_train_epoch_end)
        self.monitor = monitor
        # Signed, so that `value - min_delta` can be compared with the best score in both modes.
        self.min_delta = min_delta if mode == "max" else -min_delta
        self.patience = patience
        self.verbose = verbose
        self.mode = mode
        self.strict = strict
        self.check_finite = check_finite
        self.stopping_threshold = stopping_threshold
        self.divergence_threshold = divergence_threshold
        self.log_rank_zero_only = log_rank_zero_only
        self.wait_count = 0
        self.stopped_epoch = 0
        self.best_score = torch.tensor(torch.inf if mode == "min" else -torch.inf)
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        self.stopping_reason_message: str | None = None
        self.votes_to_stop = False
        self._check_on_train_epoch_end = check_on_train_epoch_end
        self._at_epoch_end = bool(check_on_train_epoch_end)
        self._stopping_before = False
        self._watch = MonitorWatch(monitor)
        self._loaded: dict[str, Any] = {}

    @property
    @override
    def state_key(self) -> str:
        return self._generate_state_key(monitor=self.monitor, mode=self.mode)

    @property
    def monitor_op(self) -> Callable[..., Tensor]:
        """The comparison that says whether one value is better than another."""
        return self.mode_dict[self.mode]

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Settle when checks are made."""
        chosen = self._check_on_train_epoch_end
        if chosen is None:
            # With several validations per epoch, or epochs without one, the value is of a validation's end.
            chosen = trainer.val_check_interval == 1.0 and trainer.check_val_every_n_epoch == 1
        self._at_epoch_end = chosen

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "wait_count": self.wait_count,
            "stopped_epoch": self.stopped_epoch,
            "best_score": self.best_score,
            "patience": self.patience,
            "stopping_reason": self.stopping_reason.value,
            "stopping_reason_message": self.stopping_reason_message,
            "fulmen": self._loaded or self._watch.state(),
        }

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.wait_count = state_dict["wait_count"]
        self.stopped_epoch = state_dict["stopped_epoch"]
        self.best_score = torch.as_tensor(state_dict["best_score"])
        self.patience = state_dict["patience"]
        self.stopping_reason = EarlyStoppingReason(state_dict.get("stopping_reason", 0))
        self.stopping_reason_message = state_dict.get("stopping_reason_message")
        self._loaded = dict(state_dict.get("fulmen") or {})

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.votes_to_stop = False
        self._watch.fit_begins()
        self._watch.take_back(self._loaded)
        self._loaded = {}

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._watch.validation_begins(trainer)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._watch.validation_ends(trainer)
        if not self._at_epoch_end and not self._should_skip_check(trainer):
            self._run_early_stopping_check(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._at_epoch_end and not self._should_skip_check(trainer) and not self._must_wait(trainer):
            self._run_early_stopping_check(trainer)
        self._watch.epoch_ends()

    def _should_skip_check(self, trainer: Trainer) -> bool:
        return not is_fitting(trainer)

    def _must_wait(self, trainer: Trainer) -> bool:
        """Whether the value is one of an earlier epoch's validation, or may still come with the first one."""
        if not policy_of(trainer).monitors_wait:
            return False
        to_come = can_validate(trainer) and not self._watch.validated
        return self._watch.stale(trainer) or (to_come and self.monitor not in trainer.callback_metrics)

    def _validate_condition_metric(self, logs: dict[str, Tensor]) -> bool:
        if self.monitor in logs:
            return True
        message = missing_monitor(type(self).__name__, self.monitor, logs)
        if self.strict:
            raise MissingMonitorError(message)
        if self.verbose:
            warn("W115", message, key=self.monitor, category=RuntimeWarning)
        return False

    def _run_early_stopping_check(self, trainer: Trainer) -> None:
        """Look at the monitored value and stop training, or withdraw an earlier stop."""
        logs = trainer.callback_metrics
        if trainer.fast_dev_run or not self._validate_condition_metric(logs):
            return
        should_stop, reason = self._evaluate_stopping_criteria(torch.as_tensor(logs[self.monitor]).squeeze())
        # One rank is enough to stop all.
        should_stop = bool(trainer.strategy.reduce_boolean_decision(should_stop, all=False))
        if should_stop:
            self._vote(trainer, reason)
        elif self.votes_to_stop and policy_of(trainer).stops_anew:
            self._withdraw(trainer)
        if reason and self.verbose:
            self._log_info(trainer, reason, self.log_rank_zero_only)

    def _others_vote(self, trainer: Trainer) -> bool:
        others = getattr(trainer, "early_stopping_callbacks", ())
        return any(other.votes_to_stop for other in others if other is not self)

    def _vote(self, trainer: Trainer, reason: str | None) -> None:
        if not self.votes_to_stop:
            self._stopping_before = bool(trainer.should_stop) and not self._others_vote(trainer)
        self.votes_to_stop = True
        self.stopped_epoch = trainer.current_epoch
        self.stopping_reason_message = reason
        trainer.should_stop = True
        control = getattr(trainer, "control", None)  # a stand-in may have none
        if control is not None:
            control.stop_reason = f"EarlyStopping: {reason}"

    def _withdraw(self, trainer: Trainer) -> None:
        self.votes_to_stop = False
        self.stopped_epoch = 0
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        self.stopping_reason_message = None
        if not self._stopping_before and not self._others_vote(trainer):
            trainer.should_stop = False
            control = getattr(trainer, "control", None)
            if control is not None:
                control.stop_reason = None

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        """Judge one value; returns whether to stop, and what there is to say."""
        name, order = self.monitor, self.order_dict[self.mode]
        best = self.best_score.to(current.device)
        if self.check_finite and not torch.isfinite(current):
            self.stopping_reason = EarlyStoppingReason.NON_FINITE_METRIC
            return True, f"Stopping: {name} = {current} is not finite. The best value was {best:.3f}."
        if self.stopping_threshold is not None and self.monitor_op(current, self.stopping_threshold):
            self.stopping_reason = EarlyStoppingReason.STOPPING_THRESHOLD
            return True, f"Stopping: the goal is reached, {name} = {current} {order} {self.stopping_threshold}."
        if self.divergence_threshold is not None and self.monitor_op(-current, -self.divergence_threshold):
            self.stopping_reason = EarlyStoppingReason.DIVERGENCE_THRESHOLD
            worse = self.order_dict["max" if self.mode == "min" else "min"]
            return True, f"Stopping: the value diverged, {name} = {current} {worse} {self.divergence_threshold}."
        if self.monitor_op(current - self.min_delta, best):
            message = self._improvement_message(current)
            self.best_score = current.detach().clone()
            self.wait_count = 0
            return False, message
        self.wait_count += 1
        if self.wait_count < self.patience:
            return False, None
        self.stopping_reason = EarlyStoppingReason.PATIENCE_EXHAUSTED
        return True, (
            f"Stopping: {name} did not improve in the last {self.wait_count} checks. The best value was {best:.3f}."
        )

    def _improvement_message(self, current: Tensor) -> str:
        best = self.best_score.to(current.device)
        if not torch.isfinite(best):
            return f"{self.monitor} improved. New best score: {current:.3f}"
        return (
            f"{self.monitor} improved by {abs(best - current):.3f} (min_delta = {abs(self.min_delta)})."
            f" New best score: {current:.3f}"
        )

    @staticmethod
    def _log_info(trainer: Trainer, message: str, log_rank_zero_only: bool) -> None:
        rank = trainer.global_rank if trainer.world_size > 1 else None
        if rank is None or rank == 0 or not log_rank_zero_only:
            log.info(rank_prefixed_message(message, rank))

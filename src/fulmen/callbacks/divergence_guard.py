"""Notice a loss that is not finite or leaps, and keep it from the weights."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from fulmen.callbacks.callback import Callback
from fulmen.engine.hooks.table import ignores_outputs
from fulmen.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MisconfigurationException,
    StepOutputError,
    suggest,
    warn,
)

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer

ACTIONS = ("skip", "lower", "rollback", "stop")


class DivergenceGuard(Callback):
    """Keep an update from the weights whose loss is NaN or infinite, or more than `ratio` times the usual one.

    The usual loss is the median of the last `window` good updates. What is done beyond dropping the update is the
    `action`: nothing (``"skip"``), a lower learning rate (``"lower"``), a lower rate and the weights, optimizers and
    schedulers of the last good copy (``"rollback"``), or the end of training (``"stop"``). Data go on with the next
    batch in any case, so that a bad one is not met again. Each event is a warning, and an entry of the run record.

    It reads the loss once per update, which waits for an accelerator. In automatic optimization only.

    Args:
        action: What to do.
        ratio: Loss above this multiple of the usual one is a spike; `None` looks for NaN and infinities only.
        window: Good updates that the usual loss is taken from.
        warmup: Updates of a fit before spikes are looked for.
        factor: By which ``"lower"`` and ``"rollback"`` multiply the rates of all groups.
        every: Updates between two copies for ``"rollback"``, held in host memory.
        limit: Events in a row (without a good update in between) that end the fit with an error.

    Attributes:
        events: Number of events so far.

    Raises:
        ArgumentTypeError: For a wrong type.
        ArgumentValueError: For a value out of range.
    """

    def __init__(
        self,
        action: Literal["skip", "lower", "rollback", "stop"] = "skip",
        ratio: float | None = 10.0,
        window: int = 20,
        warmup: int = 10,
        factor: float = 0.5,
        every: int = 100,
        limit: int = 10,
    ) -> None:
        super().__init__()
        if action not in ACTIONS:
            raise ArgumentValueError(
                f"DivergenceGuard(action={action!r}): must be one of {', '.join(map(repr, ACTIONS))}."
                f"{suggest(str(action), ACTIONS)}"
            )
        numbers = (("window", window, 1), ("warmup", warmup, 0), ("every", every, 1), ("limit", limit, 1))
        for name, value, least in numbers:
            number: Any = value
            if isinstance(number, bool) or not isinstance(number, int):
                raise ArgumentTypeError(f"DivergenceGuard({name}={number!r}): must be an int of at least {least}.")
            if number < least:
                raise ArgumentValueError(f"DivergenceGuard({name}={number!r}): must be an int of at least {least}.")
        if ratio is not None and not ratio > 1:
            raise ArgumentValueError(f"DivergenceGuard(ratio={ratio!r}): must be more than 1, or None.")
        if not 0 < factor <= 1:
            raise ArgumentValueError(f"DivergenceGuard(factor={factor!r}): must be more than 0 and at most 1.")
        self.action = action
        self.ratio = ratio
        self.warmup = warmup
        self.factor = factor
        self.every = every
        self.limit = limit
        self.events = 0
        self._good: deque[float] = deque(maxlen=window)
        self._updates = 0
        self._in_a_row = 0
        self._losses: list[Tensor] = []
        self._bad: float | None = None
        self._judged = False
        self._copy: _Copy | None = None

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check that the fit is of the kind that this callback guards.

        Raises:
            MisconfigurationException: In manual optimization.
        """
        if stage == "fit" and not pl_module.automatic_optimization:
            raise MisconfigurationException(
                f"DivergenceGuard: {type(pl_module).__name__} steps its optimizers itself (automatic_optimization = "
                "False), so that no update can be kept from the weights; leave the callback out."
            )

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._losses, self._copy = [], None
        if self.action == "rollback":
            self._copy = _Copy(trainer, pl_module)

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        self._losses.append(loss.detach())
        self._judged = False

    @override
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Judge the update by its loss, and drop it if it is bad."""
        if not self._judged:  # once for all optimizers of a batch
            self._judge(trainer)
        if self._bad is not None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None  # torch's optimizers pass over parameters without gradient

    def _judge(self, trainer: Trainer) -> None:
        losses, self._losses, self._judged = self._losses, [], True
        self._bad = None
        if not losses:
            return
        value = float(torch.stack([loss.reshape(()).float() for loss in losses]).sum()) / _scale_of(trainer)
        usual = statistics.median(self._good) if self._good else None
        warm = self.ratio is not None and usual is not None and self._updates >= self.warmup
        spike = warm and value > (self.ratio or 0.0) * abs(usual or 0.0)
        self._updates += 1
        if math.isfinite(value) and not spike:
            self._in_a_row = 0
            self._good.append(value)
        else:
            self._bad = value

    @override
    @ignores_outputs
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After a bad update do what `action` says; after good ones renew the copy from time to time.

        Raises:
            StepOutputError: After `limit` events in a row.
        """
        if not self._judged:
            return
        self._judged = False
        if self._bad is None:
            if self._copy is not None and self._updates - self._copy.updates >= self.every:
                self._copy = _Copy(trainer, pl_module, self._updates)
            return
        value, self._bad = self._bad, None
        self.events += 1
        self._in_a_row += 1
        self._tell(trainer, value, batch_idx)
        if self._in_a_row >= self.limit:
            raise StepOutputError(
                f"DivergenceGuard: {self.limit} updates in a row were bad (the last loss was {value:g}); training does "
                "not recover. Lower the learning rate, or look at the data of the last batches."
            )
        if self._copy is not None:
            self._copy.restore(trainer, pl_module)
        if self.action in ("lower", "rollback"):
            self._lower(trainer)
        elif self.action == "stop":
            trainer.should_stop = True

    def _lower(self, trainer: Trainer) -> None:
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * self.factor
        for config in trainer.lr_scheduler_configs:
            # Schedulers compute rates from these, or the next step would put the old rate back.
            base = getattr(config.scheduler, "base_lrs", None)
            if isinstance(base, list):
                config.scheduler.base_lrs = [rate * self.factor for rate in base]

    def _tell(self, trainer: Trainer, value: float, batch_idx: int) -> None:
        usual = statistics.median(self._good) if self._good else None
        against = f" (usually {usual:g})" if usual is not None else ""
        done = {
            "skip": "The update was dropped.",
            "lower": f"The update was dropped, learning rates are multiplied by {self.factor:g}.",
            "rollback": f"Weights and optimizers are those of the last good copy, rates multiplied by {self.factor:g}.",
            "stop": "The update was dropped, and training ends.",
        }[self.action]
        trainer.hub.note(
            "divergence",
            action=self.action,
            loss=value,
            usual=usual,
            epoch=trainer.current_epoch,
            batch=batch_idx,
            step=trainer.global_step,
        )
        warn(
            "W120",
            f"The loss was {value:g}{against} in epoch {trainer.current_epoch}, batch {batch_idx}. {done}",
            key=f"{id(self)}/{self.events}",
        )

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"good": list(self._good), "updates": self._updates, "in_a_row": self._in_a_row, "events": self.events}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._good.clear()
        self._good.extend(state_dict["good"])
        self._updates, self._in_a_row = state_dict["updates"], state_dict["in_a_row"]
        self.events = state_dict["events"]


class _Copy:
    """Weights, optimizers and schedulers as they were, in host memory."""

    def __init__(self, trainer: Trainer, module: LightningModule, updates: int = 0) -> None:
        self.updates = updates
        self.weights = _to_host(module.state_dict())
        self.optimizers = [_to_host(optimizer.state_dict()) for optimizer in trainer.optimizers]

    def restore(self, trainer: Trainer, module: LightningModule) -> None:
        """Give everything back; the copy stays as it is, for the next time."""
        module.load_state_dict(self.weights)
        for optimizer, state in zip(trainer.optimizers, self.optimizers, strict=True):
            rates = [group["lr"] for group in optimizer.param_groups]
            trainer.strategy.load_optimizer_state(optimizer, _to_host(state))  # torch keeps what it is given
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate  # schedulers have gone on


def _to_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _to_host(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_to_host, value))
    return value


def _scale_of(trainer: Trainer) -> float:
    """What the loss is multiplied with for the backward pass."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 1.0

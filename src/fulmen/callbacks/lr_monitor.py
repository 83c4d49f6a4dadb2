"""Log learning rates, and on request momentum and weight decay, of all optimizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch

from fulmen.callbacks.callback import Callback
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException, suggest, warn

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class LearningRateMonitor(Callback):
    """Writes the learning rate of each parameter group to all loggers of the trainer.

    A rate is called ``lr-SGD``, or what the scheduler's config gives as ``name``; the second optimizer of a class is
    ``lr-SGD-1``; several parameter groups are ``lr-SGD/pg1``, ``lr-SGD/pg2``, or end in the group's own ``name``.
    Momentum and weight decay end in ``-momentum`` and ``-weight_decay``. The values also enter
    `trainer.callback_metrics`.

    Args:
        logging_interval: ``"step"``, ``"epoch"``, or `None` for each scheduler's own interval; optimizers without a
            scheduler are then logged at both. Steps are logged every `log_every_n_steps`.
        log_momentum: Also log ``momentum``, or the first of ``betas``.
        log_weight_decay: Also log ``weight_decay``.

    Attributes:
        lrs: All rates seen so far by name.
        last_momentum_values: The last momentum by name.
        last_weight_decay_values: The last weight decay by name.

    Raises:
        ArgumentValueError: `logging_interval` is none of these.
        ArgumentTypeError: A flag that is no bool.
        MisconfigurationException: When training starts: the trainer has no logger, or two groups of an optimizer have
            the same ``name``.
    """

    def __init__(
        self,
        logging_interval: Literal["step", "epoch"] | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        if logging_interval not in (None, "step", "epoch"):
            raise ArgumentValueError(
                f"LearningRateMonitor(logging_interval={logging_interval!r}): give 'step', 'epoch' or None."
                f"{suggest(str(logging_interval), ('step', 'epoch'))}"
            )
        for name, flag in (("log_momentum", log_momentum), ("log_weight_decay", log_weight_decay)):
            if not isinstance(flag, bool):
                raise ArgumentTypeError(f"LearningRateMonitor({name}={flag!r}): give True or False.")
        self.logging_interval = logging_interval
        self.log_momentum = log_momentum
        self.log_weight_decay = log_weight_decay
        self.lrs: dict[str, list[float]] = {}
        self.last_momentum_values: dict[str, float | None] = {}
        self.last_weight_decay_values: dict[str, float | None] = {}
        self._written: tuple[int, dict[str, float]] | None = None
        self._counters: tuple[Any, Any] | None = None
        self._found: tuple[Any, list[tuple[str | None, Optimizer, list[str]]]] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the names and check that there is a logger."""
        if not trainer.loggers:
            raise MisconfigurationException(
                "LearningRateMonitor has nowhere to write to: the Trainer has no logger. Give it one "
                "(`Trainer(logger=True)`), or take the callback out."
            )
        names = [name for _, _, names in self._optimizers(trainer) for name in names]
        self.lrs = {name: [] for name in names}
        self.last_momentum_values = {f"{name}-momentum": None for name in names}
        self.last_weight_decay_values = {f"{name}-weight_decay": None for name in names}
        self._written = self._found = None
        control, progress = getattr(trainer, "control", None), getattr(trainer, "progress", None)
        self._counters = (control, progress) if control is not None and progress is not None else None
        if self.log_momentum:
            self._warn_without_momentum(trainer)
        if progress is not None and progress.in_window and self.logging_interval != "epoch":
            # Resumed inside of an accumulation window, whose row is written already.
            stats = self._stats(trainer, None if self.logging_interval else "step")
            self._written = (progress.stepped_batches, stats)
            self.lrs = {name: [] for name in self.lrs}

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let go of the optimizers and counters."""
        self._found = self._counters = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_found": None, "_counters": None}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Log by step."""
        if self.logging_interval == "epoch":
            return
        if self._counters is not None:  # read past the Trainer's views: this is done for every batch
            control, progress = self._counters
            every, step, stops = control.log_every, progress.stepped_batches, control.should_stop
        else:
            every, step = trainer.log_every_n_steps, trainer.fit_loop.batches_that_stepped
            stops = trainer.should_stop
        # The step that now begins has the number step + 1. The last one before a stop is logged too.
        if every and ((step + 1) % every == 0 or stops):
            self._log(trainer, step, None if self.logging_interval else "step")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log by epoch."""
        if self.logging_interval != "step":
            step = trainer.fit_loop.batches_that_stepped
            self._log(trainer, step, None if self.logging_interval else "epoch")

    def _log(self, trainer: Trainer, step: int, interval: str | None) -> None:
        stats = self._stats(trainer, interval)
        if not stats:
            return
        trainer.add_callback_metrics({name: torch.tensor(value) for name, value in stats.items()})
        # The batches of one accumulation window are one step; the same row is not written again for each of them.
        if self._written != (step, stats):
            self._written = (step, stats)
            for logger in trainer.loggers:
                logger.log_metrics(dict(stats), step=step)

    def _stats(self, trainer: Trainer, interval: str | None) -> dict[str, float]:
        stats: dict[str, float] = {}
        for own_interval, optimizer, names in self._known(trainer):
            if interval is None or own_interval is None or own_interval == interval:
                self._read(optimizer, names, stats)
        return stats

    def _read(self, optimizer: Optimizer, names: list[str], stats: dict[str, float]) -> None:
        for group, name in zip(optimizer.param_groups, names, strict=True):
            stats[name] = _number(group["lr"])
            self.lrs.setdefault(name, []).append(stats[name])
            if self.log_momentum:
                value = group["betas"][0] if "betas" in group else group.get("momentum", 0.0)
                key = f"{name}-momentum"
                stats[key] = self.last_momentum_values[key] = _number(value)
            if self.log_weight_decay:
                key = f"{name}-weight_decay"
                stats[key] = self.last_weight_decay_values[key] = _number(group.get("weight_decay", 0.0))

    def _rename(self, names: list[str]) -> None:
        """An optimizer that gets a second group becomes ``lr-X/pg1``: what was seen as ``lr-X`` is the same group."""
        for name in names:
            if name in self.lrs:
                continue
            old = name.removesuffix("/pg1")
            self.lrs[name] = self.lrs.pop(old) if old != name and old in self.lrs else []

    def _known(self, trainer: Trainer) -> list[tuple[str | None, Optimizer, list[str]]]:
        """What `_optimizers` yields, looked up again when optimizers, schedulers or groups have changed."""
        wrapped, configs = trainer.optimizers, trainer.lr_scheduler_configs
        state = (
            *((id(o), *(group.get("name") for group in o.param_groups)) for o in wrapped),
            *((id(c.scheduler), c.interval, c.name) for c in configs),
        )
        if self._found is None or self._found[0] != state:
            self._found = (state, list(self._optimizers(trainer)))
            for _, _, names in self._found[1]:
                self._rename(names)
        return self._found[1]

    def _optimizers(self, trainer: Trainer) -> Iterator[tuple[str | None, Optimizer, list[str]]]:
        """Yield the scheduler's interval (`None` without one), the optimizer, and a name for each of its groups."""
        of_type: Counter[type] = Counter()
        seen: set[int] = set()
        for config in trainer.lr_scheduler_configs:
            optimizer = config.scheduler.optimizer
            seen.add(id(optimizer))
            yield config.interval, optimizer, _group_names(optimizer, config.name, of_type)
        for wrapped in trainer.optimizers:
            optimizer = getattr(wrapped, "optimizer", wrapped)  # some strategies wrap it
            if id(optimizer) not in seen:
                seen.add(id(optimizer))
                yield None, optimizer, _group_names(optimizer, None, of_type)

    def _warn_without_momentum(self, trainer: Trainer) -> None:
        without = sorted(
            {
                type(optimizer).__name__
                for _, optimizer, _ in self._optimizers(trainer)
                if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults
            }
        )
        if without:
            warn(
                "W061",
                f"LearningRateMonitor(log_momentum=True): {', '.join(without)} has no momentum; 0 is logged for it.",
                key=",".join(without),
                category=RuntimeWarning,
            )


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) else float(value)  # a tensor in capturable optimizers


def _group_names(optimizer: Optimizer, given: str | None, of_type: Counter[type]) -> list[str]:
    kind = type(optimizer)
    if given is None:
        of_type[kind] += 1
        given = f"lr-{kind.__name__}"
    # A scheduler's own name counts among its class's too, as in Lightning: only automatic names add to the count.
    name = f"{given}-{of_type[kind] - 1}" if of_type[kind] > 1 else given
    groups = optimizer.param_groups
    own = [group.get("name") for group in groups]
    parts = [part or f"pg{i}" for i, part in enumerate(own, start=1)]
    double = sorted({part for part in parts if parts.count(part) > 1})
    if double:
        raise MisconfigurationException(
            f"LearningRateMonitor: parameter groups of one {kind.__name__} share the name "
            f"{', '.join(map(repr, double))}; give each group a `name` of its own, or none."
        )
    if len(groups) == 1 and not own[0]:
        return [name]
    return [f"{name}/{part}" for part in parts]

"""When things happen in a fit, foretold from the meaning of the arguments: a reference for the schedule table.

`foretell` knows nothing of either engine. It is written from what the arguments mean, batch by batch, and returns the
list of events that a run must show; `watch` runs a framework and notes the same events.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.parity.frameworks import Framework, quiet

VAL_LENGTH = 3
"""Batches of the validation loader."""


@dataclass(frozen=True)
class Case:
    """One combination.

    Attributes:
        length: Batches of the training loader.
        known: Whether the loader has a length.
        claimed: Batches that the loader's length promises beyond those it gives.
        stop_at: Training batch (over all epochs, from 1) that sets `should_stop`; 0 for none.
        stop_in: Where it is set: in the step, after the batch, or in the next validation's end; or by `max_time`, which
            is over after that batch.
    """

    length: int = 4
    known: bool = True
    claimed: int = 0
    stop_at: int = 0
    stop_in: str = "step"
    max_epochs: int | None = 2
    max_steps: int = -1
    min_epochs: int | None = None
    min_steps: int | None = None
    val_check_interval: int | float | None = None
    check_val_every_n_epoch: int | None = 1
    limit_train_batches: int | float | None = None
    limit_val_batches: int | float | None = None
    accumulate_grad_batches: int = 1
    num_sanity_val_steps: int = 0
    overfit_batches: int | float = 0.0
    reload_dataloaders_every_n_epochs: int = 0

    @property
    def train_limit(self) -> int | float | None:
        """What limits the training loader."""
        return self.overfit_batches or self.limit_train_batches

    @property
    def val_limit(self) -> int | float | None:
        """What limits the validation loader."""
        return self.overfit_batches or self.limit_val_batches

    def arguments(self) -> dict[str, Any]:
        """The Trainer's."""
        own = ("length", "known", "claimed", "stop_at", "stop_in")
        arguments = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in own}
        if self.stop_at and self.stop_in == "time":
            arguments["max_time"] = {"seconds": self.stop_at}
        return arguments

    def __str__(self) -> str:
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return ",".join(f"{name}={value}" for name, value in changed.items()) or "defaults"


@dataclass(frozen=True)
class Rules:
    """Which of two meanings holds where the policies differ.

    Attributes:
        data_ends_epoch: An epoch that the data end earlier than their length said ends as any other.
        min_steps_alone: `min_steps` without `min_epochs` says nothing about epochs; else the first one must end.
        end_validates: The batch at which `max_steps` or a stop ends the run is followed by a validation.
    """

    data_ends_epoch: bool = True
    min_steps_alone: bool = True
    end_validates: bool = True


RIGHT = Rules()
AS_LIGHTNING = Rules(data_ends_epoch=False, min_steps_alone=False, end_validates=False)

ERROR = "error"
ENDLESS = "endless"
MOST_EPOCHS = 30


def share_of(limit: int | float | None, length: int | None) -> int | str | None:
    """Batches that a limit leaves; `None` for no known number, `ERROR` where it has no meaning."""
    if limit is None:
        limit = 1.0
    if isinstance(limit, int):
        return limit if length is None else min(limit, length)
    if limit == 0.0:
        return 0
    if length is None:
        return None if limit == 1.0 else ERROR
    number = int(length * limit)
    return ERROR if number == 0 < length else number


class Foretold:
    """Plays a case through; `events` is what must be seen."""

    def __init__(self, case: Case, rules: Rules) -> None:
        self.case = case
        self.rules = rules
        self.events: list[Any] = []
        self.epoch = self.total = self.updates = self.window = 0
        self.stop = False
        self.asked = False
        self.reason = ""

    def play(self) -> list[Any]:
        """Return the events, or `["error"]` for a combination that is refused."""
        case = self.case
        self.val = share_of(case.val_limit, VAL_LENGTH)
        self.planned = share_of(case.train_limit, case.length + case.claimed if case.known else None)
        self.min_epochs = case.min_epochs or 0
        if case.min_epochs is None and case.min_steps is not None and not self.rules.min_steps_alone:
            self.min_epochs = 1
        if self.refused():
            return [ERROR]
        if case.num_sanity_val_steps and self.val and self.val != ERROR:
            number = case.num_sanity_val_steps
            self.events.append(("sanity", self.val if number == -1 else min(number, self.val)))
        if self.planned == 0:
            return [*self.events, self.end()]
        while not self.over():
            self.run_epoch()
            if self.epoch > MOST_EPOCHS:
                return [ENDLESS]
        return [*self.events, self.end()]

    def refused(self) -> bool:
        """Whether the arguments make no sense together."""
        case = self.case
        interval, every = case.val_check_interval, case.check_val_every_n_epoch
        if every is None and isinstance(interval, float):
            return True
        for least, most in ((case.min_epochs, case.max_epochs), (case.min_steps, case.max_steps)):
            if least is not None and most is not None and most != -1 and least > most:
                return True
        if self.planned == ERROR:
            return True
        if self.planned == 0:
            return False
        if isinstance(interval, int) and self.planned is not None and every is not None and self.val != 0:
            return interval > self.planned
        return isinstance(interval, float) and interval != 1.0 and self.planned is None

    def end(self) -> tuple[Any, ...]:
        """The last event: counters and why the run is over."""
        return ("end", self.updates, self.epoch, self.reason)

    def may_stop(self) -> bool:
        """Whether the minima are met."""
        case = self.case
        return self.epoch >= self.min_epochs and self.updates >= (case.min_steps or 0)

    def over(self) -> bool:
        """Whether no epoch follows."""
        case = self.case
        if case.max_steps != -1 and self.updates >= case.max_steps:
            self.reason = "max_steps"
        elif case.max_epochs not in (None, -1) and self.epoch >= case.max_epochs:  # type: ignore[operator]  # no None
            self.reason = "max_epochs"
        elif self.stop and self.may_stop():
            self.reason = "should_stop"
        return bool(self.reason)

    def every(self) -> int | None:
        """Batches from one validation to the next; `None`: with the epoch."""
        interval = self.case.val_check_interval
        if isinstance(interval, int):
            return interval
        if self.planned is None:
            return None
        assert isinstance(self.planned, int)
        return max(1, int(self.planned * (1.0 if interval is None else interval)))

    def run_epoch(self) -> None:
        case = self.case
        given = case.length if self.planned is None else min(case.length, int(self.planned))
        batches = 0
        while batches < given:
            batches += 1
            self.total += 1
            last = batches == given and (self.rules.data_ends_epoch or self.planned is None or batches == self.planned)
            self.train(batches, last, given)
            if self.validates(batches, last):
                self.validate()
            if self.leaves():
                break
        self.events.append(("epoch", self.epoch, batches))
        self.epoch += 1
        self.window = 0

    def train(self, batches: int, last: bool, given: int) -> None:
        case = self.case
        self.window += 1
        self.events.append(("batch", self.epoch, batches))
        if self.window >= case.accumulate_grad_batches or last:
            self.window = 0
            self.updates += 1
            self.events.append(("update", self.updates))
        if self.total == case.stop_at:
            if case.stop_in == "validation":
                self.asked = True
            else:
                self.stop = True

    def validates(self, batches: int, last: bool) -> bool:
        """Whether a validation follows this batch."""
        case = self.case
        if not self.val:
            return False
        ends = (case.max_steps != -1 and self.updates >= case.max_steps) or (self.stop and self.may_stop())
        if ends and self.rules.end_validates:
            return True
        if case.check_val_every_n_epoch is not None and (self.epoch + 1) % case.check_val_every_n_epoch:
            return False
        if self.stop and self.may_stop():
            return True
        every = self.every()
        if every is None:
            return last
        whole = case.val_check_interval is None or (
            isinstance(case.val_check_interval, float) and case.val_check_interval == 1.0
        )
        if last and whole and self.rules.data_ends_epoch:
            return True
        return (self.total if case.check_val_every_n_epoch is None else batches) % every == 0

    def validate(self) -> None:
        self.events.append(("validation", self.updates, self.val))
        if self.asked:
            self.stop, self.asked = True, False

    def leaves(self) -> bool:
        """Whether the epoch ends here although it has more batches."""
        case = self.case
        return (case.max_steps != -1 and self.updates >= case.max_steps) or (self.stop and self.may_stop())


def foretell(case: Case, rules: Rules) -> list[Any]:
    """The events that a run of `case` must show."""
    return Foretold(case, rules).play()


# -------------------------------------------------------------------------------------------------------------- running


class _Stream(IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.length):
            yield torch.ones(1, 1)


class _Claiming(_Stream):
    def __init__(self, length: int, claimed: int) -> None:
        super().__init__(length)
        self.claimed = claimed

    def __len__(self) -> int:
        return self.length + self.claimed


def loader_of(case: Case) -> DataLoader[Any]:
    """The training loader of a case."""
    if not case.known:
        return DataLoader(_Stream(case.length), batch_size=None)
    if case.claimed:
        return DataLoader(_Claiming(case.length, case.claimed), batch_size=None)
    return DataLoader(torch.ones(case.length, 1, 1), batch_size=None)  # type: ignore[arg-type]  # a tensor is indexable


class Clock:
    """Stands in for `time.monotonic`: a training batch takes 1 s, nothing else takes time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


def watched_module(L: Any, case: Case, events: list[Any], save: Callable[[Any], None] | None = None) -> Any:
    """A module that notes batches, updates, validations and ends of epochs.

    Args:
        L: The framework's module.
        case: What is run.
        events: Where to.
        save: Called with the Trainer in each hook in which checkpoints are commonly written.
    """

    class Watched(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.batches = self.updates = self.in_validation = self.total = 0

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            CLOCK.now += 1
            self.batches += 1
            self.total += 1
            events.append(("batch", self.trainer.current_epoch, self.batches))
            if self.total == case.stop_at and case.stop_in == "step":
                self.trainer.should_stop = True
            return self.layer(batch).sum()

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if self.total == case.stop_at and case.stop_in == "batch":
                self.trainer.should_stop = True
            self.keep()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.in_validation += 1

        def on_validation_end(self) -> None:
            number, self.in_validation = self.in_validation, 0
            if self.trainer.sanity_checking:
                events.append(("sanity", number))
                return
            events.append(("validation", self.updates, number))
            if case.stop_in == "validation" and 0 < case.stop_at <= self.total:
                self.trainer.should_stop = True
            self.keep()

        def on_train_epoch_end(self) -> None:
            events.append(("epoch", self.trainer.current_epoch, self.batches))
            self.batches = 0
            self.keep()

        def keep(self) -> None:
            if save is not None:
                save(self.trainer)

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["counts"] = [self.batches, self.updates, self.total]

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.batches, self.updates, self.total = checkpoint["counts"]

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.0)

            def note(*_: Any) -> None:
                self.updates += 1
                events.append(("update", self.updates))

            optimizer.register_step_post_hook(note)
            return optimizer

    return Watched()


def reason_of(trainer: Any) -> str:
    """Why a run is over, from the Trainer's public state."""
    if trainer.max_steps != -1 and trainer.global_step >= trainer.max_steps:
        return "max_steps"
    if trainer.max_epochs not in (None, -1) and trainer.current_epoch >= trainer.max_epochs:
        return "max_epochs"
    return "should_stop" if trainer.should_stop else ""


def watch(framework: Framework, case: Case, root: Path) -> list[Any]:
    """Run a case and return its events; `["error"]` if it was refused before the first batch."""
    events: list[Any] = []
    with quiet(), patch("time.monotonic", CLOCK):
        module = watched_module(framework.L, case, events)
        val = DataLoader(torch.ones(VAL_LENGTH, 1, 1), batch_size=None)  # type: ignore[arg-type]  # as above
        try:
            trainer = framework.trainer(root, **case.arguments())
            trainer.fit(module, loader_of(case), val)
        except Exception as error:
            if any(event[0] == "batch" for event in events) or not _refusal(error):
                raise
            return [ERROR]
    planned = share_of(case.train_limit, case.length + case.claimed if case.known else None)
    reason = "" if planned == 0 else reason_of(trainer)
    return [*events, ("end", trainer.global_step, trainer.current_epoch, reason)]


def resumed_runs(framework: Framework, case: Case, root: Path) -> Iterator[tuple[list[Any], list[Any]]]:
    """Run a case and write a checkpoint wherever one may be written; go on from each of them.

    Yields:
        The events that the whole run had after the checkpoint, and those of the run that went on from it.
    """
    events: list[Any] = []
    saved: list[tuple[int, Path]] = []

    def save(trainer: Any) -> None:
        saved.append((len(events), root / f"{len(saved)}.ckpt"))
        trainer.save_checkpoint(saved[-1][1])

    def fit(module: Any, path: Path | None) -> tuple[int, int]:
        val = DataLoader(torch.ones(VAL_LENGTH, 1, 1), batch_size=None)  # type: ignore[arg-type]  # as above
        trainer = framework.trainer(root, **case.arguments())
        trainer.fit(module, loader_of(case), val, ckpt_path=path)
        return trainer.global_step, trainer.current_epoch

    with quiet(), patch("time.monotonic", CLOCK):
        end = fit(watched_module(framework.L, case, events, save), None)
        for count, path in saved:
            rest: list[Any] = []
            again = fit(watched_module(framework.L, case, rest), path)
            yield [*events[count:], end], [*rest, again]


def _refusal(error: Exception) -> bool:
    return isinstance(error, ValueError) or type(error).__name__ in ("MisconfigurationException", "DataError")


# ------------------------------------------------------------------------------------------------------------- sampling

CHOICES: dict[str, tuple[Any, ...]] = {
    "length": (1, 2, 3, 4, 5, 7),
    "max_epochs": (1, 2, 3, 0, -1, None),
    "max_steps": (-1, -1, -1, 1, 2, 3, 5, 8, 0),
    "min_epochs": (None, None, None, 0, 1, 2, 4),
    "min_steps": (None, None, None, 1, 3, 6, 9),
    "val_check_interval": (None, None, 1.0, 0.5, 0.25, 0.34, 1, 2, 3, 5),
    "check_val_every_n_epoch": (1, 1, 1, 2, None, 3),
    "limit_train_batches": (None, None, None, 1.0, 0.5, 0.7, 1, 3, 0, 0.1),
    "limit_val_batches": (None, None, None, 1.0, 0, 0.0, 1, 2, 0.5),
    "accumulate_grad_batches": (1, 1, 2, 3),
    "num_sanity_val_steps": (0, 0, 1, 2, -1),
    "overfit_batches": (*[0.0] * 8, 1, 2, 0.5),
    "reload_dataloaders_every_n_epochs": (0, 0, 0, 1, 2),
    "stop_at": (0, 0, 0, 1, 2, 3, 5, 8),
    "stop_in": ("step", "batch", "validation", "time"),
}


def cases(number: int, seed: int) -> list[Case]:
    """`number` different cases that end, the same at each call; most of them train."""
    draw = random.Random(seed)
    found: dict[Case, None] = {}
    while len(found) < number:
        values = {name: draw.choice(options) for name, options in CHOICES.items()}
        kind = draw.random()
        values["known"] = kind > 0.2
        values["claimed"] = draw.choice((1, 2)) if 0.2 < kind < 0.3 else 0
        if values["claimed"] or not values["known"]:
            values["overfit_batches"] = 0.0  # the first batches of a stream are what `limit_train_batches` gives
        case = Case(**values)
        told = [foretell(case, rules) for rules in (RIGHT, AS_LIGHTNING)]
        idle = told[0] == [ERROR] or not any(event[0] == "batch" for event in told[0])
        if [ENDLESS] not in told and not (idle and draw.random() < 0.9):
            found[case] = None
    return list(found)


def crossed(case: Case) -> bool:
    """Whether a minimum is more than its maximum, which Lightning does not look at."""
    pairs = ((case.min_epochs, case.max_epochs), (case.min_steps, case.max_steps))
    return any(least is not None and most is not None and -1 < most < least for least, most in pairs)

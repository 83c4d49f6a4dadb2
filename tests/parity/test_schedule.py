"""The schedule table: when a fit trains, updates, validates, ends epochs and stops, for many combinations of arguments.

`schedules.foretell` says from the meaning of the arguments what must be seen; both policies and the installed Lightning
are held to it.
"""

from __future__ import annotations

import dataclasses
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet
from tests.parity.recorder import SETTINGS, make_callback, make_data, make_module
from tests.parity.schedules import (
    AS_LIGHTNING,
    CHOICES,
    ERROR,
    Case,
    Rules,
    cases,
    crossed,
    foretell,
    resumed_runs,
    watch,
)
from tests.parity.schedules import RIGHT as RIGHT_RULES

TABLE = cases(800, seed=11)
CHUNK = 100
CHUNKS = [TABLE[start : start + CHUNK] for start in range(0, len(TABLE), CHUNK)]
WITH_PEER = [case for case in TABLE if not crossed(case)]


def differences(name: str, table: list[Case], rules: Rules, root: Path) -> list[str]:
    """Cases of which the framework's events are not the foretold ones."""
    framework, found = Framework(name), []
    for case in table:
        seen, told = watch(framework, case, root), foretell(case, rules)
        if seen != told:
            found.append(f"{case}\n  seen {seen}\n  told {told}")
    return found


@pytest.mark.feature("T-03", "T-04")
@pytest.mark.parametrize("table", CHUNKS, ids=range(len(CHUNKS)))
def test_right_runs_as_foretold(table: list[Case], tmp_path: Path) -> None:
    assert not differences(RIGHT, table, RIGHT_RULES, tmp_path)


@pytest.mark.feature("T-03", "T-04")
@pytest.mark.parametrize("table", CHUNKS[:4], ids=range(4))
def test_the_strict_policy_runs_as_foretold(table: list[Case], tmp_path: Path) -> None:
    assert not differences(STRICT, table, AS_LIGHTNING, tmp_path)


@pytest.mark.feature("T-03", "T-04")
def test_lightning_runs_as_foretold(tmp_path: Path) -> None:
    assert not differences(LIGHTNING, WITH_PEER[:200], AS_LIGHTNING, tmp_path)


@pytest.mark.slow
@pytest.mark.feature("T-03", "T-04")
def test_lightning_and_the_strict_policy_over_a_larger_table(tmp_path: Path) -> None:
    table = [case for case in cases(1500, seed=12) if not crossed(case)]
    assert not differences(LIGHTNING, table, AS_LIGHTNING, tmp_path)
    assert not differences(STRICT, table, AS_LIGHTNING, tmp_path)
    assert not differences(RIGHT, table, RIGHT_RULES, tmp_path)


# What sets `should_stop` is not in a checkpoint, but for the time: whoever resumes a stopped run wants it to go on.
UNSTOPPED = [
    dataclasses.replace(case, stop_at=case.stop_at if case.stop_in == "time" else 0, num_sanity_val_steps=0)
    for case in TABLE
]
RESUMED = [case for case in UNSTOPPED if len(foretell(case, RIGHT_RULES)) > 2]
"""Those that train and end: an endless one and one that is refused have a single event."""


def lost(name: str, table: list[Case], root: Path) -> list[str]:
    """Cases and checkpoints from which the events of the whole run did not follow."""
    found, checkpoints = [], 0
    for case in table:
        for whole, rest in resumed_runs(Framework(name), case, root):
            checkpoints += 1
            if whole != rest:
                found.append(f"{case}\n  whole   {whole}\n  resumed {rest}")
    assert checkpoints > 5 * len(table)
    return found


@pytest.mark.feature("C-02", "T-03", "T-04")
def test_a_run_resumed_anywhere_goes_on_as_the_whole_one(tmp_path: Path) -> None:
    assert not lost(RIGHT, RESUMED[:12], tmp_path)


@pytest.mark.slow
@pytest.mark.feature("C-02", "T-03", "T-04")
def test_a_run_resumed_anywhere_over_a_larger_table(tmp_path: Path) -> None:
    assert not lost(RIGHT, RESUMED[12:120], tmp_path)


def test_the_table_covers_every_choice_and_every_end() -> None:
    told = [foretell(case, RIGHT_RULES) for case in TABLE]
    ends = [events[-1][-1] if events != [ERROR] else ERROR for events in told]
    assert min(ends.count(reason) for reason in ("max_epochs", "max_steps", "should_stop")) >= 60, ends
    assert 20 <= ends.count(ERROR) <= len(TABLE) / 4
    trained = [case for case, events in zip(TABLE, told, strict=True) if any(event[0] == "batch" for event in events)]
    for name, values in {**CHOICES, "known": (True, False), "claimed": (0, 1, 2)}.items():
        for value in set(values):
            wanted = TABLE if (name, value) in NEVER_TRAINS else trained
            assert any(same(getattr(case, name), value) for case in wanted), f"{name}={value!r} is not in the table"
    differing = [case for case in TABLE if foretell(case, RIGHT_RULES) != foretell(case, AS_LIGHTNING)]
    assert len(differing) >= 50


NEVER_TRAINS = (("max_epochs", 0), ("max_steps", 0), ("limit_train_batches", 0), ("limit_train_batches", 0.1))
"""The last is less than one batch of every loader here: refused."""


def same(one: Any, other: Any) -> bool:
    """Equal, and of one type: 1 and 1.0 mean different things."""
    return type(one) is type(other) and one == other


B, U, V, E = "batch", "update", "validation", "epoch"

# What the arguments mean, written out by hand: the reference is held to it too.
BY_HAND: list[tuple[Case, list[Any]]] = [
    (
        Case(length=2, max_epochs=1, num_sanity_val_steps=2),
        [("sanity", 2), (B, 0, 1), (U, 1), (B, 0, 2), (U, 2), (V, 2, 3), (E, 0, 2), ("end", 2, 1, "max_epochs")],
    ),
    (
        Case(length=3, max_epochs=1, accumulate_grad_batches=2, val_check_interval=1, limit_val_batches=1),
        [
            (B, 0, 1),
            (V, 0, 1),
            (B, 0, 2),
            (U, 1),
            (V, 1, 1),
            (B, 0, 3),
            (U, 2),
            (V, 2, 1),
            (E, 0, 3),
            ("end", 2, 1, "max_epochs"),
        ],
    ),
    (
        Case(length=2, max_epochs=2, val_check_interval=3, check_val_every_n_epoch=None),
        [
            (B, 0, 1),
            (U, 1),
            (B, 0, 2),
            (U, 2),
            (E, 0, 2),
            (B, 1, 1),
            (U, 3),
            (V, 3, 3),
            (B, 1, 2),
            (U, 4),
            (E, 1, 2),
            ("end", 4, 2, "max_epochs"),
        ],
    ),
    (
        Case(length=4, max_epochs=-1, max_steps=3, limit_val_batches=2),
        [(B, 0, 1), (U, 1), (B, 0, 2), (U, 2), (B, 0, 3), (U, 3), (V, 3, 2), (E, 0, 3), ("end", 3, 1, "max_steps")],
    ),
    (
        Case(length=2, max_epochs=3, min_epochs=2, stop_at=1, limit_val_batches=0),
        [
            (B, 0, 1),
            (U, 1),
            (B, 0, 2),
            (U, 2),
            (E, 0, 2),
            (B, 1, 1),
            (U, 3),
            (B, 1, 2),
            (U, 4),
            (E, 1, 2),
            ("end", 4, 2, "should_stop"),
        ],
    ),
    (
        Case(length=3, max_epochs=1, known=False, limit_train_batches=2),
        [(B, 0, 1), (U, 1), (B, 0, 2), (U, 2), (V, 2, 3), (E, 0, 2), ("end", 2, 1, "max_epochs")],
    ),
    (
        Case(length=2, claimed=1, max_epochs=1, accumulate_grad_batches=2),
        [(B, 0, 1), (B, 0, 2), (U, 1), (V, 1, 3), (E, 0, 2), ("end", 1, 1, "max_epochs")],
    ),
    (Case(length=2, val_check_interval=3), [ERROR]),
    (Case(max_epochs=0, num_sanity_val_steps=1), [("sanity", 1), ("end", 0, 0, "max_epochs")]),
]


@pytest.mark.feature("T-03", "T-04")
@pytest.mark.parametrize(("case", "events"), BY_HAND, ids=lambda value: str(value) if isinstance(value, Case) else "")
def test_the_reference_is_what_is_meant(case: Case, events: list[Any], tmp_path: Path) -> None:
    assert foretell(case, RIGHT_RULES) == events
    assert watch(Framework(RIGHT), case, tmp_path) == events


# ------------------------------------------------------------------------------------------------ validation by time


class Clock:
    """Stands in for `time.monotonic`: a training batch takes 1 s, a validation batch 2 s, nothing else takes time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def timed_run(name: str, interval: Any, root: Path, clock: Clock, **arguments: Any) -> list[int]:
    """Train 2 epochs of 7 batches; returns after how many batches validations ran."""
    framework = Framework(name)
    validated: list[int] = []

    class Timed(framework.L.LightningModule):  # type: ignore[name-defined, misc]  # the base depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.batches = 0

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            clock.now += 1
            self.batches += 1
            return self.layer(batch).sum()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            clock.now += 2

        def on_validation_end(self) -> None:
            if not self.trainer.sanity_checking:
                validated.append(self.batches)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    data = DataLoader(torch.ones(7, 1, 1), batch_size=None)  # type: ignore[arg-type]  # a tensor is indexable
    with quiet():
        trainer = framework.trainer(root, val_check_interval=interval, **{"max_epochs": 2, **arguments})
        trainer.fit(Timed(), data, DataLoader(torch.ones(1, 1, 1), batch_size=None))  # type: ignore[arg-type]  # as above
    return validated


TIMED: list[tuple[dict[str, Any], list[int], list[int]]] = [
    # arguments, as in Lightning, and where a run's end is validated too
    ({}, [3, 6, 9, 12], [3, 6, 9, 12, 14]),
    ({"check_val_every_n_epoch": 2}, [8, 11, 14], [8, 11, 14]),
    ({"check_val_every_n_epoch": None}, [3, 6, 9, 12], [3, 6, 9, 12, 14]),
    ({"max_epochs": -1, "max_steps": 10}, [3, 6, 9], [3, 6, 9, 10]),
    ({"fast_dev_run": 4}, [4], [4]),
    ({"num_sanity_val_steps": 0, "limit_train_batches": 2}, [3], [3, 4]),
]


@pytest.mark.feature("T-04")
@pytest.mark.parametrize("name", [LIGHTNING, STRICT, RIGHT])
@pytest.mark.parametrize(("arguments", "lightning", "right"), TIMED, ids=lambda value: str(value))
def test_validation_by_time(
    name: str,
    arguments: dict[str, Any],
    lightning: list[int],
    right: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    seen = timed_run(name, timedelta(seconds=3), tmp_path, clock, **arguments)
    assert seen == (right if name == RIGHT else lightning)


@pytest.mark.feature("T-04")
@pytest.mark.parametrize("interval", ["00:00:00:03", {"seconds": 3}, timedelta(seconds=3)], ids=str)
def test_validation_by_time_in_each_form(interval: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    assert timed_run(STRICT, interval, tmp_path, clock) == timed_run(LIGHTNING, interval, tmp_path, clock)


# --------------------------------------------------------------------------------------------- hooks, line for line

OTHER_SCHEDULES: list[dict[str, Any]] = [
    {"max_epochs": -1, "max_steps": 3},
    {"max_epochs": -1, "max_steps": 2, "accumulate_grad_batches": 2, "val_check_interval": 3},
    {"max_steps": 0},
    {"max_epochs": 0},
    {"val_check_interval": 0.5, "check_val_every_n_epoch": 2},
    {"val_check_interval": 3, "check_val_every_n_epoch": None, "num_sanity_val_steps": 1},
    {"limit_val_batches": 0},
    {"limit_train_batches": 0},
    {"fast_dev_run": 2},
    {"max_time": "00:00:00:00"},
    {"min_steps": 2, "max_time": "00:00:00:00"},
    {"barebones": True, "num_sanity_val_steps": 0, "enable_checkpointing": False},
]


@pytest.mark.feature("T-03", "T-04")
@pytest.mark.parametrize("settings", OTHER_SCHEDULES, ids=str)
def test_hooks_are_lightnings_line_for_line(settings: dict[str, Any], tmp_path: Path) -> None:
    traces = []
    for name in (LIGHTNING, STRICT):
        notes: list[str] = []
        framework = Framework(name)
        torch.manual_seed(0)
        module, data = make_module(framework.L, notes), make_data(framework.L, notes)
        callback = make_callback(framework.L, notes)
        with quiet():
            settled = {**SETTINGS, "limit_train_batches": 4, "accumulate_grad_batches": 1, **settings}
            trainer = framework.trainer(tmp_path / name, callbacks=[callback], **settled)
            notes.clear()  # what the constructor calls is none of the run's
            trainer.fit(module, data)
        traces.append(notes)
    assert traces[0] == traces[1]

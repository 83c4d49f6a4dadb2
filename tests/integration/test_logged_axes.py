"""The x axis of logged values: step, epoch, samples, tokens, time, or a logged value; per call and per logger."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fulmen.callbacks import ModelCheckpoint
from fulmen.engine.results.axes import Axes
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning, LoggingError
from fulmen.loggers import CSVLogger, TensorBoardLogger
from tests.integration.test_logging import Memory
from tests.integration.toys import Toy, fit, loader, quiet, rows
from tests.unit.results.toys import Store

BATCHES = [4, 4, 2]  # 10 rows in batches of 4


class Logs(Toy):
    """Logs the batch index with any flags, and tokens if asked."""

    def __init__(self, *, tokens: Any = None, **flags: Any) -> None:
        super().__init__()
        self.flags = flags
        self.tokens = tokens

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.log("x", float(batch_idx), **self.flags)
        self.log("own", 100.0 + self.trainer.progress.total_batches)
        if self.tokens is not None:
            self.log("tokens", self.tokens(batch), reduce_fx="sum")
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", 1.0, **{key: value for key, value in self.flags.items() if key == "axis"})


def data() -> DataLoader[Any]:
    return DataLoader(rows(10), batch_size=4)


def points(memory: Memory, key: str) -> list[tuple[int, float]]:
    return [(step, row[key]) for step, row in memory.rows if key in row]


def seconds() -> Any:
    """A clock that goes on by 10 seconds each time it is read."""
    now = iter(range(0, 10**6, 10))
    return lambda: float(next(now))


@pytest.mark.feature("L-07")
@pytest.mark.parametrize("how", ["call", "logger"])
@pytest.mark.parametrize(
    ("axis", "training", "validation"),
    [
        ("step", [0, 1, 2, 3, 4, 5], [2, 5]),
        ("epoch", [0, 0, 0, 1, 1, 1], [0, 1]),
        ("samples", [4, 8, 10, 14, 18, 20], [10, 20]),
        ("tokens", [40, 80, 100, 140, 180, 200], [100, 200]),
        ("own", [101, 102, 103, 104, 105, 106], [103, 106]),
    ],
)
@pytest.mark.parametrize("kind", [int, torch.tensor, lambda count: torch.tensor(float(count))])
def test_values_stand_at_the_axis_chosen(
    axis: str, training: list[int], validation: list[int], how: str, kind: Any
) -> None:
    memory = Memory()
    if how == "logger":
        memory.axis = axis
    module = Logs(tokens=lambda batch: kind(10 * len(batch[0])), **({"axis": axis} if how == "call" else {}))
    fit(module, data(), data(), logger=memory, log_every_n_steps=1, max_epochs=2)
    assert [x for x, _ in points(memory, "x")] == training
    assert [x for x, _ in points(memory, "val")] == validation
    assert [value for _, value in points(memory, "x")] == [0, 1, 2, 0, 1, 2]
    if how == "call" and axis != "step":  # other values stay where they are
        assert [x for x, _ in points(memory, "own")] == [0, 1, 2, 3, 4, 5]
        assert all("epoch" not in row for _, row in memory.rows if "x" in row)


@pytest.mark.feature("L-07")
def test_time_is_seconds_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    trainer = quiet(logger=memory, log_every_n_steps=1, max_epochs=1)
    trainer.hub.axes.clock = seconds()
    trainer.fit(Logs(axis="time"), data())
    steps = [x for x, _ in points(memory, "x")]
    assert steps == sorted(steps) and steps[0] >= 10 and steps[-1] - steps[0] == 20


@pytest.mark.feature("L-07")
def test_a_call_wins_over_the_logger() -> None:
    memory, plain = Memory(), Memory()
    memory.axis = "samples"
    fit(Logs(axis="step"), data(), logger=[memory, plain], log_every_n_steps=1)
    assert [x for x, _ in points(memory, "x")] == [0, 1, 2]
    assert [x for x, _ in points(memory, "own")] == [4, 8, 10]
    assert [x for x, _ in points(plain, "own")] == [0, 1, 2]


@pytest.mark.feature("L-07", "G-01")
@pytest.mark.parametrize("how", ["call", "logger"])
def test_a_table_keeps_the_step_and_gets_a_column(tmp_path: Path, how: str) -> None:
    logger = CSVLogger(tmp_path, axis="samples" if how == "logger" else None)
    module = Logs(**({"axis": "samples"} if how == "call" else {}))
    fit(module, data(), data(), logger=logger, log_every_n_steps=1)
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [(row["step"], row["samples"], row["epoch"]) for row in written if row["x"]] == [
        ("0", "4", "0"), ("1", "8", "0"), ("2", "10", "0"),
    ]  # fmt: skip
    assert [(row["step"], row["samples"]) for row in written if row["val"]] == [("2", "10")]


@pytest.mark.feature("L-07", "G-02")
def test_tensorboard_has_points_at_the_axis(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(str(tmp_path), axis="samples")
    fit(Logs(), data(), data(), logger=logger, log_every_n_steps=1)
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    assert [event.step for event in events.Scalars("x")] == [4, 8, 10]
    assert [event.step for event in events.Scalars("val")] == [10]
    assert "epoch" not in events.Tags()["scalars"]


@pytest.mark.feature("L-07", "C-02")
@pytest.mark.parametrize("axis", ["samples", "tokens", "epoch", "own"])
@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_resumed_run_goes_on_on_the_axis(axis: str, at: int, tmp_path: Path) -> None:
    def run(memory: Memory, path: Path | None) -> None:
        saves = ModelCheckpoint(tmp_path, every_n_train_steps=at, save_top_k=-1)
        saves.filename = "{step}"
        module = Logs(tokens=lambda batch: len(batch[0]), axis=axis)
        trainer = quiet(logger=memory, log_every_n_steps=1, max_epochs=2, enable_checkpointing=True, callbacks=saves)
        trainer.fit(module, data(), data(), ckpt_path=path)

    whole, rest = Memory(), Memory()
    run(whole, None)
    run(rest, tmp_path / f"step={at}.ckpt")
    kept = [(x, value) for x, value in points(whole, "x")]
    again = points(rest, "x")
    assert len(again) < len(kept)
    assert again == kept[-len(again) :]


@pytest.mark.feature("L-07", "G-02", "C-02")
@pytest.mark.parametrize("how", ["call", "logger"])
def test_a_resume_hides_no_points_of_another_axis(tmp_path: Path, how: str) -> None:
    """TensorBoard drops all points from a step on; points at samples stand further right than their steps."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def run(path: Path | None) -> TensorBoardLogger:
        logger = TensorBoardLogger(str(tmp_path), version="one", axis="samples" if how == "logger" else None)
        module = Logs(**({"axis": "samples"} if how == "call" else {}))
        saves = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1)
        trainer = quiet(
            logger=logger, log_every_n_steps=1, callbacks=saves, enable_checkpointing=True, max_epochs=2 if path else 1
        )
        trainer.fit(module, data(), ckpt_path=path)
        return logger

    run(None)
    logger = run(tmp_path / "step=3.ckpt")
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    assert [event.step for event in events.Scalars("x")] == [4, 8, 10, 14, 18, 20]


@pytest.mark.feature("L-07")
def test_nothing_is_counted_unless_asked_for() -> None:
    class Counts(Axes):
        def count(self, size: float) -> None:
            raise AssertionError("counted")

    trainer = quiet(logger=Memory(), log_every_n_steps=1)
    trainer.hub.axes = Counts()
    trainer.fit(Logs(axis="epoch"), data(), data())
    assert trainer.hub.axes.samples == 0


@pytest.mark.feature("L-07")
def test_samples_asked_for_late_are_estimated_and_told() -> None:
    class Late(Toy):
        def on_train_epoch_end(self) -> None:
            self.log("late", 1.0, axis="samples")

    memory = Memory()
    with pytest.warns(FulmenWarning, match=r"first asked for after 3 training batches.*logger\.axis = 'samples'"):
        fit(Late(), data(), logger=memory, log_every_n_steps=1, max_epochs=2)
    assert points(memory, "late") == [(0, 1.0), (24 - 2, 1.0)]


@pytest.mark.feature("L-07")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"axis": "tokens"}, r"no tokens were counted.*self\.log\('tokens', count"),
        ({"axis": "smaples"}, r"axis='smaples': nothing was logged.*Did you mean 'samples'"),
        ({"axis": "bad"}, "axis='bad': its value is nan"),
        ({"axis": ""}, "axis='' must be a non-empty string or None"),
        ({"axis": 3}, "axis=3 must be a non-empty string or None"),
        ({"axis": "x"}, "axis='x' is the value itself"),
    ],
)
def test_wrong_axes(flags: dict[str, Any], words: str) -> None:
    class Bad(Logs):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            self.log("bad", float("nan"))

    with pytest.raises(LoggingError, match=words):
        fit(Bad(**flags), data(), logger=Memory(), log_every_n_steps=1)


@pytest.mark.feature("L-07")
@pytest.mark.parametrize(
    "make", [lambda axis: CSVLogger("logs", axis=axis), lambda axis: TensorBoardLogger("logs", axis=axis)]
)
def test_wrong_axes_of_loggers(make: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"Logger\(axis=3\): expected a text or None, got int"):
        make(3)
    with pytest.raises(ArgumentValueError, match=r"Logger\(axis=''\): give 'step', 'epoch'"):
        make("")


@pytest.mark.feature("L-07", "L-01")
def test_two_axes_for_one_key_are_an_error_that_names_both() -> None:
    store = Store()
    store.log("x", 1.0, axis="epoch")
    with pytest.raises(LoggingError, match=r"axis='samples' \(was 'epoch'\)"):
        store.log("x", 1.0, axis="samples")


@pytest.mark.feature("L-07")
def test_it_is_an_addition_under_lightnings_policy_too() -> None:
    memory = Memory()
    fit(Logs(axis="samples"), data(), logger=memory, log_every_n_steps=1, policy=Policy.lightning)
    assert [x for x, _ in points(memory, "x")] == [4, 8, 10]
    assert [x for x, _ in points(memory, "own")] == [0, 1, 2]


@pytest.mark.feature("L-07", "D-01")
def test_samples_of_a_step_that_fetches_its_batches() -> None:
    class Fetches(Toy):
        def training_step(self, dataloader_iter: Any) -> Tensor:
            batch, _, _ = next(dataloader_iter)
            self.log("x", 1.0, axis="samples", batch_size=1)
            return self.loss(batch)

    memory = Memory()
    fit(Fetches(), loader(8), logger=memory, log_every_n_steps=1)
    assert [x for x, _ in points(memory, "x")] == [2, 4, 6, 8]

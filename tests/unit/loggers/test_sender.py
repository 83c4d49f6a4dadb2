"""Rows wait while a logger fails, come later in order, and are never lost without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fulmen as L
from fulmen.errors import FulmenWarning, LoggingError
from fulmen.loggers import CSVLogger, Logger
from fulmen.loggers.sender import RowSender
from tests.integration.toys import Toy, loader

pytestmark = pytest.mark.feature("S-06")


class Remote(Logger):
    """Fails for a while; a call for each number of `down`."""

    def __init__(self, down: set[int] | None = None, error: Exception | None = None) -> None:
        super().__init__()
        self.down, self.error = down or set(), error or ConnectionError("server is away")
        self.calls = -1
        self.rows: list[int | None] = []
        self.ended: list[str] = []
        self.fails_to_save = False

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.calls += 1
        if self.calls in self.down:
            raise self.error
        self.rows.append(step)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...

    def save(self) -> None:
        if self.fails_to_save:
            raise self.error

    def finalize(self, status: str) -> None:
        self.ended.append(status)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.filterwarnings("ignore:.*W319")
def test_rows_wait_and_come_in_order() -> None:
    clock, logger = Clock(), Remote({2, 3})
    sender = RowSender(clock=clock)
    for step in range(4):
        sender.send(logger, {"a": 1.0}, step)
    assert logger.rows == [0, 1]
    clock.now = 1.0  # the first try, which fails too; the next is two seconds later
    sender.send(logger, {"a": 1.0}, 4)
    clock.now = 2.9
    sender.send(logger, {"a": 1.0}, 5)
    assert logger.rows == [0, 1]
    clock.now = 3.0
    sender.send(logger, {"a": 1.0}, 6)
    assert logger.rows == [0, 1, 2, 3, 4, 5, 6]
    sender.send(logger, {"a": 1.0}, 7)
    assert logger.calls == 9  # each row once, and two that failed
    sender.finish([logger])


def test_it_is_told_once() -> None:
    logger, sender = Remote({0, 1}), RowSender(clock=lambda: 0.0)
    with pytest.warns(
        FulmenWarning, match=r"Remote failed \(ConnectionError: server is away\)\. Training goes on.*W319"
    ) as told:
        for step in range(5):
            sender.send(logger, {"a": 1.0}, step)
    assert len(told) == 1


def test_what_cannot_be_sent_is_in_a_file(tmp_path: Path) -> None:
    logger = Remote(set(range(100)))
    sender = RowSender(folder=lambda: str(tmp_path / "logs"), limit=3, clock=lambda: 0.0)
    with pytest.warns(FulmenWarning, match="W319"):
        for step in range(8):
            sender.send(logger, {"a": float(step)}, step)
    with pytest.warns(
        FulmenWarning, match=r"8 rows could not be sent to Remote; they are in .*unsent-Remote\.jsonl.*W320"
    ):
        sender.finish([logger])
    lines = [json.loads(line) for line in (tmp_path / "logs" / "unsent-Remote.jsonl").read_text().splitlines()]
    assert lines == [{"step": step, "metrics": {"a": float(step)}} for step in range(8)]


@pytest.mark.parametrize("error", [ValueError("no"), LoggingError("bad value")])
def test_programming_errors_are_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        RowSender().send(Remote({0}, error), {"a": 1.0}, 0)


def test_without_the_policy_every_failure_is_raised() -> None:
    with pytest.raises(ConnectionError):
        RowSender(survives=False).send(Remote({0}), {"a": 1.0}, 0)


@pytest.mark.filterwarnings("ignore:.*W319")
def test_a_row_that_the_logger_took_is_not_sent_again_when_saving_fails() -> None:
    logger, sender = Remote(), RowSender()
    logger.fails_to_save = True
    for step in range(3):
        sender.send(logger, {"a": 1.0}, step)
    assert logger.rows == [0, 1, 2]


class Net(Toy):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss


def fit(logger: Any, **changes: Any) -> L.Trainer:
    trainer = L.Trainer(
        max_epochs=2,
        log_every_n_steps=1,
        logger=[CSVLogger("logs"), logger],
        enable_progress_bar=False,
        enable_model_summary=False,
        **changes,
    )
    trainer.fit(Net(), loader(8))
    return trainer


@pytest.mark.filterwarnings("ignore:.*(W319|W320)")
def test_a_run_survives_and_keeps_the_rows() -> None:
    logger = Remote(set(range(3, 100)))
    trainer = fit(logger)
    assert trainer.global_step == 8
    assert logger.rows == [0, 1, 2]
    kept = Path(str(trainer.log_dir)) / "unsent-Remote.jsonl"
    assert [json.loads(line)["step"] for line in kept.read_text().splitlines()] == [3, 4, 5, 6, 7]
    assert logger.ended == ["success"]


def test_under_lightnings_policy_the_run_ends() -> None:
    logger = Remote({3})
    with pytest.raises(ConnectionError, match="server is away"):
        fit(logger, policy=L.Policy.lightning)
    assert logger.ended == ["failed"]

"""A fit that fails for a reason that may pass is tried again from its newest checkpoint."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import EarlyStopping, ModelCheckpoint
from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning, MisconfigurationException
from fulmen.loggers import CSVLogger
from fulmen.utilities.retry import RetryPolicy, is_transient
from tests.integration.toys import Toy, loader

pytestmark = pytest.mark.feature("S-04")


class Flaky(Toy):
    """Fails at batches of all epochs, each as often as it says.

    Args:
        failures: Exceptions to raise, by number of the batch.
    """

    def __init__(self, failures: dict[int, list[Exception]] | None = None) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.3)
        self.failures = failures or {}
        self.trained: list[int] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        number = self.trainer.fit_loop.total_batch_idx
        if self.failures.get(number):
            raise self.failures[number].pop()
        self.trained.append(number)
        loss = self.loss([self.drop(batch[0]), batch[1]])
        self.log("loss", loss)
        return loss


class Clock:
    def __init__(self) -> None:
        self.waited: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)


def fit(module: Any, retry: Any, **changes: Any) -> L.Trainer:
    L.seed_everything(1, verbose=False)
    arguments: dict[str, Any] = {
        "max_epochs": 3,
        "log_every_n_steps": 1,
        "logger": CSVLogger("logs", "mine"),
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = L.Trainer(**{**arguments, **changes}, retry=retry)
    trainer.fit(module, loader(8))
    return trainer


def steps(trainer: L.Trainer) -> list[int]:
    with open(Path(str(trainer.log_dir)) / "metrics.csv") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def same_weights(one: Any, other: Any) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:.*W415")
def test_it_goes_on_from_the_newest_checkpoint_and_ends_alike() -> None:
    clock, whole = Clock(), Flaky()
    fit(whole, None, logger=CSVLogger("elsewhere", "mine"))
    module = Flaky({6: [ConnectionError("lost")], 9: [OSError("disk"), OSError("disk")]})
    trainer = fit(module, RetryPolicy(attempts=3, wait=10, factor=3, sleep=clock))
    # From epoch 1 once, from epoch 2 twice; getting further makes the waiting short again.
    assert module.trained == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 8, 8, 9, 10, 11]
    assert clock.waited == [10, 10, 30]
    assert same_weights(module, whole)
    assert steps(trainer) == list(range(12))


@pytest.mark.filterwarnings("ignore:.*W415")
def test_before_the_first_checkpoint_it_begins_again_with_the_same_weights_and_numbers() -> None:
    whole, module = Flaky(), Flaky({2: [TimeoutError("slow")]})
    fit(whole, None, logger=CSVLogger("elsewhere", "mine"), callbacks=EarlyStopping("loss", patience=5))
    trainer = fit(module, RetryPolicy(wait=0), callbacks=EarlyStopping("loss", patience=5))
    assert module.trained == [0, 1, *range(12)]
    assert same_weights(module, whole)
    assert steps(trainer) == list(range(12))


def test_it_is_told_and_given_up_after_the_tries() -> None:
    clock, module = Clock(), Flaky({5: [ConnectionError("lost")] * 9})
    with (
        pytest.warns(FulmenWarning, match=r"try 2 of 2 begins in 7 s"),
        pytest.warns(
            FulmenWarning, match=r"failed at epoch 1, step 5 \(ConnectionError: lost\); try 1 of 2 begins in 5 s"
        ),
        pytest.raises(ConnectionError, match="lost") as caught,
    ):
        fit(module, RetryPolicy(attempts=2, wait=5, longest=7, sleep=clock))
    assert clock.waited == [5, 7]
    assert any("given up after 2 further tries in a row" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("error", [ValueError("shape"), TypeError("no"), KeyError("a"), FileNotFoundError("a.csv")])
def test_programming_errors_are_never_tried_again(error: Exception) -> None:
    clock, module = Clock(), Flaky({5: [error] * 2})
    with pytest.raises(type(error)):
        fit(module, RetryPolicy(sleep=clock))
    assert clock.waited == []


@pytest.mark.filterwarnings("ignore:.*W415")
def test_which_exceptions_are_transient_is_a_parameter() -> None:
    for transient in ((ValueError,), lambda error: "odd" in str(error)):
        module = Flaky({5: [ValueError("odd")]})
        fit(module, RetryPolicy(wait=0, transient=transient))
        assert module.trained.count(4) == 2


@pytest.mark.filterwarnings("ignore:.*W415")
def test_a_number_stands_for_so_many_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, attempt: clock(attempt) or 0.0)
    with pytest.raises(OSError, match="disk"):
        fit(Flaky({5: [OSError("disk")] * 9}), 2)
    assert set(clock.waited) == {1, 2}
    with pytest.raises(OSError, match="disk"):
        fit(Flaky({5: [OSError("disk")] * 9}), 0)


@pytest.mark.filterwarnings("ignore:.*W415")
def test_the_record_says_what_failed_and_where() -> None:
    module = Flaky({6: [ConnectionError("lost")]})
    trainer = fit(module, RetryPolicy(wait=0), callbacks=ModelCheckpoint("files"))
    lines = [json.loads(line) for line in (Path(str(trainer.log_dir)) / "run.jsonl").read_text().splitlines()]
    (error,) = [line for line in lines if line["kind"] == "error"]
    assert (error["type"], error["message"], error["epoch"], error["step"]) == ("ConnectionError", "lost", 1, 6)
    assert "in training_step" in error["traceback"]
    assert error["checkpoint"].endswith("files/epoch=0-step=4.ckpt")
    assert error["time"] > 0


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionResetError("x"), True),
        (OSError(5, "Input/output error"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("NCCL error: unhandled system error"), True),
        (RuntimeError("DataLoader worker (pid(s) 12) exited unexpectedly"), True),
        (RuntimeError("shape mismatch"), False),
        (PermissionError("x"), False),
        (FileNotFoundError("x"), False),
        (AssertionError("x"), False),
        (MisconfigurationException("x"), False),
        (KeyboardInterrupt(), False),
        (SystemExit(3), False),
    ],
)
def test_what_is_transient(error: BaseException, transient: bool) -> None:
    assert is_transient(error) is transient


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"attempts": -1}, ArgumentValueError, r"RetryPolicy\(attempts=-1\): must be an int of at least 0"),
        ({"attempts": 1.5}, ArgumentTypeError, r"attempts=1.5"),
        ({"attempts": True}, ArgumentTypeError, r"attempts=True"),
        ({"wait": "long"}, ArgumentTypeError, r"wait='long'\): must be a number of at least 0"),
        ({"wait": float("nan")}, ArgumentValueError, r"wait=nan"),
        ({"factor": 0.5}, ArgumentValueError, r"factor=0.5\): must be a number of at least 1"),
        ({"longest": -1}, ArgumentValueError, r"longest=-1"),
        (
            {"transient": OSError},
            ArgumentTypeError,
            r"transient=<class 'OSError'>\): must be a tuple of exception types",
        ),
        ({"transient": (3,)}, ArgumentTypeError, r"transient=\(3,\)"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        RetryPolicy(**arguments)


@pytest.mark.parametrize(
    ("value", "kind"), [("3", ArgumentTypeError), (-1, ArgumentValueError), (True, ArgumentTypeError)]
)
def test_wrong_arguments_of_the_trainer(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(
        kind, match=r"Trainer\(retry=.*\): must be an int of at least 0 \(further tries\), a RetryPolicy"
    ):
        L.Trainer(retry=value)

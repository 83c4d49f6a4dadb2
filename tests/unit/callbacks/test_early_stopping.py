from __future__ import annotations

import copy
import logging
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fulmen.callbacks.early_stopping import EarlyStopping, EarlyStoppingReason
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from tests.unit.callbacks.checkpoint_fakes import FakeTrainer

pytestmark = pytest.mark.feature("K-02")


def run(callback: EarlyStopping, values: list[Any], **attributes: Any) -> FakeTrainer:
    """Epochs with these values until a stop is asked for."""
    trainer = FakeTrainer(callback, **attributes).start()
    for value in values:
        trainer.epoch(v=value)
        if trainer.should_stop:
            break
    return trainer


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"monitor": None}, ArgumentTypeError, "monitor=None.*name of a logged value"),
        ({"monitor": ""}, ArgumentValueError, "monitor=''"),
        ({"mode": "maxi"}, ArgumentValueError, "mode='maxi'.*Did you mean 'max'"),
        ({"mode": 1}, ArgumentTypeError, "mode=1"),
        ({"patience": -1}, ArgumentValueError, "patience=-1.*>= 0"),
        ({"patience": 1.5}, ArgumentTypeError, "patience=1.5.*whole number"),
        ({"patience": True}, ArgumentTypeError, "patience=True.*not bool"),
        ({"min_delta": "small"}, ArgumentTypeError, "min_delta='small'.*number, not str"),
        ({"min_delta": float("nan")}, ArgumentValueError, "min_delta=nan"),
        ({"stopping_threshold": [1]}, ArgumentTypeError, "stopping_threshold=.*number, not list"),
        ({"divergence_threshold": "1"}, ArgumentTypeError, "divergence_threshold='1'"),
        ({"check_on_train_epoch_end": 1}, ArgumentTypeError, "check_on_train_epoch_end=1.*True, False or None"),
    ],
)
def test_wrong_arguments_fail_in_the_constructor(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        EarlyStopping(**{"monitor": "v", **arguments})
    assert isinstance(caught.value, MisconfigurationException)
    assert "EarlyStopping" in str(caught.value)


def test_key_and_copies() -> None:
    callback = EarlyStopping("v", mode="max")
    assert callback.state_key == "EarlyStopping{'monitor': 'v', 'mode': 'max'}"
    assert callback.decides_last
    for copied in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert copied.state_dict() == callback.state_dict()


@pytest.mark.parametrize(
    ("arguments", "values", "checks"),
    [
        ({"patience": 0}, [2.0, 1.0, 1.0, 0.0], 3),
        ({"patience": 1}, [2.0, 1.0, 1.5, 0.0], 3),
        ({"patience": 2}, [2.0, 1.0, 1.5, 0.9, 1.0, 1.0, 0.0], 6),
        ({"patience": 3}, [1.0, 1.0, 1.0, 1.0, 0.0], 4),
        ({"patience": 2, "mode": "max"}, [1.0, 2.0, 1.5, 1.9, 3.0], 4),
        ({"patience": 1, "min_delta": 0.25}, [1.0, 0.5, 0.25, 0.0], 3),  # an improvement by min_delta is none
        ({"patience": 1, "min_delta": 0.25, "mode": "max"}, [0.0, 0.5, 0.75, 2.0], 3),
        ({"patience": 9}, [float("nan"), 0.0], 1),
        ({"patience": 9}, [1.0, float("-inf"), 0.0], 2),
        ({"patience": 2, "check_finite": False}, [1.0, float("nan"), float("nan"), 0.0], 3),
        ({"stopping_threshold": 0.5}, [1.0, 0.5, 0.4, 0.0], 3),
        ({"stopping_threshold": 0.5, "mode": "max"}, [0.1, 0.5, 0.6, 0.7], 3),
        ({"divergence_threshold": 2.0}, [1.0, 2.0, 2.1, 0.0], 3),
        ({"divergence_threshold": 0.5, "mode": "max"}, [1.0, 0.5, 0.4, 2.0], 3),
        ({"patience": 9}, [3.0, 2.0, 1.0], 3),  # runs to the end
    ],
)
def test_when_it_stops(arguments: dict[str, Any], values: list[float], checks: int) -> None:
    trainer = run(EarlyStopping("v", **arguments), values)
    assert trainer.global_step == checks
    assert trainer.should_stop is (checks < len(values))


@pytest.mark.parametrize(
    ("arguments", "values", "reason", "words"),
    [
        ({"patience": 1}, [1.0, 1.0], "PATIENCE_EXHAUSTED", "did not improve in the last 1 checks.*was 1.000"),
        ({}, [1.0, float("nan")], "NON_FINITE_METRIC", "v = nan is not finite.*was 1.000"),
        ({"stopping_threshold": 1.0}, [0.5], "STOPPING_THRESHOLD", "goal is reached, v = 0.5 < 1.0"),
        ({"divergence_threshold": 2.0}, [3.0], "DIVERGENCE_THRESHOLD", "diverged, v = 3.0 > 2.0"),
        ({"divergence_threshold": 2.0, "mode": "max"}, [1.0], "DIVERGENCE_THRESHOLD", "diverged, v = 1.0 < 2.0"),
    ],
)
def test_the_reason_is_kept(arguments: dict[str, Any], values: list[float], reason: str, words: str) -> None:
    import re

    callback = EarlyStopping("v", **arguments)
    assert callback.stopping_reason is EarlyStoppingReason.NOT_STOPPED
    assert callback.stopping_reason_message is None
    run(callback, values)
    assert callback.stopping_reason is EarlyStoppingReason[reason]
    assert re.search(words, str(callback.stopping_reason_message))
    assert callback.stopped_epoch == len(values) - 1


@given(
    values=st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), max_size=10),
    patience=st.integers(0, 3),
    mode=st.sampled_from(["min", "max"]),
    min_delta=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=60)
def test_patience_equals_a_plain_model(values: list[float], patience: int, mode: str, min_delta: float) -> None:
    callback = EarlyStopping("v", patience=patience, mode=mode, min_delta=min_delta)
    trainer = run(callback, [torch.tensor(value) for value in values])
    best, waited, done = None, 0, 0
    for value in values:
        done += 1
        gain = None if best is None else (best - value if mode == "min" else value - best)
        if gain is None or gain > min_delta:
            best, waited = value, 0
        else:
            waited += 1
            if waited >= max(patience, 1):
                break
    assert trainer.global_step == done
    assert callback.wait_count == waited
    if best is not None:
        assert callback.best_score.item() == best


@pytest.mark.parametrize(
    ("attributes", "argument", "at_epoch_end"),
    [
        ({}, None, True),
        ({"val_check_interval": 0.5}, None, False),
        ({"check_val_every_n_epoch": 3}, None, False),
        ({}, False, False),
        ({"val_check_interval": 0.5}, True, True),
    ],
)
def test_where_it_checks(attributes: dict[str, Any], argument: bool | None, at_epoch_end: bool) -> None:
    callback = EarlyStopping("v", check_on_train_epoch_end=argument, stopping_threshold=1.0)
    trainer = FakeTrainer(callback, **attributes).start()
    trainer.batch()
    trainer.validate(v=0.0)
    assert trainer.should_stop is not at_epoch_end
    trainer.current_epoch = 2
    trainer.end_epoch()
    assert trainer.should_stop


def test_each_trainer_settles_anew_where_to_check() -> None:
    callback = EarlyStopping("v", stopping_threshold=1.0)
    FakeTrainer(callback, check_val_every_n_epoch=2).start()
    trainer = FakeTrainer(callback).start()
    trainer.validate(v=0.0)
    assert not trainer.should_stop
    trainer.end_epoch()
    assert trainer.should_stop


@pytest.mark.parametrize(
    "attributes", [{"fast_dev_run": 1}, {"sanity_checking": True}, {"state": SimpleNamespace(fn="validate")}]
)
def test_it_does_not_check_outside_of_training(attributes: dict[str, Any]) -> None:
    trainer = FakeTrainer(EarlyStopping("nope", check_on_train_epoch_end=False), **attributes).start()
    trainer.validate(v=float("nan"))
    trainer.end_epoch()
    assert not trainer.should_stop


def test_a_missing_value_is_an_error_with_what_there_is() -> None:
    trainer = FakeTrainer(EarlyStopping("val_los")).start()
    with pytest.raises(RuntimeError, match=r"val_los.*Did you mean 'val_loss'.*\['acc', 'val_loss'\]") as caught:
        trainer.epoch(val_loss=1.0, acc=0.5)
    assert isinstance(caught.value, MisconfigurationException)


def test_a_missing_value_without_strict() -> None:
    trainer = FakeTrainer(EarlyStopping("v", strict=False)).start()
    trainer.epoch()
    loud = FakeTrainer(EarlyStopping("v", strict=False, verbose=True)).start()
    with pytest.warns(RuntimeWarning, match="no such value was logged"):
        loud.epoch()
    assert not trainer.should_stop and not loud.should_stop


def test_a_value_of_validation_is_waited_for() -> None:
    callback = EarlyStopping("v", check_on_train_epoch_end=True, patience=2)
    trainer = FakeTrainer(callback, check_val_every_n_epoch=3).start()
    for epoch in range(6):
        trainer.epoch(validate=epoch % 3 == 2, **({"v": 1.0} if epoch % 3 == 2 else {}))
    assert callback.wait_count == 1  # two validations: the first is best so far, one without improvement
    assert not trainer.should_stop


def test_lightning_counts_old_values_and_fails_before_the_first() -> None:
    callback = EarlyStopping("v", check_on_train_epoch_end=True, patience=5)
    trainer = FakeTrainer(callback, policy=Policy.lightning, check_val_every_n_epoch=3).start()
    with pytest.raises(RuntimeError, match="no such value"):
        trainer.epoch(validate=False)
    trainer.epoch(v=1.0)
    trainer.epoch(validate=False)
    assert callback.wait_count == 1


def test_a_stop_that_was_put_off_is_withdrawn_when_the_value_recovers() -> None:
    callback = EarlyStopping("v", patience=1)
    trainer = FakeTrainer(callback).start()
    trainer.epoch(v=1.0)
    trainer.epoch(v=2.0)
    assert trainer.should_stop  # min_epochs lets training go on
    trainer.epoch(v=0.5)
    assert not trainer.should_stop
    assert callback.stopping_reason is EarlyStoppingReason.NOT_STOPPED
    assert callback.stopping_reason_message is None and callback.stopped_epoch == 0
    trainer.epoch(v=0.6)
    assert trainer.should_stop and callback.stopped_epoch == 3


def test_lightning_keeps_a_stop_once_asked_for() -> None:
    trainer = FakeTrainer(EarlyStopping("v", patience=1), policy=Policy.lightning).start()
    for value in (1.0, 2.0, 0.5):
        trainer.epoch(v=value)
    assert trainer.should_stop


@pytest.mark.parametrize("recovers", ["v", "w"])
def test_a_stop_that_another_callback_asks_for_is_not_withdrawn(recovers: str) -> None:
    trainer = FakeTrainer(EarlyStopping("v", patience=1), EarlyStopping("w", patience=1)).start()
    trainer.epoch(v=1.0, w=1.0)
    trainer.epoch(v=2.0, w=2.0)
    trainer.epoch(**{"v": 2.0, "w": 2.0, recovers: 0.5})
    assert trainer.should_stop
    trainer.epoch(v=0.1, w=0.1)
    assert not trainer.should_stop


def test_a_stop_that_the_user_asked_for_is_not_withdrawn() -> None:
    trainer = FakeTrainer(EarlyStopping("v", patience=1)).start()
    trainer.epoch(v=1.0)
    trainer.should_stop = True
    trainer.epoch(v=2.0)
    trainer.epoch(v=0.5)
    assert trainer.should_stop


def test_one_rank_stops_all() -> None:
    callback = EarlyStopping("v")
    trainer = FakeTrainer(callback).start()
    trainer.strategy.other_ranks = [True]
    trainer.epoch(v=1.0)
    assert trainer.should_stop


def test_state_has_lightnings_keys_and_round_trips() -> None:
    callback = EarlyStopping("v", patience=2)
    run(callback, [1.0, 2.0, 3.0])
    state = callback.state_dict()
    assert {name: state[name] for name in state if name != "fulmen"} == {
        "wait_count": 2,
        "stopped_epoch": 2,
        "best_score": torch.tensor(1.0),
        "patience": 2,
        "stopping_reason": 3,
        "stopping_reason_message": callback.stopping_reason_message,
    }
    again = EarlyStopping("v", patience=2)
    again.load_state_dict(state)
    assert again.state_dict() == state
    # A state of an older Lightning has no reason.
    again.load_state_dict({"wait_count": 0, "stopped_epoch": 0, "best_score": 1.0, "patience": 2})
    assert again.stopping_reason is EarlyStoppingReason.NOT_STOPPED


@pytest.mark.parametrize(
    ("world_size", "rank", "rank_zero_only", "said"),
    [
        (1, 0, False, ["v improved. New best score: 2.000", "v improved by 1.000 (min_delta = 0.0)"]),
        (2, 1, False, ["[rank: 1] v improved.", "[rank: 1] v improved by 1.000"]),
        (2, 1, True, []),
        (2, 0, True, ["[rank: 0] v improved.", "[rank: 0] v improved by 1.000"]),
    ],
)
def test_verbose(
    caplog: pytest.LogCaptureFixture, world_size: int, rank: int, rank_zero_only: bool, said: list[str]
) -> None:
    callback = EarlyStopping("v", verbose=True, log_rank_zero_only=rank_zero_only)
    with caplog.at_level(logging.INFO, "fulmen.callbacks.early_stopping"):
        run(callback, [2.0, 1.0, 1.0], world_size=world_size, global_rank=rank)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(said)
    assert all(message.startswith(start) for message, start in zip(messages, said, strict=True))


@pytest.mark.feature("P-03")
def test_subclasses_may_judge_and_speak_themselves() -> None:
    """As scvi-tools does: a warm-up before the criteria count, and the reason kept for later."""

    class Loud(EarlyStopping):
        said: list[str]
        checks = 0

        def _evaluate_stopping_criteria(self, current: torch.Tensor) -> tuple[bool, str | None]:
            self.checks += 1
            if self.checks <= 2:
                return False, "warming up"
            return super()._evaluate_stopping_criteria(current)

        @staticmethod
        def _log_info(trainer: Any, message: str, log_rank_zero_only: bool) -> None:
            trainer.said.append(message)

    said: list[str] = []
    trainer = run(Loud("v", patience=1, verbose=True), [1.0, 5.0, 3.0, 4.0, 0.0], said=said)
    assert trainer.global_step == 4
    assert said[:2] == ["warming up"] * 2 and said[-1].startswith("Stopping: v did not improve")

"""LambdaCallback, GradientAccumulationScheduler, Timer, the results table, and the room's lazy names."""

from __future__ import annotations

import inspect
import pickle
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fulmen.callbacks
from fulmen.callbacks import Callback, GradientAccumulationScheduler, LambdaCallback, Timer, timer
from fulmen.callbacks.results_table import print_results_table
from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning, MisconfigurationException
from tests.unit.callbacks.fakes import Clock, make_trainer


# -------------------------------------------------------------------------------------------------------------- lambda
@pytest.mark.feature("K-15")
def test_lambda_callback_has_an_argument_for_every_hook() -> None:
    hooks = {
        name
        for name, value in vars(Callback).items()
        if inspect.isfunction(value) and (name.startswith("on_") or name in ("setup", "teardown"))
    }
    given = set(inspect.signature(LambdaCallback).parameters)
    assert given == hooks
    calls: list[tuple[str, tuple[Any, ...]]] = []
    callback = LambdaCallback(**{name: lambda *args, name=name: calls.append((name, args)) for name in sorted(hooks)})
    for name in sorted(hooks):
        getattr(callback, name)("trainer", "module")
    assert calls == [(name, ("trainer", "module")) for name in sorted(hooks)]


@pytest.mark.feature("K-15")
def test_lambda_callback_leaves_other_hooks_alone() -> None:
    callback = LambdaCallback(on_train_start=lambda trainer, module: None)
    assert set(vars(callback)) == {"on_train_start"}


@pytest.mark.feature("K-15")
def test_lambda_callback_refuses_what_cannot_be_called() -> None:
    with pytest.raises(ArgumentTypeError, match=r"LambdaCallback\(on_fit_end='x'\)"):
        LambdaCallback(on_fit_end="x")  # type: ignore[arg-type]  # the wrong value is the point
    with pytest.raises(TypeError, match="on_fit_endd"):
        LambdaCallback(on_fit_endd=print)  # type: ignore[call-arg]  # the wrong name is the point


# -------------------------------------------------------------------------------------------------------- accumulation
class _Module:
    automatic_optimization = True


def _module(**changes: Any) -> Any:
    from fulmen.core.module import LightningModule

    return type("Module", (LightningModule,), changes)()


@pytest.mark.feature("K-06")
def test_accumulation_follows_the_schedule() -> None:
    given = {2: 4, 5: 1}
    scheduler = GradientAccumulationScheduler(given)
    assert given == {2: 4, 5: 1}
    assert scheduler.scheduling == {0: 1, 2: 4, 5: 1}
    assert scheduler.epochs == [0, 2, 5]
    assert scheduler.going_to_accumulate_grad_batches()
    trainer, module = make_trainer(), _module()
    seen = []
    scheduler.on_train_start(trainer, module)
    for epoch in range(7):
        trainer.current_epoch = epoch
        scheduler.on_train_epoch_start(trainer, module)
        seen.append(trainer.accumulate_grad_batches)
    assert seen == [1, 1, 4, 4, 4, 1, 1]
    assert not GradientAccumulationScheduler({0: 1}).going_to_accumulate_grad_batches()


@pytest.mark.feature("K-06")
def test_accumulation_goes_on_inside_an_epoch_and_in_a_second_fit() -> None:
    scheduler = GradientAccumulationScheduler({2: 4})
    trainer, module = make_trainer(current_epoch=3), _module()
    scheduler.on_train_start(trainer, module)
    assert trainer.accumulate_grad_batches == 4
    scheduler.on_train_start(trainer, module)  # its own number is no reason to complain


@pytest.mark.feature("K-06")
@pytest.mark.parametrize(
    ("scheduling", "error", "words"),
    [
        ({}, ArgumentTypeError, "give a dict"),
        (None, ArgumentTypeError, "give a dict"),
        ([2, 4], ArgumentTypeError, "give a dict"),
        ({"1": 2}, ArgumentTypeError, "'1': 2 is wrong"),
        ({1: 2.0}, ArgumentTypeError, "1: 2.0 is wrong"),
        ({1: True}, ArgumentTypeError, "1: True is wrong"),
        ({-1: 2}, ArgumentValueError, "epoch -1 is wrong"),
        ({1: 0}, ArgumentValueError, "0 batches in epoch 1"),
    ],
)
def test_accumulation_refuses_wrong_schedules(scheduling: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        GradientAccumulationScheduler(scheduling)


@pytest.mark.feature("K-06")
def test_accumulation_refuses_what_it_cannot_work_with() -> None:
    scheduler = GradientAccumulationScheduler({0: 2})
    with pytest.raises(MisconfigurationException, match="both set the number"):
        scheduler.on_train_start(make_trainer(accumulate_grad_batches=3), _module())
    module = _module()
    module.automatic_optimization = False
    with pytest.raises(MisconfigurationException, match="automatic optimization only"):
        scheduler.on_train_start(make_trainer(), module)
    with pytest.warns(FulmenWarning, match="once per optimizer step"):
        scheduler.on_train_start(make_trainer(), _module(optimizer_zero_grad=lambda *args: None))


# --------------------------------------------------------------------------------------------------------------- timer
@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timer, "time", clock)
    return clock


@pytest.mark.feature("K-10")
@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (None, None),
        ("01:02:03:04", 93784.0),
        (" 00:00:00:05 ", 5.0),
        (timedelta(minutes=2), 120.0),
        ({"hours": 1, "minutes": 1}, 3660.0),
    ],
)
def test_timer_reads_durations(duration: Any, seconds: float | None) -> None:
    assert Timer(duration).time_remaining() == seconds


@pytest.mark.feature("K-10")
@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"duration": "1:2"}, ArgumentValueError, "DD:HH:MM:SS"),
        ({"duration": 5}, ArgumentTypeError, "Timer\\(duration=5\\)"),
        ({"duration": {"hour": 1}}, ArgumentValueError, "'hour' is no unit. Did you mean 'hours'"),
        ({"duration": {"hours": "1"}}, ArgumentTypeError, "hours='1'"),
        ({"duration": timedelta(seconds=-1)}, ArgumentValueError, "must not be negative"),
        ({"interval": "steps"}, ArgumentValueError, "Did you mean 'step'"),
    ],
)
def test_timer_refuses_wrong_arguments(kwargs: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Timer(**kwargs)


@pytest.mark.feature("K-10", "T-03")
@pytest.mark.parametrize(("interval", "stopped_at"), [("step", 4), ("epoch", 5)])
def test_timer_stops_training(interval: str, stopped_at: int, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    own, trainer = Timer(timedelta(seconds=5), interval), make_trainer()
    own.on_fit_start(trainer, None)
    own.on_train_start(trainer, None)
    reached = None
    for i in range(6):
        clock.now += 1
        own.on_train_batch_end(trainer, None, {}, None, i)
        if trainer.should_stop and reached is None:
            reached = i
    own.on_train_epoch_end(trainer, None)
    if reached is None:
        reached = 5
    own.on_train_end(trainer, None)
    assert trainer.should_stop
    assert reached == stopped_at
    assert own.time_elapsed() == 6
    assert own.time_remaining() == -1
    clock.now += 100
    assert own.time_elapsed() == 6


@pytest.mark.feature("K-10")
def test_timer_goes_on_after_a_resume(clock: Clock) -> None:
    own, trainer = Timer(timedelta(seconds=5)), make_trainer()
    own.on_train_start(trainer, None)
    clock.now += 3
    state = own.state_dict()
    assert state["time_elapsed"]["train"] == 3
    other = Timer(timedelta(seconds=5), verbose=False)
    other.load_state_dict(state)
    other.on_fit_start(trainer, None)
    assert not trainer.should_stop
    other.on_train_start(trainer, None)
    clock.now += 2
    other.on_train_batch_end(trainer, None, {}, None, 0)
    assert trainer.should_stop
    used_up, trainer = Timer(timedelta(seconds=5), verbose=False), make_trainer()
    used_up.load_state_dict({"time_elapsed": {"train": 5.0}})
    used_up.on_fit_start(trainer, None)
    assert trainer.should_stop


@pytest.mark.feature("K-10")
def test_timer_measures_each_stage(clock: Clock) -> None:
    own, trainer = Timer(), make_trainer()
    for hook, stage in (("validation", "validate"), ("test", "test"), ("predict", "predict")):
        assert own.start_time(stage) is None
        getattr(own, f"on_{hook}_start")(trainer, None)
        clock.now += 2
        getattr(own, f"on_{hook}_end")(trainer, None)
        assert own.time_elapsed(stage) == 2
        assert own.end_time(stage) == clock.now
    assert own.time_elapsed(SimpleNamespace(value="test")) == 2  # type: ignore[arg-type]  # an enum of stages works too
    with pytest.raises(ArgumentValueError, match="no stage 'tests'"):
        own.time_elapsed("tests")


@pytest.mark.feature("K-10")
def test_timer_in_another_process_keeps_the_time_so_far(clock: Clock) -> None:
    own = Timer(timedelta(seconds=5))
    own.on_train_start(make_trainer(), None)
    clock.now += 3
    twin = pickle.loads(pickle.dumps(own))
    clock.now += 1000
    assert twin.time_elapsed() == 3
    assert own.time_elapsed() == 1003


# ------------------------------------------------------------------------------------------------------- results table
@pytest.mark.feature("T-09")
def test_results_are_plain_text_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        {"loss/dataloader_idx_0": 0.25, "acc": torch.tensor(0.5)},
        {"loss/dataloader_idx_1": 1.0, "scores": {"f1": 0.125, "many": torch.tensor([1, 2])}},
    ]
    print_results_table(results, "validate")
    assert capsys.readouterr().out == (
        f"{'-' * 43}\n"
        "Validate metric  DataLoader 0  DataLoader 1\n"
        f"{'-' * 43}\n"
        "acc              0.5\n"
        "loss             0.25          1.0\n"
        "scores:f1                      0.125\n"
        "scores:many                    [1, 2]\n"
        f"{'-' * 43}\n"
    )


@pytest.mark.feature("T-09")
def test_results_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fulmen.callbacks.results_table, "output_kind", lambda: "terminal")
    monkeypatch.setenv("COLUMNS", "80")
    print_results_table([{"acc[x]": 0.5}], "test", loader_names=["held out"])
    out = capsys.readouterr().out
    assert "Test metric" in out
    assert "held out" in out
    assert "acc[x]" in out
    assert "┃" in out


@pytest.mark.feature("T-09")
def test_many_loaders_are_shown_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_results_table([{"a_rather_long_name": i / 7} for i in range(12)], "test")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert sum(line.startswith("Test metric") for line in lines) > 1
    assert sum("DataLoader 11" in line for line in lines) == 1


@pytest.mark.feature("T-09")
def test_nothing_logged_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_results_table([{}, {}], "test")
    print_results_table([], "test")
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------------------------------------------------------- room
def test_every_public_name_is_there() -> None:
    for name in fulmen.callbacks.__all__:
        value = getattr(fulmen.callbacks, name)
        assert value.__name__ == name
        assert issubclass(value, Callback)
    assert sorted(fulmen.callbacks.__all__) == fulmen.callbacks.__all__
    assert set(fulmen.callbacks.__all__) <= set(dir(fulmen.callbacks))
    with pytest.raises(AttributeError, match="no attribute 'ModelCheckpoints'"):
        _ = fulmen.callbacks.ModelCheckpoints
    assert fulmen.callbacks.progress.ProgressBar is fulmen.callbacks.ProgressBar
    assert sys.modules["fulmen.callbacks.timer"] is timer

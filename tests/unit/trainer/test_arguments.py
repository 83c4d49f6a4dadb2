"""Wrong arguments of Trainer fail in its constructor and say what, where and how to mend it."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import ModelCheckpoint, Timer
from fulmen.callbacks.progress.plain_progress import PlainProgress
from fulmen.engine.precision.true import HalfPrecision
from fulmen.engine.storage.checkpoint_io import TorchCheckpointIO
from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning, MisconfigurationException
from tests.ids import plain
from tests.integration.toys import QUIET, quiet

TYPE, VALUE, BOTH = ArgumentTypeError, ArgumentValueError, MisconfigurationException

# argument, value, error, words of the message beside the argument's name
WRONG: list[tuple[str, Any, type[Exception], tuple[str, ...]]] = [
    ("accelerator", "gpus", VALUE, ("'gpus'", "cpu")),
    ("accelerator", 3, TYPE, ("3",)),
    ("strategy", "dpp", VALUE, ("'dpp'",)),
    ("strategy", 3, TYPE, ("3",)),
    ("devices", 0, VALUE, ("0",)),
    ("devices", -3, VALUE, ("-3",)),
    ("devices", "two", VALUE, ("'two'",)),
    ("devices", 1.5, TYPE, ("1.5",)),
    ("devices", [], TYPE, ("[]",)),
    ("num_nodes", 0, VALUE, ("0", "at least 1")),
    ("num_nodes", "1", TYPE, ("'1'", "int")),
    ("num_nodes", 2, BOTH, ("2", "one device", "num_nodes=1")),
    ("precision", "17-mixed", VALUE, ("'17-mixed'", "16-mixed")),
    ("precision", "32-mixed", VALUE, ("'32-mixed'", "32-true")),
    ("precision", 3.2, TYPE, ("3.2",)),
    ("logger", "csv", TYPE, ("'csv'", "Logger")),
    ("logger", [object()], TYPE, ("Logger",)),
    ("logger", 3, TYPE, ("3",)),
    ("callbacks", 3, TYPE, ("3", "fulmen.Callback")),
    ("callbacks", ["x"], TYPE, ("'x'", "fulmen.Callback")),
    ("callbacks", [L.Callback], TYPE, ("object, not the class",)),
    ("fast_dev_run", -1, VALUE, ("-1", "at least 0")),
    ("fast_dev_run", "yes", TYPE, ("'yes'", "bool")),
    ("max_epochs", -2, VALUE, ("-2", "-1: no limit")),
    ("max_epochs", 1.5, TYPE, ("1.5", "int")),
    ("max_epochs", True, TYPE, ("True", "int")),
    ("min_epochs", -1, VALUE, ("-1", "at least 0")),
    ("min_epochs", "1", TYPE, ("'1'", "int")),
    ("max_steps", -2, VALUE, ("-2", "-1: no limit")),
    ("max_steps", None, TYPE, ("None", "int")),
    ("max_steps", 1e3, TYPE, ("1000.0", "int")),
    ("min_steps", -1, VALUE, ("-1", "at least 0")),
    ("max_time", 3600, TYPE, ("3600", "DD:HH:MM:SS", "timedelta")),
    ("max_time", "1:30", VALUE, ("'1:30'", "DD:HH:MM:SS")),
    ("max_time", "00:00:00:xx", VALUE, ("xx", "DD:HH:MM:SS")),
    ("max_time", {"hour": 1}, VALUE, ("hour", "hours")),
    ("max_time", timedelta(-1), VALUE, ("not be negative",)),
    ("limit_train_batches", -1, VALUE, ("-1", "at least 0")),
    ("limit_train_batches", 1.5, VALUE, ("1.5", "0.0 to 1.0")),
    ("limit_train_batches", float("nan"), VALUE, ("nan", "0.0 to 1.0")),
    ("limit_val_batches", "3", TYPE, ("'3'", "int")),
    ("limit_test_batches", True, TYPE, ("True", "int")),
    ("limit_predict_batches", -0.5, VALUE, ("-0.5", "0.0 to 1.0")),
    ("overfit_batches", -1, VALUE, ("-1",)),
    ("overfit_batches", 1.5, VALUE, ("1.5", "0.0 to 1.0")),
    ("val_check_interval", 0, VALUE, ("0", "limit_val_batches=0")),
    ("val_check_interval", 1.5, VALUE, ("1.5", "0.0 to 1.0")),
    ("val_check_interval", "1h", VALUE, ("'1h'", "DD:HH:MM:SS")),
    ("val_check_interval", "00:00:00:00", VALUE, ("more than 0",)),
    ("val_check_interval", timedelta(-1), VALUE, ("not be negative",)),
    ("val_check_interval", {"hour": 1}, VALUE, ("'hour'", "'hours'")),
    ("val_check_interval", {"hours": "1"}, TYPE, ("hours='1'", "number")),
    ("val_check_interval", True, TYPE, ("True", "int")),
    ("check_val_every_n_epoch", 0, VALUE, ("0", "at least 1")),
    ("check_val_every_n_epoch", 1.0, TYPE, ("1.0", "int")),
    ("num_sanity_val_steps", -2, VALUE, ("-2", "-1: all batches")),
    ("num_sanity_val_steps", "2", TYPE, ("'2'", "int")),
    ("log_every_n_steps", -1, VALUE, ("-1", "at least 0")),
    ("log_every_n_steps", 2.0, TYPE, ("2.0", "int")),
    ("enable_checkpointing", "no", TYPE, ("'no'", "True or False")),
    ("enable_progress_bar", 1, TYPE, ("1", "True or False")),
    ("enable_model_summary", "no", TYPE, ("'no'", "True or False")),
    ("accumulate_grad_batches", 0, VALUE, ("0", "at least 1")),
    ("accumulate_grad_batches", {0: 2}, TYPE, ("{0: 2}", "GradientAccumulationScheduler")),
    ("gradient_clip_val", -1.0, VALUE, ("-1.0", "at least 0")),
    ("gradient_clip_val", float("nan"), VALUE, ("nan", "number")),
    ("gradient_clip_val", "1", TYPE, ("'1'", "number")),
    ("gradient_clip_algorithm", "nrom", VALUE, ("'nrom'", "'norm'", "'value'")),
    ("gradient_clip_algorithm", 3, TYPE, ("3", "'norm'")),
    ("deterministic", "yes", VALUE, ("'yes'", "True", "'warn'")),
    ("benchmark", "yes", TYPE, ("'yes'", "True or False")),
    ("inference_mode", None, TYPE, ("None", "True or False")),
    ("use_distributed_sampler", "no", TYPE, ("'no'", "True or False")),
    ("profiler", "simple", BOTH, ("'simple'", "not available")),
    ("detect_anomaly", 1, TYPE, ("1", "True or False")),
    ("barebones", 0, TYPE, ("0", "True or False")),
    ("plugins", "amp", TYPE, ("'amp'", "CheckpointIO")),
    ("plugins", [3], TYPE, ("3", "CheckpointIO")),
    ("sync_batchnorm", "no", TYPE, ("'no'", "True or False")),
    ("reload_dataloaders_every_n_epochs", -1, VALUE, ("-1", "at least 0")),
    ("default_root_dir", 3, TYPE, ("3", "path")),
    ("enable_autolog_hparams", "no", TYPE, ("'no'", "True or False")),
    ("model_registry", "x", BOTH, ("'x'", "not available")),
    ("policy", "right", TYPE, ("'right'", "Policy.right")),
    ("retry", -1, VALUE, ("-1", "at least 0")),
    ("retry", "2", TYPE, ("'2'", "RetryPolicy")),
    ("accumulate_normalize", "token", VALUE, ("'token'", "'tokens'", "function")),
    ("accumulate_normalize", 3, TYPE, ("3", "'samples'")),
    ("skip_bad_batches", -1, VALUE, ("-1", "in a row")),
    ("skip_bad_batches", "yes", TYPE, ("'yes'", "or a bool")),
    ("on_oom", "halve", VALUE, ("'halve'", "'split'")),
    ("on_oom", True, TYPE, ("True", "'split'")),
]


@pytest.mark.feature("T-01", "T-02")
@pytest.mark.parametrize(("name", "value", "error", "words"), WRONG, ids=lambda v: plain(v)[:30])
def test_a_wrong_argument_is_refused_when_the_trainer_is_made(
    name: str, value: Any, error: type[Exception], words: tuple[str, ...]
) -> None:
    arguments = {key: item for key, item in QUIET.items() if key != name}
    with pytest.raises(error) as caught:
        L.Trainer(**{"max_epochs": 1, **arguments, name: value})
    text = str(caught.value)
    for word in ("Trainer", name, *words):
        assert word in text, f"{word!r} is not in: {text}"


@pytest.mark.feature("T-01")
def test_every_argument_has_wrong_values_in_the_table() -> None:
    names = set(inspect.signature(L.Trainer).parameters) - {"unknown"}
    assert names - {row[0] for row in WRONG} == set()


_SWITCHES = ("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "logger")
TOGETHER: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"min_epochs": 5, "max_epochs": 2}, ("min_epochs=5", "max_epochs=2")),
    ({"min_steps": 5, "max_steps": 2}, ("min_steps=5", "max_steps=2")),
    ({"check_val_every_n_epoch": None, "val_check_interval": 0.5}, ("val_check_interval=0.5", "int")),
    ({"min_epochs": 1, "max_epochs": 0}, ("min_epochs=1", "max_epochs=0")),
    ({"min_steps": 1, "max_steps": 0}, ("min_steps=1", "max_steps=0")),
    *(
        ({"barebones": True, name: value}, ("barebones=True", f"{name}={value!r}"))
        for name, value in {
            "enable_checkpointing": True,
            "enable_progress_bar": True,
            "enable_model_summary": True,
            "logger": True,
            "log_every_n_steps": 10,
            "num_sanity_val_steps": 2,
            "fast_dev_run": 1,
            "detect_anomaly": True,
            "profiler": "simple",
        }.items()
    ),
    ({"barebones": True, "callbacks": [PlainProgress()]}, ("barebones=True", "PlainProgress")),
    ({"barebones": True, "callbacks": [ModelCheckpoint()]}, ("barebones=True", "ModelCheckpoint")),
    ({"callbacks": [PlainProgress(), PlainProgress()]}, ("PlainProgress, PlainProgress", "one progress bar")),
    ({"callbacks": [Timer("00:00:00:01"), Timer("00:00:00:02")]}, ("Timer", "state_key")),
    ({"max_time": "00:01:00:00", "callbacks": [Timer()]}, ("max_time='00:01:00:00'", "Timer(duration=...)")),
    ({"devices": 2}, ("devices", "2", "devices=1")),
    ({"devices": 2, "strategy": "single_device"}, ("'single_device'", "one device", "devices=1")),
    (
        {"precision": "16-mixed", "plugins": [HalfPrecision("bf16-true")]},
        ("precision='16-mixed'", "plugins", "one of them"),
    ),
    ({"plugins": [HalfPrecision("bf16-true"), HalfPrecision("bf16-true")]}, ("two precision plugins",)),
    ({"plugins": [TorchCheckpointIO(), TorchCheckpointIO()]}, ("two checkpoint_io plugins",)),
    ({"overfit_batches": 1, "fast_dev_run": True}, ("overfit_batches", "fast_dev_run")),
    ({"enable_checkpointing": False, "callbacks": [ModelCheckpoint()]}, ("enable_checkpointing=False", "Checkpoint")),
    ({"enable_progress_bar": False, "callbacks": [PlainProgress()]}, ("enable_progress_bar=False", "PlainProgress")),
]


@pytest.mark.feature("T-01")
@pytest.mark.parametrize(("arguments", "words"), TOGETHER, ids=lambda v: "-".join(v))
def test_arguments_that_exclude_each_other(arguments: dict[str, Any], words: tuple[str, ...]) -> None:
    switches = {key: value for key, value in QUIET.items() if key not in _SWITCHES}
    with pytest.raises(MisconfigurationException) as caught:
        L.Trainer(**{"max_epochs": 1, **switches, **arguments})
    for word in ("Trainer", *words):
        assert word in str(caught.value)


@pytest.mark.feature("T-01")
def test_deterministic_algorithms_and_cudnns_benchmark_contradict_each_other() -> None:
    kept = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    try:
        with pytest.warns(FulmenWarning, match=r"deterministic=True, benchmark=True.*Leave benchmark out"):
            quiet(deterministic=True, benchmark=True)
    finally:
        torch.use_deterministic_algorithms(kept[0])
        torch.backends.cudnn.benchmark = kept[1]


@pytest.mark.feature("T-01")
@pytest.mark.parametrize(
    ("name", "meant"),
    [("max_epoch", "max_epochs"), ("gpus", None), ("gradient_clip", "gradient_clip_val"), ("precison", "precision")],
)
def test_an_unknown_argument_is_named_with_a_suggestion(name: str, meant: str | None) -> None:
    with pytest.raises(TypeError) as caught:
        quiet(**{name: 1})
    assert f"Trainer({name}=1)" in str(caught.value)
    if meant is not None:
        assert f"Did you mean '{meant}'?" in str(caught.value)


@pytest.mark.feature("T-01")
def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        L.Trainer("cpu")  # type: ignore[misc]  # the point of the test


GOOD: list[dict[str, Any]] = [
    {"max_epochs": -1},
    {"max_epochs": None, "max_steps": 3},
    {"max_time": "00:01:00:00"},
    {"max_time": {"minutes": 3}},
    {"max_time": timedelta(seconds=3)},
    {"limit_train_batches": 0.5, "limit_val_batches": 3},
    {"num_sanity_val_steps": -1},
    {"gradient_clip_val": 0},
    {"fast_dev_run": 3},
    {"benchmark": False},
    {"devices": 1},
    {"devices": "auto"},
    {"precision": 32},
    {"precision": "64-true"},
    {"log_every_n_steps": 0},
]


@pytest.mark.feature("T-01")
@pytest.mark.parametrize("arguments", GOOD, ids=plain)
def test_right_arguments_are_taken(arguments: dict[str, Any]) -> None:
    assert isinstance(quiet(**arguments), L.Trainer)


@pytest.mark.feature("T-01")
def test_no_limit_at_all_is_a_warning_and_a_thousand_epochs() -> None:
    with pytest.warns(UserWarning, match="no limit was given"):
        trainer = quiet(max_epochs=None)
    assert trainer.max_epochs == 1000


class Own(L.Trainer):
    """A subclass with an argument of its own, the others passed on."""

    def __init__(self, *, extra: int = 0, **kwargs: Any) -> None:
        kwargs.setdefault("max_epochs", 7)
        super().__init__(**kwargs)
        self.extra = extra


@pytest.mark.feature("T-02")
def test_a_subclass_with_keyword_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Own(extra=3, **QUIET)
    assert (trainer.extra, trainer.max_epochs) == (3, 7)
    with pytest.raises(TypeError, match="max_epoch=1"):
        Own(max_epoch=1, **QUIET)
    monkeypatch.setenv("PL_TRAINER_MAX_STEPS", "5")
    assert Own(**QUIET).max_steps == 5


@pytest.mark.feature("T-01", "T-16")
@pytest.mark.parametrize("prefix", ["PL_TRAINER_", "FULMEN_TRAINER_"])
def test_defaults_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv(prefix + "MAX_STEPS", "5")
    monkeypatch.setenv(prefix + "GRADIENT_CLIP_VAL", "0.5")
    monkeypatch.setenv(prefix + "PRECISION", "bf16-mixed")
    trainer = quiet()
    assert (trainer.max_steps, trainer.gradient_clip_val, trainer.precision) == (5, 0.5, "bf16-mixed")


@pytest.mark.feature("T-01", "T-16")
def test_an_argument_that_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_MAX_EPOCHS", "5")
    monkeypatch.setenv("PL_TRAINER_ACCUMULATE_GRAD_BATCHES", "4")
    trainer = quiet(max_epochs=2, accumulate_grad_batches=1)  # 1 is the default too
    assert (trainer.max_epochs, trainer.accumulate_grad_batches) == (2, 1)


@pytest.mark.feature("T-01", "T-16")
def test_fulmens_own_variable_wins_over_lightnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_MAX_STEPS", "5")
    monkeypatch.setenv("FULMEN_TRAINER_MAX_STEPS", "6")
    assert quiet().max_steps == 6


@pytest.mark.feature("T-01", "T-16")
def test_a_misspelt_variable_is_an_error_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_MAX_EPOCH", "5")
    with pytest.raises(ArgumentValueError, match=r"PL_TRAINER_MAX_EPOCH='5'.*Did you mean 'max_epochs'"):
        quiet()


@pytest.mark.feature("T-01", "T-16")
def test_a_wrong_value_in_the_environment_is_an_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_MAX_STEPS", "many")
    with pytest.raises(ArgumentTypeError, match=r"Trainer\(max_steps='many'\)") as caught:
        quiet()
    assert caught.value.__notes__ == ["From the environment: PL_TRAINER_MAX_STEPS='many'."]

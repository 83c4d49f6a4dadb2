from __future__ import annotations

import copy
import os
import pickle
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fulmen.callbacks import checkpoint_files, model_checkpoint
from fulmen.callbacks.checkpoint import Checkpoint
from fulmen.callbacks.model_checkpoint import ModelCheckpoint
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    FulmenWarning,
    MisconfigurationException,
)
from tests.unit.callbacks.checkpoint_fakes import FakeTrainer, files, step_of

pytestmark = pytest.mark.feature("C-01")


# ------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mode": "maximum"}, ArgumentValueError, "mode='maximum'.*Did you mean 'max'"),
        ({"mode": None}, ArgumentTypeError, "mode=None.*'min' or 'max'"),
        ({"monitor": 3}, ArgumentTypeError, "monitor=3.*name of a logged value, not int"),
        ({"monitor": ""}, ArgumentValueError, "monitor=''"),
        ({"save_top_k": -2}, ArgumentValueError, "save_top_k=-2.*>= -1"),
        ({"save_top_k": None}, ArgumentTypeError, "save_top_k=None.*whole number"),
        ({"save_top_k": True}, ArgumentTypeError, "save_top_k=True.*not bool"),
        ({"save_top_k": 1.0}, ArgumentTypeError, "save_top_k=1.0.*not float"),
        ({"save_top_k": 3}, ArgumentValueError, "save_top_k=3, monitor=None.*Give a monitor"),
        ({"every_n_train_steps": -1}, ArgumentValueError, "every_n_train_steps=-1.*>= 0"),
        ({"every_n_train_steps": "5"}, ArgumentTypeError, "every_n_train_steps='5'.*not str"),
        ({"every_n_epochs": -1}, ArgumentValueError, "every_n_epochs=-1.*>= 0"),
        ({"every_n_epochs": 1, "every_n_train_steps": 2}, ArgumentValueError, "mutually exclusive"),
        ({"every_n_epochs": 1, "train_time_interval": timedelta(0)}, ArgumentValueError, "mutually exclusive"),
        ({"train_time_interval": 60}, ArgumentTypeError, "train_time_interval=60.*timedelta, not int"),
        ({"train_time_interval": timedelta(seconds=-1)}, ArgumentValueError, "negative"),
        ({"save_last": "links"}, ArgumentValueError, "save_last='links'.*Did you mean 'link'"),
        ({"save_last": 1}, ArgumentTypeError, "save_last=1.*not int"),
        ({"save_last": "link", "dirpath": "memory://a"}, ArgumentValueError, "remote.*save_last=True"),
        ({"save_on_train_epoch_end": "yes"}, ArgumentTypeError, "save_on_train_epoch_end='yes'"),
        ({"dirpath": 3}, ArgumentTypeError, "dirpath=3.*path or URL, not int"),
        ({"filename": Path("a")}, ArgumentTypeError, "filename=.*text"),
        ({"filename": "{epoch"}, ArgumentValueError, "filename.*'{epoch'.*{epoch}"),
        ({"filename": "a-{}"}, ArgumentValueError, "no metric's name"),
        ({"filename": "{0}"}, ArgumentValueError, "no metric's name"),
        ({"filename": "{val_loss:,q}"}, ArgumentValueError, "fits no number"),
    ],
)
def test_wrong_arguments_fail_in_the_constructor(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        ModelCheckpoint(**arguments)
    assert isinstance(caught.value, MisconfigurationException)
    assert "ModelCheckpoint" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "steps", "epochs"),
    [
        ({}, 0, 1),
        ({"every_n_train_steps": 5}, 5, 0),
        ({"every_n_train_steps": 0}, 0, 0),
        ({"every_n_epochs": 3}, 0, 3),
        ({"every_n_epochs": 0, "every_n_train_steps": 4}, 4, 0),
        ({"train_time_interval": timedelta(minutes=1)}, 0, 0),
    ],
)
def test_occasions_by_default_are_epochs(arguments: dict[str, Any], steps: int, epochs: int) -> None:
    callback = ModelCheckpoint(**arguments)
    assert callback.every_n_epochs == epochs
    assert f"'every_n_train_steps': {steps}" in callback.state_key


def test_state_key_tells_instances_apart() -> None:
    assert ModelCheckpoint(monitor="val_loss").state_key == (
        "ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min', 'every_n_train_steps': 0, 'every_n_epochs': 1,"
        " 'train_time_interval': None}"
    )


def test_it_is_a_checkpoint_that_decides_last_and_survives_copies() -> None:
    callback = ModelCheckpoint(monitor="val_loss", dirpath="a")
    assert isinstance(callback, Checkpoint)
    assert callback.decides_last
    for copied in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert copied.state_key == callback.state_key


# ------------------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("arguments", "metrics", "name"),
    [
        ({}, {"epoch": 1, "step": 20}, "epoch=1-step=20.ckpt"),
        ({"filename": "{epoch:03d}"}, {"epoch": 5}, "epoch=005.ckpt"),
        ({"filename": "{epoch}-{val_loss:.2f}"}, {"epoch": 2, "val_loss": 0.123456}, "epoch=2-val_loss=0.12.ckpt"),
        ({"filename": "{missing:d}"}, {}, "missing=0.ckpt"),
        ({"filename": "fixed"}, {}, "fixed.ckpt"),
        ({"filename": ""}, {"epoch": 1, "step": 2}, "epoch=1-step=2.ckpt"),
        ({"filename": "a{{b}}-{step}"}, {"step": 2}, "a{b}-step=2.ckpt"),
        (
            {"filename": "e={epoch}-{val/acc:.1f}", "auto_insert_metric_name": False},
            {"epoch": 2, "val/acc": torch.tensor(0.75)},
            "e=2-0.8.ckpt",
        ),
        ({"filename": "{val.loss:.1f}"}, {"val.loss": torch.tensor(0.5)}, "val.loss=0.5.ckpt"),
        ({"filename": "{epoch}-{epoch_test}"}, {"epoch": 1, "epoch_test": 3}, "epoch=1-epoch_test=3.ckpt"),
    ],
)
def test_names(arguments: dict[str, Any], metrics: dict[str, Any], name: str) -> None:
    before = dict(metrics)
    assert ModelCheckpoint(**arguments).format_checkpoint_name(metrics) == name
    assert metrics == before


def test_names_take_a_version_a_prefix_and_own_characters(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path)
    assert callback.format_checkpoint_name({"epoch": 1, "step": 2}, ver=3, prefix="test") == str(
        tmp_path.resolve() / "test-epoch=1-step=2-v3.ckpt"
    )
    callback.CHECKPOINT_JOIN_CHAR, callback.CHECKPOINT_EQUALS_CHAR, callback.FILE_EXTENSION = "_", ":", ".pt"
    assert callback.format_checkpoint_name({"epoch": 1, "step": 2}, ver=1).endswith("epoch:1_step:2_v1.pt")


def test_a_value_that_does_not_take_its_format_says_so() -> None:
    callback = ModelCheckpoint(filename="{val_loss:d}")
    with pytest.raises(MisconfigurationException, match=r"val_loss:d.*Unknown format.*\{val_loss:\.2f\}"):
        callback.format_checkpoint_name({"val_loss": torch.tensor(0.5)})


def test_a_misspelt_name_in_the_template_is_warned_about(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, filename="{val_los:.2f}")
    with pytest.warns(FulmenWarning, match="'val_los'.*Did you mean 'val_loss'"):
        assert callback.format_checkpoint_name({"val_loss": 0.5}).endswith("val_los=0.00.ckpt")


@pytest.mark.parametrize(
    ("loggers", "folder"),
    [
        ([], "root/checkpoints"),
        (
            [SimpleNamespace(save_dir="logs", name="lightning_logs", version=3)],
            "logs/lightning_logs/version_3/checkpoints",
        ),
        ([SimpleNamespace(save_dir="logs", name="x", version="abc")], "logs/x/abc/checkpoints"),
        ([SimpleNamespace(save_dir=None, name="x", version=0)], "root/x/version_0/checkpoints"),
    ],
)
def test_folder_comes_from_the_first_logger(loggers: list[Any], folder: str) -> None:
    callback = ModelCheckpoint()
    trainer = FakeTrainer(callback, root="root", loggers=loggers)
    callback.setup(trainer, trainer.module, "fit")
    assert callback.dirpath == folder


def test_given_folder_wins_and_is_absolute(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath="here")
    trainer = FakeTrainer(callback, root="root")
    callback.setup(trainer, trainer.module, "fit")
    assert callback.dirpath == str(tmp_path.resolve() / "here")


def test_link_in_a_remote_run_folder_is_refused() -> None:
    callback = ModelCheckpoint(save_last="link")
    trainer = FakeTrainer(callback, root="memory://bucket")
    with pytest.raises(ArgumentValueError, match="remote"):
        callback.setup(trainer, trainer.module, "fit")


# -------------------------------------------------------------------------------------------------------- occasions


def test_default_keeps_the_newest_epoch(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path)
    trainer = FakeTrainer(callback).start()
    for _ in range(3):
        trainer.epoch(2)
        assert len(files(tmp_path)) == 1
    assert files(tmp_path) == ["epoch=2-step=6.ckpt"]
    assert callback.best_model_path == str(tmp_path.resolve() / "epoch=2-step=6.ckpt")
    assert trainer.weights_only == [False] * 3


def test_all_and_none(tmp_path: Path) -> None:
    every = ModelCheckpoint(dirpath=tmp_path / "all", save_top_k=-1)
    none = ModelCheckpoint(dirpath=tmp_path / "none", save_top_k=0)
    trainer = FakeTrainer(every, none).start()
    for _ in range(3):
        trainer.epoch()
    assert len(files(tmp_path / "all")) == 3
    assert files(tmp_path / "none") == []


def test_every_n_epochs(tmp_path: Path) -> None:
    trainer = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, every_n_epochs=2, save_top_k=-1)).start()
    for _ in range(5):
        trainer.epoch()
    assert files(tmp_path) == ["epoch=1-step=2.ckpt", "epoch=3-step=4.ckpt"]


@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning])
def test_every_n_train_steps(tmp_path: Path, policy: Policy) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
    trainer = FakeTrainer(callback, policy=policy).start()
    trainer.epoch(3)
    trainer.epoch(3)
    assert files(tmp_path) == ["step=2.ckpt", "step=4.ckpt", "step=6.ckpt"]


def test_accumulated_batches_do_not_save_the_same_step_twice(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=1, save_top_k=-1)
    trainer = FakeTrainer(callback).start()
    trainer.fire("on_train_batch_end", {}, None, 0)  # nothing has stepped yet
    assert trainer.saved == []
    trainer.batch(1)
    trainer.fire("on_train_batch_end", {}, None, 2)
    assert len(trainer.saved) == 1


def test_time_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(model_checkpoint.time, "monotonic", lambda: clock[0])
    callback = ModelCheckpoint(dirpath=tmp_path, train_time_interval=timedelta(seconds=10), save_top_k=-1)
    trainer = FakeTrainer(callback).start()
    for now in (4, 9.9, 10, 15, 20.1, 29):
        clock[0] = now
        trainer.batch()
    assert [step_of(path) for path in trainer.saved] == [3, 5]


@pytest.mark.parametrize(
    ("attributes", "at_epoch_end"),
    [
        ({}, True),
        ({"val_check_interval": 0.5}, False),
        ({"val_check_interval": 10}, False),
        ({"check_val_every_n_epoch": 2}, False),
        ({"check_val_every_n_epoch": None}, False),
        ({"num_val_batches": [0, 0], "val_check_interval": 0.5}, True),
    ],
)
def test_epoch_occasions_follow_the_validation_schedule(
    tmp_path: Path, attributes: dict[str, Any], at_epoch_end: bool
) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path)
    trainer = FakeTrainer(callback, **attributes).start()
    trainer.batch()
    trainer.validate()
    assert bool(trainer.saved) is not at_epoch_end
    trainer.end_epoch()
    assert len(trainer.saved) == 1


@pytest.mark.parametrize("flag", [True, False])
def test_save_on_train_epoch_end_overrules(tmp_path: Path, flag: bool) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, save_on_train_epoch_end=flag)
    trainer = FakeTrainer(callback, val_check_interval=0.5 if flag else 1.0).start()
    trainer.batch()
    trainer.validate()
    assert bool(trainer.saved) is not flag
    trainer.end_epoch()
    assert len(trainer.saved) == 1


@pytest.mark.parametrize(
    "attributes",
    [{"fast_dev_run": 1}, {"sanity_checking": True}, {"state": SimpleNamespace(fn="validate")}],
)
def test_nothing_is_saved_outside_of_training(tmp_path: Path, attributes: dict[str, Any]) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, save_last=True, save_on_exception=True, every_n_train_steps=1)
    trainer = FakeTrainer(callback, **attributes).start()
    trainer.epoch()
    if "state" not in attributes:
        trainer.fire("on_exception", RuntimeError("x"))
        trainer.end()
    assert not callback.save_last_on_interrupt(trainer)
    assert trainer.saved == []


def test_weights_only_is_passed_on(tmp_path: Path) -> None:
    trainer = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, save_weights_only=True)).start()
    trainer.epoch()
    assert trainer.weights_only == [True]


# ------------------------------------------------------------------------------------------------- monitors and top-k


def test_top_k_keeps_the_best(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss", save_top_k=2, filename="{epoch}")
    trainer = FakeTrainer(callback).start()
    for loss in (0.5, 0.4, 0.6, 0.3, 0.45):
        trainer.epoch(val_loss=torch.tensor(loss))
    assert files(tmp_path) == ["epoch=1.ckpt", "epoch=3.ckpt"]
    assert callback.best_model_path.endswith("epoch=3.ckpt")
    assert callback.best_model_score == torch.tensor(0.3)
    assert callback.kth_best_model_path.endswith("epoch=1.ckpt")
    assert callback.kth_value == torch.tensor(0.4)
    assert callback.current_score == torch.tensor(0.3)
    assert [round(score.item(), 2) for score in callback.best_k_models.values()] == [0.4, 0.3]


def test_mode_max_and_integers(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="hits", mode="max", filename="{hits}")
    trainer = FakeTrainer(callback).start()
    for hits in (3, 2**40 + 1, 2**40):
        trainer.epoch(hits=hits)
    assert files(tmp_path) == [f"hits={2**40 + 1}.ckpt"]


def test_of_equal_values_the_earlier_stays(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_top_k=2, filename="{epoch}")
    trainer = FakeTrainer(callback).start()
    for value in (1.0, 1.0, 1.0, 0.5):
        trainer.epoch(v=value)
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=3.ckpt"]


@pytest.mark.parametrize(("mode", "worst"), [("min", torch.inf), ("max", -torch.inf)])
def test_nan_is_never_best(tmp_path: Path, mode: str, worst: float) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", mode=mode, save_top_k=2, filename="{epoch}")
    trainer = FakeTrainer(callback).start()
    trainer.epoch(v=float("nan"))
    assert callback.best_k_models[callback.best_model_path].item() == worst
    trainer.epoch(v=3.0)
    trainer.epoch(v=float("nan"))
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=1.ckpt"]
    assert callback.best_model_path.endswith("epoch=1.ckpt")
    trainer.epoch(v=4.0)
    assert files(tmp_path) == ["epoch=1.ckpt", "epoch=3.ckpt"]


@settings(max_examples=60)
@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, float("nan"), float("inf")]), min_size=1, max_size=12),
    k=st.integers(-1, 3),
    mode=st.sampled_from(["min", "max"]),
    names=st.sampled_from(["{epoch}", "same", "{v:.0f}"]),
    last=st.sampled_from([None, True, "link"]),
    policy=st.sampled_from([Policy.right, Policy.lightning]),
)
@pytest.mark.feature("C-01")
def test_files_on_disk_are_the_models_best_k(
    tmp_path_factory: pytest.TempPathFactory,
    scores: list[float],
    k: int,
    mode: str,
    names: str,
    last: Any,
    policy: Policy,
) -> None:
    folder = tmp_path_factory.mktemp("top").resolve()
    foreign = folder / "same.ckpt"
    foreign.write_text("another run's")
    callback = ModelCheckpoint(
        dirpath=folder, monitor="v", save_top_k=k, mode=mode, filename=names, save_last=last, every_n_epochs=1
    )
    trainer = FakeTrainer(callback, policy=policy).start()
    kept: list[tuple[float, int]] = []  # value to minimise, epoch
    for epoch, score in enumerate(scores):
        trainer.epoch(v=score)
        value = float("inf") if score != score else score if mode == "min" else -score
        full = k != -1 and len(kept) >= k
        if k != 0 and (not full or (score == score and value < max(kept)[0])):
            if full:
                kept.remove(max(kept))  # of equal values the latest goes
            kept.append((value, epoch))

        ranked = set(callback.best_k_models)
        assert sorted(step_of(path) - 1 for path in ranked) == sorted(epoch for _, epoch in kept)
        on_disk = {str(folder / name) for name in files(folder)} - {str(foreign), callback.last_model_path}
        assert on_disk == ranked
        if kept:
            assert step_of(callback.best_model_path) - 1 == min(kept)[1]
        if last and policy is Policy.right:
            assert step_of(callback.last_model_path) == trainer.global_step
        elif callback.last_model_path:
            assert step_of(callback.last_model_path) >= max((epoch for _, epoch in kept), default=-1) + 1
    assert foreign.read_text() == "another run's"
    assert trainer.strategy.barriers <= len(scores)
    assert all(path in trainer.saved for path in trainer.strategy.removed if path != callback.last_model_path)


def test_a_missing_monitor_warns_before_validation_and_fails_after(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="val_los")
    trainer = FakeTrainer(callback).start()
    with pytest.warns(FulmenWarning, match="monitor='val_los'"):
        trainer.epoch(validate=False)
    with pytest.raises(
        MisconfigurationException, match=r"val_los.*Did you mean 'val_loss'.*\['epoch', 'step', 'val_loss'\]"
    ):
        trainer.epoch(val_loss=0.5)
    assert trainer.saved == []


def test_a_smaller_k_after_a_resume_prunes_down_to_it(tmp_path: Path) -> None:
    first = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_top_k=3, filename="{epoch}")
    trainer = FakeTrainer(first).start()
    for value in (3.0, 2.0, 1.0):
        trainer.epoch(v=value)
    second = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_top_k=1, filename="{epoch}")
    resumed = FakeTrainer(second, current_epoch=3, global_step=3).start(trainer.states[trainer.saved[-1]])
    resumed.epoch(v=0.5)
    assert files(tmp_path) == ["epoch=3.ckpt"]


def test_all_ranks_must_agree_on_a_place(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v")
    trainer = FakeTrainer(callback).start()
    trainer.epoch(v=1.0)
    trainer.strategy.other_ranks = [False]
    assert not callback.check_monitor_top_k(trainer, torch.tensor(0.5))
    trainer.strategy.other_ranks = [True]
    assert callback.check_monitor_top_k(trainer, torch.tensor(0.5))
    assert not callback.check_monitor_top_k(trainer, None)


# ------------------------------------------------------------------ steps and validation (policy monitors_last)


def _stepwise(policy: Policy, tmp_path: Path, **arguments: Any) -> tuple[ModelCheckpoint, FakeTrainer]:
    """Every second step is an occasion; validation after every third batch."""
    callback = ModelCheckpoint(
        dirpath=tmp_path, monitor="val_loss", every_n_train_steps=2, save_top_k=-1, filename="{step}-{val_loss:.0f}",
        **arguments,
    )  # fmt: skip
    trainer = FakeTrainer(callback, policy=policy, val_check_batch=3, val_check_interval=3).start()
    for step in range(1, 10):
        trainer.batch(step - 1, last=step == 9)
        if step % 3 == 0:
            trainer.validate(val_loss=float(step))
    return callback, trainer


def test_occasions_wait_for_the_validation_that_belongs_to_them(tmp_path: Path) -> None:
    _stepwise(Policy.right, tmp_path)
    # The value in each name is of the step in the name.
    assert files(tmp_path) == ["step=3-val_loss=3.ckpt", "step=6-val_loss=6.ckpt", "step=9-val_loss=9.ckpt"]


def test_lightning_uses_the_value_of_the_validation_before(tmp_path: Path) -> None:
    _stepwise(Policy.lightning, tmp_path)
    assert files(tmp_path) == [
        "step=3-val_loss=3.ckpt", "step=4-val_loss=3.ckpt", "step=6-val_loss=3.ckpt", "step=8-val_loss=6.ckpt",
    ]  # fmt: skip


def test_last_does_not_wait(tmp_path: Path) -> None:
    _, trainer = _stepwise(Policy.right, tmp_path, save_last=True)
    assert [path.rpartition("/")[2] for path in trainer.saved] == [
        "last.ckpt",  # 2
        "step=3-val_loss=3.ckpt", "last.ckpt",
        "last.ckpt",  # 4
        "step=6-val_loss=6.ckpt", "last.ckpt",  # its validation comes at once
        "last.ckpt",  # 8
        "step=9-val_loss=9.ckpt", "last.ckpt",
    ]  # fmt: skip


def test_a_monitor_of_training_does_not_wait(tmp_path: Path) -> None:
    callback = ModelCheckpoint(
        dirpath=tmp_path, monitor="loss", every_n_train_steps=2, save_top_k=-1, filename="{step}-{loss:.0f}"
    )
    trainer = FakeTrainer(callback, val_check_batch=3, val_check_interval=3).start()
    for step in range(1, 6):
        trainer.batch(step - 1, loss=float(step))
        if step % 3 == 0:
            trainer.validate()
    assert files(tmp_path) == ["step=2-loss=2.ckpt", "step=4-loss=4.ckpt"]


def test_a_monitor_of_the_training_epoch_is_waited_for(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="loss_epoch", every_n_train_steps=1, filename="{step}")
    trainer = FakeTrainer(callback).start()
    trainer.batch(last=True)
    trainer.validate(other=1.0)
    assert trainer.saved == []
    trainer.end_epoch(loss_epoch=1.0)
    assert files(tmp_path) == ["step=1.ckpt"]


def test_a_monitor_that_never_comes_fails_at_the_end_of_the_epoch(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="nope", every_n_train_steps=1)
    trainer = FakeTrainer(callback).start()
    trainer.batch(last=True)
    trainer.validate(val_loss=1.0)
    with pytest.raises(MisconfigurationException, match=r"'nope'.*'val_loss'"):
        trainer.end_epoch()


def test_without_validation_a_missing_monitor_is_said_at_once(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss", every_n_train_steps=1)
    trainer = FakeTrainer(callback, enable_validation=False).start()
    with pytest.warns(FulmenWarning, match="no such value was logged"):
        trainer.batch()


def test_a_waiting_occasion_survives_a_resume(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", every_n_train_steps=2, save_last=True, filename="{step}")
    trainer = FakeTrainer(callback, val_check_batch=5, val_check_interval=5).start()
    trainer.sanity_check(v=1.0)
    trainer.batch(0)
    trainer.batch(1)
    again = ModelCheckpoint(dirpath=tmp_path, monitor="v", every_n_train_steps=2, save_last=True, filename="{step}")
    resumed = FakeTrainer(again, val_check_batch=5, val_check_interval=5, global_step=2)
    resumed.start(trainer.states[callback.last_model_path])
    resumed.batch(2)
    resumed.validate(v=0.5)
    assert files(tmp_path) == ["last.ckpt", "step=3.ckpt"]


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (Policy.right, ["epoch=1-v=2.ckpt", "epoch=3-v=1.ckpt"]),
        (Policy.lightning, ["epoch=1-v=2.ckpt", "epoch=2-v=2.ckpt", "epoch=3-v=1.ckpt"]),
    ],
)
def test_epochs_without_validation_do_not_decide_on_old_values(
    tmp_path: Path, policy: Policy, names: list[str]
) -> None:
    callback = ModelCheckpoint(
        dirpath=tmp_path, monitor="v", save_on_train_epoch_end=True, save_top_k=-1, filename="{epoch}-{v:.0f}"
    )
    trainer = FakeTrainer(callback, policy=policy, check_val_every_n_epoch=2).start()
    trainer.current_epoch = 1
    for epoch, value in ((1, 2.0), (2, None), (3, 1.0)):
        assert trainer.current_epoch == epoch
        trainer.epoch(validate=value is not None, **({} if value is None else {"v": value}))
    assert files(tmp_path) == names


# -------------------------------------------------------------------------------------------------------------- last


def test_last_is_the_newest_state_at_every_occasion(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_last=True, every_n_epochs=2, filename="{epoch}")
    trainer = FakeTrainer(callback).start()
    for value in (1.0, 1.0, 2.0, 3.0):
        trainer.epoch(v=value)
        assert step_of(tmp_path / "last.ckpt") == trainer.global_step
    assert files(tmp_path) == ["epoch=1.ckpt", "last.ckpt"]
    assert not (tmp_path / "last.ckpt").is_symlink()


def test_lightnings_last_is_the_newest_of_top_k(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_last=True, filename="{epoch}")
    trainer = FakeTrainer(callback, policy=Policy.lightning).start()
    for value in (1.0, 2.0):
        trainer.epoch(v=value)
    trainer.end()
    assert step_of(tmp_path / "last.ckpt") == 1


def test_last_without_top_k(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, save_top_k=0, save_last=True)
    trainer = FakeTrainer(callback).start()
    for _ in range(2):
        trainer.epoch()
        assert step_of(tmp_path / "last.ckpt") == trainer.global_step


def test_lightnings_last_without_top_k_comes_at_the_end(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, save_top_k=0, save_last=True)
    trainer = FakeTrainer(callback, policy=Policy.lightning).start()
    trainer.epoch()
    assert trainer.saved == []
    trainer.end()
    assert step_of(tmp_path / "last.ckpt") == 1


def test_link_points_to_the_newest_file_and_is_always_loadable(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_last="link", filename="{epoch}")
    trainer = FakeTrainer(callback).start()
    link = tmp_path / "last.ckpt"
    broken: list[str] = []
    original = trainer.strategy.remove_checkpoint

    def remove(path: str) -> None:
        original(path)
        if link.is_symlink() and not link.exists():
            broken.append(path)

    trainer.strategy.remove_checkpoint = remove  # type: ignore[method-assign]  # watch deletions
    for value, is_link in ((3.0, True), (2.0, True), (5.0, False), (1.0, True)):
        trainer.epoch(v=value)
        assert link.is_symlink() is is_link
        assert step_of(link) == trainer.global_step
        assert not os.path.isabs(os.readlink(link)) if is_link else True
    assert broken == []
    assert files(tmp_path) == ["epoch=3.ckpt", "last.ckpt"]


def test_links_that_the_system_refuses_become_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("privilege not held")

    monkeypatch.setattr(checkpoint_files.os, "symlink", refuse)
    trainer = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, save_last="link")).start()
    trainer.epoch()
    assert not (tmp_path / "last.ckpt").is_symlink()
    assert step_of(tmp_path / "last.ckpt") == 1


def test_link_replaces_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "a.ckpt"
    target.write_text("a")
    folder = tmp_path / "last.ckpt"
    folder.mkdir()
    (folder / "shard").write_text("x")
    checkpoint_files.link_newest(str(target), str(folder))
    assert folder.is_symlink() and folder.read_text() == "a"
    checkpoint_files.link_newest(str(target), str(target))
    assert not target.is_symlink()


def test_last_with_a_template_moves_on(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, save_top_k=0, save_last=True)
    callback.CHECKPOINT_NAME_LAST = "{epoch}-last"
    trainer = FakeTrainer(callback).start()
    for _ in range(3):
        trainer.epoch()
    assert files(tmp_path) == ["epoch=2-last.ckpt"]
    assert callback.find_last_checkpoints(trainer) == {str(tmp_path.resolve() / "epoch=2-last.ckpt")}


def test_last_of_another_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").write_text("another run's")
    callback = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    trainer = FakeTrainer(callback).start()
    trainer.epoch()
    trainer.epoch()
    assert (tmp_path / "last.ckpt").read_text() == "another run's"
    assert files(tmp_path) == ["epoch=1-step=2.ckpt", "last-v1.ckpt", "last.ckpt"]
    names = {Path(path).name for path in callback.find_last_checkpoints(trainer)}
    assert names == {"last.ckpt", "last-v1.ckpt"}


@pytest.mark.parametrize(("save_last", "inside", "names"), [
    (True, False, ["last.ckpt", "step=2.ckpt"]),
    (None, False, ["step=2.ckpt"]),
    (None, True, ["step=3.ckpt"]),
    (True, True, ["last.ckpt", "step=3.ckpt"]),
])  # fmt: skip
def test_the_end_of_the_run_is_saved(tmp_path: Path, save_last: Any, inside: bool, names: list[str]) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=2, save_last=save_last, filename="{step}")
    trainer = FakeTrainer(callback).start()
    trainer.batch(0)
    trainer.batch(1)
    trainer.batch(2, last=not inside)
    trainer.end()
    assert files(tmp_path) == names
    if save_last:
        assert step_of(tmp_path / "last.ckpt") == 3


# --------------------------------------------------------------------------------------------- exceptions, interrupts


def test_save_on_exception(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, save_on_exception=True, filename="best", save_last=True)
    (tmp_path / "best.ckpt").write_text("another run's")
    trainer = FakeTrainer(callback).start()
    trainer.batch()
    trainer.fire("on_exception", RuntimeError("x"))
    assert files(tmp_path) == ["best-v1.ckpt", "best.ckpt", "last.ckpt"]
    assert (tmp_path / "best.ckpt").read_text() == "another run's"


def test_exceptions_save_nothing_by_default(tmp_path: Path) -> None:
    trainer = FakeTrainer(ModelCheckpoint(dirpath=tmp_path)).start()
    trainer.batch()
    trainer.fire("on_exception", RuntimeError("x"))
    assert trainer.saved == []


@pytest.mark.feature("T-07")
def test_interrupt_writes_last(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path)
    trainer = FakeTrainer(callback)
    assert not callback.save_last_on_interrupt(trainer)  # never ran
    trainer.start()
    assert not callback.save_last_on_interrupt(trainer)  # nothing to save yet
    trainer.batch()
    trainer.batch()
    assert callback.save_last_on_interrupt(trainer)
    assert step_of(tmp_path / "last.ckpt") == 2
    assert callback.save_last_on_interrupt(trainer)
    assert len(trainer.saved) == 1  # it holds this state already
    trainer.fire("teardown", "fit")
    assert not callback.save_last_on_interrupt(trainer)


@pytest.mark.feature("T-07")
def test_interrupt_inside_an_accumulation_window_saves_again(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path)
    trainer = FakeTrainer(callback, accumulate_grad_batches=2).start()
    trainer.batch()
    assert callback.save_last_on_interrupt(trainer) and callback.save_last_on_interrupt(trainer)
    assert len(trainer.saved) == 2


@pytest.mark.feature("T-07")
def test_the_base_class_has_nothing_to_save() -> None:
    base = Checkpoint()
    trainer = FakeTrainer()
    assert not base.save_last_on_interrupt(trainer)
    assert base.find_last_checkpoints(trainer) == set()
    assert base.written_files == frozenset() and list(base.save_errors) == []


# ------------------------------------------------------------------------------------------------------ failed saves


@pytest.mark.feature("C-05")
@pytest.mark.parametrize("monitor", [None, "v"])
def test_a_full_disk_leaves_the_old_file_and_training_goes_on(tmp_path: Path, monitor: str | None) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor=monitor, filename="{epoch}", save_last=True)
    trainer = FakeTrainer(callback).start()
    trainer.epoch(v=3.0)
    known = {name: value for name, value in callback.state_dict().items() if name != "fulmen"}
    trainer.full = True
    with pytest.warns(FulmenWarning, match="could not write.*No space left.*Earlier checkpoints are kept"):
        trainer.epoch(v=2.0)
    trainer.epoch(v=1.0)
    assert files(tmp_path) == ["epoch=0.ckpt", "last.ckpt"]
    assert {name: value for name, value in callback.state_dict().items() if name != "fulmen"} == known
    assert callback.written_files == {str(tmp_path.resolve() / name) for name in ("epoch=0.ckpt", "last.ckpt")}
    assert [type(error) for error in callback.save_errors] == [OSError] * 4
    assert all(error.__traceback__ is None for error in callback.save_errors)
    trainer.full = False
    trainer.epoch(v=1.0)
    assert files(tmp_path) == ["epoch=3.ckpt", "last.ckpt"]
    trainer.start()
    assert callback.save_errors == []


@pytest.mark.feature("C-05")
def test_the_new_file_is_complete_before_the_old_is_deleted(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}")
    trainer = FakeTrainer(callback).start()
    seen: list[list[str]] = []
    original = trainer.strategy.remove_checkpoint

    def remove(path: str) -> None:
        seen.append(files(tmp_path))
        original(path)

    trainer.strategy.remove_checkpoint = remove  # type: ignore[method-assign]  # watch deletions
    trainer.epoch()
    trainer.epoch()
    assert seen == [["epoch=0.ckpt", "epoch=1.ckpt"]]


@pytest.mark.feature("C-05")
def test_errors_that_are_not_of_writing_pass_through(tmp_path: Path) -> None:
    class Broken:
        save_dir, name, version = None, "x", 0

        def after_save_checkpoint(self, callback: Any) -> None:
            raise ConnectionError("no network")

    callback = ModelCheckpoint(dirpath=tmp_path)
    trainer = FakeTrainer(callback, loggers=[Broken()]).start()
    with pytest.raises(ConnectionError, match="no network"):
        trainer.epoch()
    assert files(tmp_path) == ["epoch=0-step=1.ckpt"]


def test_what_cannot_be_deleted_is_tried_again(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}")
    trainer = FakeTrainer(callback).start()
    trainer.epoch()
    trainer.strategy.refuse_removal = True
    with pytest.warns(FulmenWarning, match=r"could not delete.*epoch=0\.ckpt"):
        trainer.epoch()
    trainer.strategy.refuse_removal = False
    trainer.epoch()
    assert files(tmp_path) == ["epoch=2.ckpt"]


def test_loggers_are_told_of_each_save(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    logger = SimpleNamespace(
        save_dir=None, name="x", version=0,
        after_save_checkpoint=lambda callback: told.append((callback.best_model_path, callback.last_model_path)),
    )  # fmt: skip
    callback = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_last=True)
    trainer = FakeTrainer(callback, loggers=[logger]).start()
    trainer.epoch()
    assert [(Path(best).name, Path(last).name) for best, last in told] == [
        ("epoch=0.ckpt", ""),
        ("epoch=0.ckpt", "last.ckpt"),
    ]
    trainer.is_global_zero = False
    trainer.epoch()
    assert len(told) == 2


# ----------------------------------------------------------------------------------------- other runs' files, resuming


def test_version_counter(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_top_k=3, filename="best")
    trainer = FakeTrainer(callback).start()
    for value in (3.0, 2.0, 1.0):
        trainer.epoch(v=value)
    assert files(tmp_path) == ["best-v1.ckpt", "best-v2.ckpt", "best.ckpt"]


def test_without_version_counter_the_file_is_overwritten(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, filename="best", enable_version_counter=False)
    (tmp_path / "best.ckpt").write_text('{"step": 99}')
    trainer = FakeTrainer(callback).start()
    trainer.epoch()
    assert files(tmp_path) == ["best.ckpt"]
    assert step_of(tmp_path / "best.ckpt") == 1


def test_the_file_of_rank_zero_counts_for_all(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path)
    trainer = FakeTrainer(callback, is_global_zero=False)
    (tmp_path / "a").write_text("")
    assert not callback.file_exists(tmp_path / "a", trainer)
    trainer.strategy.other_ranks = [True]
    assert callback.file_exists(tmp_path / "a", trainer)


def _resume(
    tmp_path: Path, former: FakeTrainer, path: str, *, run_id: str = "run-a", **arguments: Any
) -> tuple[ModelCheckpoint, FakeTrainer]:
    callback = ModelCheckpoint(dirpath=tmp_path, **{"filename": "{epoch}", **arguments})
    step = step_of(path)
    trainer = FakeTrainer(callback, global_step=step, current_epoch=step, run_id=run_id, ckpt_path=path)
    return callback, trainer.start(former.states[path])


def test_a_resumed_run_prunes_its_own_files(tmp_path: Path) -> None:
    former = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, filename="{epoch}")).start()
    former.epoch()
    callback, trainer = _resume(tmp_path, former, former.saved[0])
    assert callback.best_model_path == former.saved[0]
    assert files(tmp_path) == ["epoch=0.ckpt"]
    trainer.full = True
    with pytest.warns(FulmenWarning, match="could not write"):
        trainer.epoch()
    assert files(tmp_path) == ["epoch=0.ckpt"]  # kept until a newer one is complete
    trainer.full = False
    trainer.epoch()
    assert files(tmp_path) == ["epoch=2.ckpt"]


def test_a_new_run_from_a_checkpoint_deletes_nothing(tmp_path: Path) -> None:
    former = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, filename="{epoch}")).start()
    former.epoch()
    _, trainer = _resume(tmp_path, former, former.saved[0], run_id="run-b")
    trainer.epoch()
    trainer.epoch()
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=2.ckpt"]


def test_weights_only_files_do_not_replace_the_one_resumed_from(tmp_path: Path) -> None:
    former = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, filename="{epoch}")).start()
    former.epoch()
    _, trainer = _resume(tmp_path, former, former.saved[0], save_weights_only=True)
    trainer.epoch()
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=1.ckpt"]


def test_a_lightning_state_owns_no_files(tmp_path: Path) -> None:
    former = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, filename="{epoch}")).start()
    former.epoch()
    for states in former.states.values():
        for state in states.values():
            del state["fulmen"]
    _, trainer = _resume(tmp_path, former, former.saved[0])
    trainer.epoch()
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=1.ckpt"]


def test_another_folder_keeps_the_best_path_only(tmp_path: Path) -> None:
    former = FakeTrainer(ModelCheckpoint(dirpath=tmp_path / "a", monitor="v", filename="{epoch}")).start()
    former.epoch(v=1.0)
    with pytest.warns(FulmenWarning, match="the folder was.*and is"):
        callback, trainer = _resume(tmp_path / "b", former, former.saved[0], monitor="v")
    assert callback.best_model_path == former.saved[0]
    assert callback.best_k_models == {} and callback.best_model_score is None
    trainer.epoch(v=0.5)
    assert files(tmp_path) == ["a/epoch=0.ckpt", "b/epoch=1.ckpt"]


def test_a_kill_between_save_and_delete_leaves_nothing_behind(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}")
    former = FakeTrainer(callback, manifest=True).start()
    former.epoch()

    def killed(path: str) -> None:
        raise KeyboardInterrupt

    former.strategy.remove_checkpoint = killed  # type: ignore[method-assign]  # the process ends here
    with pytest.raises(KeyboardInterrupt):
        former.epoch()
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=1.ckpt"]
    _, trainer = _resume(tmp_path, former, former.saved[1])
    assert files(tmp_path) == ["epoch=1.ckpt"]  # also if nothing is left to train
    trainer.epoch()
    assert files(tmp_path) == ["epoch=2.ckpt"]


def test_files_deleted_after_the_checkpoint_are_no_longer_best(tmp_path: Path) -> None:
    former = FakeTrainer(ModelCheckpoint(dirpath=tmp_path, monitor="v", save_top_k=2, filename="{epoch}")).start()
    for value in (3.0, 2.0):
        former.epoch(v=value)
    os.unlink(former.saved[0])
    callback, _ = _resume(tmp_path, former, former.saved[1], monitor="v", save_top_k=2)
    assert list(callback.best_k_models) == [former.saved[1]]
    assert callback.best_model_path == former.saved[1]


def test_the_resumed_step_is_not_saved_again(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    former = FakeTrainer(callback).start()
    former.batch()
    again, trainer = _resume(tmp_path, former, former.saved[0], every_n_train_steps=1, save_top_k=-1)
    trainer.fire("on_train_batch_end", {}, None, 1)  # inside the next accumulation window: no step yet
    assert trainer.saved == []
    assert again.written_files == frozenset(former.saved)


def test_a_resumed_run_uses_the_names_of_its_lost_future_again(tmp_path: Path) -> None:
    def two() -> list[ModelCheckpoint]:
        # Both give the same names, so that one of them counts versions.
        return [
            ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_top_k=-1),
            ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_top_k=-1, monitor="v"),
        ]

    former = FakeTrainer(*two(), manifest=True).start()
    for value in (3.0, 2.0, 1.0):
        former.epoch(v=value)
    (tmp_path / "epoch=3.ckpt").write_text("another run's")
    before = files(tmp_path)
    assert before == [
        "epoch=0-v1.ckpt", "epoch=0.ckpt", "epoch=1-v1.ckpt", "epoch=1.ckpt", "epoch=2-v1.ckpt", "epoch=2.ckpt",
        "epoch=3.ckpt",
    ]  # fmt: skip
    callbacks = two()
    trainer = FakeTrainer(*callbacks, manifest=True, global_step=1, current_epoch=1)
    trainer.start(former.states[str(tmp_path.resolve() / "epoch=0-v1.ckpt")])
    trainer.epoch(v=2.0)
    trainer.epoch(v=1.0)
    assert files(tmp_path) == before
    assert len(trainer.saved) == 4 and not callbacks[0].written_files & callbacks[1].written_files
    trainer.epoch(v=1.0)
    assert (tmp_path / "epoch=3.ckpt").read_text() == "another run's"
    assert [path.rpartition("/")[2] for path in trainer.saved[4:]] == ["epoch=3-v1.ckpt", "epoch=3-v2.ckpt"]


def test_one_callback_in_two_runs_owns_the_files_of_the_second(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}-{step}")
    FakeTrainer(callback, run_id="fold-1").start().epoch(2)
    second = FakeTrainer(callback, run_id="fold-2").start()
    second.epoch()
    second.epoch()
    assert files(tmp_path) == ["epoch=0-step=2.ckpt", "epoch=1-step=2.ckpt"]


def test_state_has_lightnings_keys_and_round_trips(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_last=True, save_top_k=2)
    trainer = FakeTrainer(callback).start()
    trainer.epoch(v=1.0)
    state = callback.state_dict()
    assert set(state) - {"fulmen"} == {
        "monitor", "best_model_score", "best_model_path", "current_score", "dirpath", "best_k_models",
        "kth_best_model_path", "kth_value", "last_model_path",
    }  # fmt: skip
    copied = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_last=True, save_top_k=2)
    resumed = FakeTrainer(copied, global_step=1, current_epoch=1)
    resumed.start({copied.state_key: state})
    assert copied.state_dict() == state


def test_a_file_names_itself_in_its_own_state(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_last=True)
    trainer = FakeTrainer(callback).start()
    trainer.epoch(v=1.0)
    for path in trainer.saved:
        state = trainer.states[path][callback.state_key]
        assert path in (state["best_model_path"], state["last_model_path"])
        assert path in state["fulmen"]["files"]


# -------------------------------------------------------------------------------------------------------- subclasses


@pytest.mark.feature("P-03")
def test_a_subclass_may_keep_folders_in_place_of_files(tmp_path: Path) -> None:
    """As scvi-tools does: each save is a folder, the file goes, the best path loses its extension."""

    class FolderCheckpoint(ModelCheckpoint):
        def on_save_checkpoint(self, trainer: Any, *args: Any) -> None:
            name = self.format_checkpoint_name(self._monitor_candidates(trainer)).split(".ckpt")[0]
            os.makedirs(name, exist_ok=True)

        def _update_best_and_save(self, current: Any, trainer: Any, monitor_candidates: Any) -> None:
            super()._update_best_and_save(current, trainer, monitor_candidates)
            if os.path.exists(self.best_model_path):
                os.remove(self.best_model_path)
            self.best_model_path = self.best_model_path.split(".ckpt")[0]

        def _remove_checkpoint(self, trainer: Any, filepath: str) -> None:
            super()._remove_checkpoint(trainer, filepath)
            folder = filepath.split(".ckpt")[0]
            if os.path.isdir(folder):
                os.rmdir(folder)

    class Saving(FakeTrainer):
        def save_checkpoint(self, filepath: str, *args: Any, **kwargs: Any) -> None:
            super().save_checkpoint(filepath, *args, **kwargs)
            self.fire("on_save_checkpoint", {})

    callback = FolderCheckpoint(dirpath=tmp_path, monitor="v", filename="{epoch}")
    trainer = Saving(callback).start()
    for value in (3.0, 2.0, 4.0, 1.0):
        trainer.epoch(v=value)
    assert files(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["epoch=3"]
    assert callback.best_model_path.endswith("epoch=3")


@pytest.mark.feature("P-03")
def test_a_subclass_may_write_files_itself(tmp_path: Path) -> None:
    class Own(ModelCheckpoint):
        def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
            Path(filepath).write_text('{"step": 0}')

    trainer = FakeTrainer(Own(dirpath=tmp_path, monitor="v", filename="{epoch}")).start()
    for value in (2.0, 1.0):
        trainer.epoch(v=value)
    assert files(tmp_path) == ["epoch=1.ckpt"]


def test_to_yaml(tmp_path: Path) -> None:
    callback = ModelCheckpoint(monitor="v")
    with pytest.raises(CheckpointError, match="no folder before"):
        callback.to_yaml()
    trainer = FakeTrainer(callback, root=tmp_path).start()
    trainer.epoch(v=0.5)
    callback.to_yaml()
    written = yaml.safe_load((tmp_path / "checkpoints" / "best_k_models.yaml").read_text())
    assert written == {callback.best_model_path: 0.5}
    callback.to_yaml(tmp_path / "other.yaml")
    assert (tmp_path / "other.yaml").exists()


def test_remote_folder() -> None:
    callback = ModelCheckpoint(dirpath="memory://bucket/run", filename="{epoch}", save_last=True)
    trainer = FakeTrainer(callback).start()
    trainer.epoch()
    trainer.epoch()
    assert trainer.strategy.removed == ["memory://bucket/run/epoch=0.ckpt"]
    assert callback.last_model_path == "memory://bucket/run/last.ckpt"
    assert callback.find_last_checkpoints(trainer) == set()

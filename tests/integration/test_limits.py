"""What shortens a run or switches parts of it off: limits, trial runs, barebones, times."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import ModelCheckpoint, Timer
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentValueError, FulmenWarning, MisconfigurationException
from fulmen.loggers import CSVLogger
from tests.integration.toys import QUIET, Toy, fit, loader, quiet


class Counting(Toy):
    """Counts the batches of each stage, and notes what it sees in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"train": 0, "val": 0, "test": 0, "predict": 0}
        self.inference: set[bool] = set()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.counts["train"] += 1
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        self.counts["val"] += 1
        self.inference.add(torch.is_inference_mode_enabled())
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        self.counts["test"] += 1
        self.inference.add(torch.is_inference_mode_enabled())

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        self.counts["predict"] += 1
        self.inference.add(torch.is_inference_mode_enabled())
        return batch[0]


def all_four(trainer: L.Trainer, module: L.LightningModule) -> None:
    trainer.fit(module, loader(12), loader(8))
    trainer.validate(module, loader(8), verbose=False)
    trainer.test(module, loader(8), verbose=False)
    trainer.predict(module, loader(8))


# -------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(
    ("limit", "train", "other"),
    [(1, 1, 1), (1.0, 6, 4), (0, 0, 0), (0.0, 0, 0), (0.5, 3, 2), (2.0, 2, 2), (3, 3, 3), (99, 6, 4), (None, 6, 4)],
    ids=repr,
)
def test_limits_as_number_and_as_share(limit: Any, train: int, other: int) -> None:
    module = Counting()
    names = ("train", "val", "test", "predict")
    trainer = quiet(num_sanity_val_steps=0, **{f"limit_{name}_batches": limit for name in names})
    all_four(trainer, module)
    in_fit = other if train else 0
    assert module.counts == {"train": train, "val": in_fit + other, "test": other, "predict": other}


@pytest.mark.feature("T-04")
def test_one_as_an_int_is_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fulmen"):
        quiet(limit_train_batches=1, val_check_interval=1, limit_val_batches=1.0)
    text = caplog.text
    assert "Trainer(limit_train_batches=1): one batch per epoch; 1.0 would be all" in text
    assert "Trainer(val_check_interval=1): validation after every batch; 1.0 would be once per epoch" in text
    assert "limit_val_batches" not in text


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(("steps", "seen"), [(0, 0), (2, 2), (9, 4), (-1, 4)])
def test_the_sanity_check_takes_so_many_batches_and_draws_no_random_numbers(steps: int, seen: int) -> None:
    class Drawing(Counting):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            torch.rand(3)
            super().validation_step(batch, batch_idx)

    class Look(L.Callback):
        def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
            found.append((pl_module.counts["val"], torch.rand(1).item()))

    found: list[tuple[int, float]] = []
    for number in (0, steps):
        torch.manual_seed(5)
        quiet(num_sanity_val_steps=number, callbacks=Look()).fit(Drawing(), loader(2), loader(8))
    assert found == [(0, found[0][1]), (seen, found[0][1])]


@pytest.mark.feature("T-04")
@pytest.mark.parametrize("on", [True, False])
def test_inference_mode(on: bool) -> None:
    module = Counting()
    all_four(quiet(inference_mode=on), module)
    assert module.inference == {on}


# --------------------------------------------------------------------------------------------------------------- trials


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(("given", "batches"), [(True, 1), (1, 1), (3, 3), (99, 99)], ids=repr)
def test_fast_dev_run_tries_everything_and_writes_nothing(
    given: Any, batches: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Writing(Counting):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.logger.experiment.add_image("x", 1)  # what is there is no real logger
            return super().training_step(batch, batch_idx)

    module = Writing()
    with caplog.at_level(logging.INFO, "fulmen"):
        trainer = L.Trainer(
            fast_dev_run=given,
            max_epochs=7,
            max_steps=70,
            num_sanity_val_steps=5,
            check_val_every_n_epoch=3,
            val_check_interval=timedelta(days=1),
            limit_train_batches=0.5,
            default_root_dir=tmp_path,
            accelerator="cpu",
            enable_progress_bar=False,
            callbacks=[ModelCheckpoint(tmp_path / "c", monitor="val_loss")],
        )
        all_four(trainer, module)
    assert f"Trainer(fast_dev_run={given!r}): a trial with {batches} batch(es)" in caplog.text
    train, other = min(batches, 6), min(batches, 4)
    assert module.counts == {"train": train, "val": 2 * other, "test": other, "predict": other}
    assert (trainer.max_epochs, trainer.max_steps, trainer.num_sanity_val_steps) == (1, batches, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("T-04")
def test_fast_dev_run_without_a_logger_has_none() -> None:
    assert L.Trainer(fast_dev_run=True, logger=False, accelerator="cpu").loggers == []
    assert len(L.Trainer(fast_dev_run=True, accelerator="cpu").loggers) == 1


# ---------------------------------------------------------------------------------------------------------- barebones


@pytest.mark.feature("T-04")
def test_barebones_switches_everything_optional_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = Counting()
    with caplog.at_level(logging.INFO, "fulmen"):
        trainer = L.Trainer(barebones=True, max_epochs=1, accelerator="cpu", default_root_dir=tmp_path)
    for name in ("enable_checkpointing", "logger", "num_sanity_val_steps", "enable_progress_bar", "self.log"):
        assert name in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "fulmen"), pytest.warns(FulmenWarning, match=r"self.log\('val_loss', ...\)"):
        trainer.fit(module, loader(12), loader(8))
    assert "no progress is shown" in caplog.text
    assert module.counts["val"] == 4
    assert trainer.callbacks == []
    assert trainer.loggers == []
    assert trainer.log_every_n_steps == 0
    assert dict(trainer.callback_metrics) == {}
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------------------- times


class Ticking(Toy):
    """A batch takes a second of a clock that the test has put in place; notes after which batches it validated."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self.clock = clock
        self.validated: list[int] = []
        self.save_at = 0
        self.path: Path | None = None

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.clock.now += 1
        return self.loss(batch)

    def on_train_batch_end(self, *args: Any) -> None:
        if self.trainer.global_step == self.save_at:
            self.trainer.save_checkpoint(self.path)

    def on_validation_end(self) -> None:
        self.validated.append(self.trainer.global_step)
        if self.trainer.global_step == self.save_at:
            self.trainer.save_checkpoint(self.path)


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


@pytest.mark.feature("T-03")
@pytest.mark.parametrize("given", ["00:00:00:04", timedelta(seconds=4), {"seconds": 4}], ids=repr)
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning], ids=["right", "lightning"])
def test_max_time_in_each_form(given: Any, policy: Policy, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    module = Ticking(clock)
    trainer = quiet(max_epochs=None, max_time=given, policy=policy, num_sanity_val_steps=0)
    assert trainer.max_epochs == -1
    with caplog.at_level(logging.INFO, "fulmen"):
        trainer.fit(module, loader(12), loader(2))
    assert "`Trainer.fit` stopped: the time is used up after 0:00:04" in caplog.text
    assert trainer.global_step == 4
    assert module.validated == [4]


@pytest.mark.feature("T-03")
def test_a_timer_among_the_callbacks_is_a_limit_too(clock: Clock) -> None:
    module = Ticking(clock)
    trainer = quiet(max_epochs=None, callbacks=Timer({"seconds": 9}))
    trainer.fit(module, loader(12))
    assert (trainer.global_step, trainer.current_epoch) == (9, 2)


@pytest.mark.feature("T-01", "T-03")
def test_max_time_beside_a_timer(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(MisconfigurationException, match=r"max_time='00:00:01:00', callbacks=\[Timer\(\)\].*duration"):
        quiet(max_time="00:00:01:00", callbacks=Timer())
    with caplog.at_level(logging.INFO, "fulmen"):
        trainer = quiet(max_time="00:00:01:00", callbacks=Timer("00:00:00:10"))
    assert "is not used" in caplog.text
    (timer,) = [callback for callback in trainer.callbacks if isinstance(callback, Timer)]
    assert timer.time_remaining() == 10


@pytest.mark.feature("T-03", "C-02")
@pytest.mark.parametrize("interval", [{"seconds": 4}, timedelta(seconds=4)], ids=repr)
@pytest.mark.parametrize("save_at", [4, 5, 6, 7])  # 4: the checkpoint is written at the end of a validation
def test_time_between_validations_goes_on_over_a_resume(
    interval: Any, save_at: int, tmp_path: Path, clock: Clock
) -> None:
    whole = Ticking(clock)
    whole.save_at, whole.path = save_at, tmp_path / "x.ckpt"
    arguments: dict[str, Any] = {"max_epochs": 2, "val_check_interval": interval, "num_sanity_val_steps": 0}
    fit(whole, loader(12), loader(2), **arguments)
    assert whole.validated == [4, 8, 12]
    clock.now += 1000
    rest = Ticking(clock)
    quiet(**arguments).fit(rest, loader(12), loader(2), ckpt_path=tmp_path / "x.ckpt")
    assert rest.validated == [8, 12]


@pytest.mark.feature("T-04")
def test_time_between_validations_with_monitors(tmp_path: Path, clock: Clock) -> None:
    callback = ModelCheckpoint(tmp_path, "{step}", monitor="val_loss", save_top_k=-1, every_n_train_steps=3)
    trainer = quiet(
        max_epochs=2, val_check_interval="00:00:00:04", callbacks=callback, enable_checkpointing=True,
        logger=CSVLogger(tmp_path / "logs"), log_every_n_steps=1, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Ticking(clock), loader(12), loader(2))
    assert (trainer.val_check_interval, trainer.val_check_batch) == ("00:00:00:04", None)
    names = sorted(path.name for path in tmp_path.glob("*.ckpt"))
    assert names == ["step=12.ckpt", "step=4.ckpt", "step=8.ckpt"]


# ------------------------------------------------------------------------------------------------------------- folder


@pytest.mark.feature("T-01")
def test_a_root_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below" / "it"):
        with pytest.raises(ArgumentValueError, match=r"default_root_dir=.*file is a file"):
            L.Trainer(**{**QUIET, "default_root_dir": path})
    L.Trainer(max_epochs=1, **{**QUIET, "default_root_dir": tmp_path / "not" / "there"})

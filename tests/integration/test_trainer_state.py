"""What a Trainer shows of itself, inside of a fit and after it; its calls, tables and texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.callbacks import EarlyStopping, ModelCheckpoint
from fulmen.errors import ArgumentTypeError, DataError, MisconfigurationException
from fulmen.loggers import CSVLogger
from tests.integration.test_module import Data
from tests.integration.toys import Toy, fit, loader, quiet, stream

NAMES = """
state training validating testing predicting sanity_checking evaluating global_step current_epoch num_training_batches
num_val_batches num_sanity_val_batches num_test_batches num_predict_batches is_last_batch is_global_zero world_size
num_devices num_nodes device_ids global_rank local_rank node_rank strategy precision precision_plugin accelerator
log_dir default_root_dir ckpt_path received_sigterm interrupted max_epochs min_epochs max_steps min_steps
accumulate_grad_batches gradient_clip_val gradient_clip_algorithm callbacks optimizers lr_scheduler_configs model
lightning_module datamodule train_dataloader val_dataloaders test_dataloaders predict_dataloaders checkpoint_callback
checkpoint_callbacks early_stopping_callback early_stopping_callbacks progress_bar_callback should_stop logger loggers
callback_metrics logged_metrics progress_bar_metrics fast_dev_run limit_train_batches limit_val_batches
limit_test_batches limit_predict_batches val_check_interval val_check_batch check_val_every_n_epoch log_every_n_steps
num_sanity_val_steps reload_dataloaders_every_n_epochs enable_validation barebones scaler distributed_sampler_kwargs
fit_loop validate_loop test_loop predict_loop run_id policy estimated_stepping_batches
"""
READABLE = NAMES.split()


@pytest.mark.feature("T-05")
def test_everything_can_be_read_before_inside_and_after_a_fit() -> None:
    module = Toy()

    def look(trainer: Any) -> None:
        for name in READABLE:
            if name != "estimated_stepping_batches":
                getattr(trainer, name)

    class Looking(L.Callback):
        def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
            look(trainer)
            assert trainer.estimated_stepping_batches == 12

        def on_validation_batch_start(self, trainer: Any, *args: Any) -> None:
            look(trainer)

        def teardown(self, trainer: Any, *args: Any) -> None:
            look(trainer)

    trainer = quiet(max_epochs=2, callbacks=Looking())
    look(trainer)
    trainer.fit(module, loader(), loader(4))
    look(trainer)


@pytest.mark.feature("T-05")
def test_values_inside_of_a_fit(tmp_path: Path) -> None:
    train, val = loader(), loader(4)
    logger = CSVLogger(tmp_path)
    seen: list[dict[str, Any]] = []

    class Looking(Toy):
        def note(self, place: str) -> None:
            t = self.trainer
            seen.append(
                {
                    "place": place,
                    "fn": t.state.fn,
                    "stage": t.state.stage,
                    "status": t.state.status,
                    "flags": (t.training, t.validating, t.sanity_checking, t.evaluating),
                    "epoch": t.current_epoch,
                    "step": t.global_step,
                    "last": t.is_last_batch,
                }
            )

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx in (0, 5):
                self.note("train")
            t = self.trainer
            assert (t.num_training_batches, t.num_val_batches, t.num_sanity_val_batches) == (6, [2], [1])
            assert t.train_dataloader is train
            assert t.val_dataloaders is val
            assert t.model is t.lightning_module is self
            assert t.enable_validation
            assert t.log_dir == logger.log_dir
            assert (t.logger, t.loggers) == (logger, [logger])
            assert [type(o) for o in t.optimizers] == [torch.optim.SGD]
            assert (t.val_check_batch, t.estimated_stepping_batches) == (6, 12)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 0:
                self.note("val")
            return super().validation_step(batch, batch_idx)

    module = Looking()
    trainer = quiet(max_epochs=2, num_sanity_val_steps=1, logger=logger, log_every_n_steps=1, default_root_dir=tmp_path)
    trainer.fit(module, train, val)
    sanity = (False, False, True, True)
    training, validating = (True, False, False, False), (False, True, False, True)
    common = {"fn": "fit", "status": "running"}
    expected = [{"place": "val", "stage": "sanity_check", "flags": sanity, "epoch": 0, "step": 0, "last": False}]
    for epoch in (0, 1):
        first = {"place": "train", "stage": "train", "flags": training, "epoch": epoch}
        expected += [
            {**first, "step": 6 * epoch, "last": False},
            {**first, "step": 6 * epoch + 5, "last": True},
            {"place": "val", "stage": "validate", "flags": validating, "epoch": epoch, "step": 6 * epoch + 6}
            | {"last": True},
        ]
    assert seen == [{**row, **common} for row in expected]
    assert (trainer.state.fn, trainer.state.stage, trainer.state.status) == ("fit", None, "finished")
    assert (trainer.current_epoch, trainer.global_step) == (2, 12)
    assert not (trainer.training or trainer.evaluating or trainer.interrupted)
    assert trainer.lightning_module is module
    assert set(trainer.callback_metrics) == {"val_loss"}


@pytest.mark.feature("T-05")
def test_values_of_a_plain_trainer(tmp_path: Path) -> None:
    trainer = quiet(default_root_dir=tmp_path)
    assert (trainer.world_size, trainer.num_devices, trainer.num_nodes, trainer.device_ids) == (1, 1, 1, [0])
    assert (trainer.global_rank, trainer.local_rank, trainer.node_rank) == (0, 0, 0)
    assert trainer.is_global_zero
    assert type(trainer.strategy).__name__ == "SingleDeviceStrategy"
    assert type(trainer.accelerator).__name__ == "CPUAccelerator"
    assert trainer.precision == "32-true"
    assert trainer.default_root_dir == str(tmp_path)
    assert trainer.log_dir == str(tmp_path)
    assert (trainer.max_epochs, trainer.min_epochs, trainer.max_steps, trainer.min_steps) == (1, None, -1, None)
    assert (trainer.accumulate_grad_batches, trainer.gradient_clip_val) == (1, None)
    assert trainer.callbacks == trainer.loggers == trainer.optimizers == trainer.lr_scheduler_configs == []
    assert trainer.checkpoint_callback is trainer.early_stopping_callback is trainer.progress_bar_callback is None
    assert trainer.num_training_batches == math.inf
    assert trainer.num_val_batches == trainer.num_test_batches == trainer.num_predict_batches == []
    assert trainer.state.status == "initializing"
    assert trainer.ckpt_path is None
    assert not (trainer.should_stop or trainer.received_sigterm or trainer.interrupted)


@pytest.mark.feature("T-05")
def test_callbacks_by_kind() -> None:
    stopping, saving = EarlyStopping("val_loss"), ModelCheckpoint()
    trainer = quiet(callbacks=[saving, stopping], enable_checkpointing=True, enable_progress_bar=True)
    assert trainer.early_stopping_callbacks == [stopping]
    assert trainer.early_stopping_callback is stopping
    assert trainer.checkpoint_callbacks == [saving]
    assert trainer.checkpoint_callback is saving
    assert trainer.progress_bar_callback in trainer.callbacks
    assert trainer.callbacks[-1] is saving  # checkpoint callbacks come last


@pytest.mark.feature("T-05")
def test_the_ckpt_path_of_a_call(tmp_path: Path) -> None:
    trainer = fit(Toy())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    seen: list[Any] = []

    class Looking(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            seen.append(self.trainer.ckpt_path)

    trainer.validate(Looking(), loader(2), ckpt_path=tmp_path / "a.ckpt", verbose=False)
    trainer.validate(Looking(), loader(2), verbose=False)
    assert seen == [tmp_path / "a.ckpt", None]


@pytest.mark.feature("T-05")
def test_estimated_stepping_batches_outside_of_a_run_says_where_it_is_known() -> None:
    with pytest.raises(MisconfigurationException, match="inside of `fit`"):
        _ = quiet().estimated_stepping_batches
    assert quiet(max_epochs=-1).estimated_stepping_batches == math.inf
    assert quiet(max_epochs=-1, max_steps=7).estimated_stepping_batches == 7


@pytest.mark.feature("T-05")
def test_lengths_that_are_not_known_are_infinite() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        assert module.trainer.num_training_batches == math.inf
        assert module.trainer.is_last_batch == (batch_idx == 2)
        return module.loss(batch)

    fit(Toy(step), stream(6))


# --- modes ---------------------------------------------------------------------------------------------------------


class Deep(Toy):
    """Submodules in different modes; one is frozen and in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(1), nn.Sequential(nn.Dropout()))
        self.frozen = nn.BatchNorm1d(1)
        self.frozen.requires_grad_(False)
        self.frozen.eval()
        self.extra[2].eval()

    def flags(self) -> Any:
        modes = {name: m.training for name, m in self.named_modules()}
        return modes, {name: p.requires_grad for name, p in self.named_parameters()}


@pytest.mark.feature("T-06")
@pytest.mark.filterwarnings("ignore:.*in evaluation mode at the start of training")
@pytest.mark.parametrize("inference_mode", [True, False])
def test_modes_and_flags_come_back_exactly_after_evaluation(inference_mode: bool) -> None:
    seen: list[Any] = []

    class Looking(Deep):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            seen.append(self.flags())
            assert torch.is_grad_enabled()
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            assert not any(m.training for m in self.modules())
            assert not torch.is_grad_enabled()
            assert torch.is_inference_mode_enabled() == inference_mode
            return super().validation_step(batch, batch_idx)

    module = Looking()
    before = module.flags()
    trainer = fit(
        module, loader(8), loader(4), val_check_interval=2, inference_mode=inference_mode, num_sanity_val_steps=1
    )
    assert seen == [before] * 4
    assert module.flags() == before
    for call in (trainer.validate, trainer.test, trainer.predict):
        call(module, loader(4))  # type: ignore[operator]  # the calls differ in their other arguments
        assert module.flags() == before
    assert torch.is_grad_enabled()


@pytest.mark.feature("T-06")
@pytest.mark.filterwarnings("ignore:.*in evaluation mode at the start of training")
def test_modes_come_back_after_an_exception_in_evaluation() -> None:
    class Broken(Deep):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise ValueError("mine")

        def predict_step(self, batch: Any, batch_idx: int) -> None:
            raise ValueError("mine")

    module = Broken()
    before = module.flags()
    for call in (quiet().validate, quiet().predict):
        with pytest.raises(ValueError, match="mine"):
            call(module, loader(4))  # type: ignore[operator]  # as above
        assert module.flags() == before
    with pytest.raises(ValueError, match="mine"):
        fit(module, loader(4), loader(4))
    assert module.flags() == before
    assert torch.is_grad_enabled()


@pytest.mark.feature("T-06")
def test_submodules_in_evaluation_mode_are_named_when_training_begins() -> None:
    with pytest.warns(UserWarning, match=r"3 submodule\(s\) are in evaluation mode.*extra.2"):
        fit(Deep(), loader(2))


@pytest.mark.feature("T-06", "M-01")
def test_overrides_of_the_model_hooks_decide() -> None:
    class Own(Deep):
        def on_validation_model_eval(self) -> None:
            self.extra.eval()

        def on_validation_model_train(self) -> None:
            self.extra.train()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            assert self.training
            assert not self.extra.training

    module = Own()
    quiet().validate(module, loader(2), verbose=False)
    assert module.extra[2].training  # as the override says


# --- calls ---------------------------------------------------------------------------------------------------------


class NoData(Toy):
    """All steps, no loaders."""


THREE_WAYS = ("one of three ways", "LightningDataModule that defines", "on NoData")


@pytest.mark.feature("T-02")
@pytest.mark.parametrize(
    ("call", "hook", "argument"),
    [
        ("fit", "train_dataloader", "train_dataloaders="),
        ("validate", "val_dataloader", "dataloaders="),
        ("test", "test_dataloader", "dataloaders="),
        ("predict", "predict_dataloader", "dataloaders="),
    ],
)
def test_a_missing_loader_names_the_three_ways(call: str, hook: str, argument: str) -> None:
    with pytest.raises(DataError) as caught:
        getattr(quiet(), call)(NoData())
    for word in (f"Trainer.{call}", f"There is no `{hook}`", f"`{argument}`", *THREE_WAYS):
        assert word in str(caught.value)


class Nothing(L.LightningModule):
    """No hook at all."""


class OnlyStep(L.LightningModule):
    def training_step(self, batch: Any, batch_idx: int) -> None: ...


class Misspelt(L.LightningModule):
    def trainng_step(self, batch: Any, batch_idx: int) -> None: ...

    def validation_setp(self, batch: Any, batch_idx: int) -> None: ...

    def configure_optimizers(self) -> None: ...


@pytest.mark.feature("T-02")
@pytest.mark.parametrize(
    ("module", "call", "words"),
    [
        (Nothing(), "fit", ("Trainer.fit: Nothing has no `training_step`; define it",)),
        (OnlyStep(), "fit", ("OnlyStep has no `configure_optimizers`", "no default optimizer")),
        (Nothing(), "validate", ("Trainer.validate: Nothing has no `validation_step`",)),
        (Nothing(), "test", ("Trainer.test: Nothing has no `test_step`",)),
        (Nothing(), "predict", ("Trainer.predict: Nothing has neither `predict_step` nor `forward`",)),
        (Misspelt(), "fit", ("no `training_step`", "It has `trainng_step`: is that a misspelling?")),
        (Misspelt(), "validate", ("no `validation_step`", "It has `validation_setp`: is that a misspelling?")),
    ],
)
def test_a_missing_step_is_named(module: Any, call: str, words: tuple[str, ...]) -> None:
    with pytest.raises(MisconfigurationException) as caught:
        getattr(quiet(), call)(module, loader())
    for word in words:
        assert word in str(caught.value)


@pytest.mark.feature("T-02")
def test_predict_uses_forward_by_default() -> None:
    class Forward(L.LightningModule):
        def forward(self, batch: Any) -> Any:
            return batch[0].sum()

    assert len(quiet().predict(Forward(), loader(4)) or []) == 2


@pytest.mark.feature("T-02")
@pytest.mark.parametrize("call", ["fit", "validate", "test", "predict"])
@pytest.mark.parametrize(
    ("model", "words"),
    [(nn.Linear(1, 1), "Linear was given"), (Toy, "Give an object, not the class"), (3, "int was given")],
)
def test_what_is_no_module_is_refused(call: str, model: Any, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"Trainer.{call}: `model` must be a LightningModule.*{words}"):
        getattr(quiet(), call)(model, loader())


class AllData(Data):
    def test_dataloader(self) -> Any:
        return loader(4)

    def predict_dataloader(self) -> Any:
        return loader(4)


@pytest.mark.feature("T-02")
@pytest.mark.parametrize("call", ["fit", "validate", "test", "predict"])
@pytest.mark.parametrize("how", ["second positional", "datamodule"])
def test_a_data_module_as_second_argument(call: str, how: str) -> None:
    data = AllData()
    trainer = quiet()
    if how == "datamodule":
        getattr(trainer, call)(Toy(), datamodule=data)
    else:
        getattr(trainer, call)(Toy(), data)
    assert data.stages == [call]
    assert trainer.datamodule is data
    assert data.trainer is trainer


@pytest.mark.feature("T-02")
def test_loaders_and_a_data_module_exclude_each_other() -> None:
    with pytest.raises(MisconfigurationException, match="loaders or a data module, not both"):
        quiet().fit(Toy(), loader(), datamodule=AllData())
    with pytest.raises(MisconfigurationException, match="loaders or a data module, not both"):
        quiet().fit(Toy(), AllData(), loader())
    with pytest.raises(ArgumentTypeError, match=r"Trainer.test\(datamodule=...\).*DataLoader was given"):
        quiet().test(Toy(), datamodule=loader())


@pytest.mark.feature("T-02")
def test_predictions() -> None:
    class Several(Toy):
        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return self.net(batch[0])

    module = Several()
    one = quiet().predict(module, loader(4))
    several = quiet().predict(module, [loader(4), loader(2)])
    assert [len(part) for part in several or []] == [2, 1]
    assert one is not None
    assert torch.equal(one[1], (several or [])[0][1])
    assert one[0].shape == (2, 1)
    assert quiet().predict(module, loader(4), return_predictions=False) is None
    assert quiet(limit_predict_batches=1).predict(module, loader(4), return_predictions=True) is not None


@pytest.mark.feature("T-02")
def test_calls_without_a_module_use_the_last_one() -> None:
    trainer = quiet()
    for call in (trainer.validate, trainer.test, trainer.predict):
        with pytest.raises(TypeError, match="without a module works after `fit` only"):
            call()
    module, data = Toy(), AllData()
    trainer.fit(module, data)
    expected = trainer.validate(verbose=False)
    assert len(trainer.predict() or []) == 2
    assert trainer.test(dataloaders=loader(4), verbose=False)[0]["test_loss"] == expected[0]["val_loss"]
    assert trainer.lightning_module is module


# --- texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-09")
def test_validate_and_test_return_and_print_results(capsys: pytest.CaptureFixture[str]) -> None:
    module = Toy()
    expected = module.loss(next(iter(loader(4, 4)))).item()
    (result,) = quiet().test(module, loader(4, 2))
    assert result == {"test_loss": pytest.approx(expected)}
    assert type(result["test_loss"]) is float
    out = capsys.readouterr().out
    assert "test_loss" in out
    assert f"{expected:.4f}"[:5] in out
    assert "test" in out.lower()
    assert quiet().validate(module, loader(4), verbose=False) == [{"val_loss": pytest.approx(expected)}]
    assert capsys.readouterr().out == ""


@pytest.mark.feature("T-09")
def test_a_result_for_each_loader(capsys: pytest.CaptureFixture[str]) -> None:
    class Several(Toy):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("a", float(dataloader_idx))
            self.log("same", 1.0, add_dataloader_idx=False)

    results = quiet().validate(Several(), [loader(2), loader(4)])
    assert [r[f"a/dataloader_idx_{i}"] for i, r in enumerate(results)] == [0.0, 1.0]
    out = capsys.readouterr().out
    assert "a" in out
    assert "same" in out


@pytest.mark.feature("T-09")
def test_nothing_to_evaluate_is_an_empty_list() -> None:
    assert quiet(limit_test_batches=0).test(Toy(), loader()) == []
    assert quiet(limit_predict_batches=0).predict(Toy(), loader()) == []


@pytest.mark.feature("T-10")
def test_a_trainer_prints_what_it_is() -> None:
    text = repr(quiet(precision="bf16-mixed", accumulate_grad_batches=4, max_epochs=3))
    for word in ("Trainer(", "1 x cpu", "SingleDeviceStrategy", "bf16-mixed", "max_epochs=3", "batches=4"):
        assert word in text


@pytest.mark.feature("T-10")
@pytest.mark.parametrize("seeded", [True, False])
def test_the_header_of_a_run(caplog: pytest.LogCaptureFixture, seeded: bool, tmp_path: Path) -> None:
    if seeded:
        L.seed_everything(11, verbose=False)
    with caplog.at_level("INFO"):
        fit(
            Toy(),
            loader(14),
            accumulate_grad_batches=3,
            enable_model_summary=True,
            logger=CSVLogger(tmp_path),
            log_every_n_steps=1,
        )
    lines = {line.split("  ")[1].strip(): line for line in caplog.text.splitlines() if line.startswith("  ")}
    text = caplog.text
    for name, value in (
        ("devices", "1 x cpu"),
        ("strategy", "SingleDeviceStrategy"),
        ("precision", "32-true"),
        ("global batch size", "6 (2 x 3 x 1)"),
        ("steps per epoch", "3"),
        ("seed", "11" if seeded else "none (call seed_everything"),
        ("log folder", "lightning_logs"),
    ):
        row = next(line for line in text.splitlines() if name in line)
        assert value in row, (name, row, lines)


@pytest.mark.feature("T-10")
def test_the_header_without_a_known_length(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        fit(Toy(), DataLoader([(torch.zeros(2, 4), torch.zeros(2, 1))] * 2, batch_size=None), enable_model_summary=True)
        fit(Toy(), stream(4), enable_model_summary=True)
    rows = [line for line in caplog.text.splitlines() if "global batch size" in line or "steps per epoch" in line]
    assert ["unknown" in row for row in rows] == [True, False, False, True]

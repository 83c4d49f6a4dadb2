"""ModelCheckpoint and EarlyStopping in real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.callbacks import EarlyStopping, ModelCheckpoint
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import CheckpointError, FulmenWarning
from fulmen.loggers import CSVLogger


def data(seed: int, rows: int = 12) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=2, shuffle=seed == 1)


class Regressor(L.LightningModule):
    """Small and exact; `at` maps a batch count to what is done there."""

    def __init__(self, at: dict[int, Any] | None = None, values: list[float] | None = None) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 1))
        self.at = at or {}
        self.values = values
        self.batches = 0

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.batches += 1
        if self.batches in self.at:
            raise self.at[self.batches]
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def on_validation_epoch_end(self) -> None:
        if self.values is not None and not self.trainer.sanity_checking:
            self.log("v", self.values[self.trainer.current_epoch])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.05)


def trainer(root: Path, *callbacks: Any, **arguments: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return L.Trainer(default_root_dir=root, callbacks=list(callbacks), **{"max_epochs": 3, **quiet, **arguments})


def fit(root: Path, *callbacks: Any, module: Any = None, ckpt_path: Any = None, **arguments: Any) -> tuple[Any, Any]:
    """One run from a fixed seed, over 6 training and 3 validation batches per epoch."""
    L.seed_everything(3, verbose=False)
    module = module if module is not None else Regressor()
    made = trainer(root, *callbacks, **arguments)
    made.fit(module, data(1), data(2, 6), ckpt_path=ckpt_path)
    return made, module


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.ckpt"))


def read(path: Any) -> dict[str, Any]:
    return torch.load(path, weights_only=True)  # type: ignore[no-any-return]  # torch.load is typed loosely


@pytest.mark.feature("C-01")
def test_the_default_callback_keeps_the_newest_epoch(tmp_path: Path) -> None:
    made, _ = fit(tmp_path)
    assert names(tmp_path / "checkpoints") == ["epoch=2-step=18.ckpt"]
    assert made.checkpoint_callback.best_model_path == str(tmp_path / "checkpoints" / "epoch=2-step=18.ckpt")


@pytest.mark.feature("C-01")
def test_the_folder_is_the_loggers(tmp_path: Path) -> None:
    fit(tmp_path, max_epochs=1, logger=CSVLogger(tmp_path, name="runs"), log_every_n_steps=1)
    assert names(tmp_path / "runs" / "version_0" / "checkpoints") == ["epoch=0-step=6.ckpt"]


@pytest.mark.feature("C-01")
@pytest.mark.parametrize(
    ("occasions", "arguments"),
    [
        ({}, {}),
        ({}, {"val_check_interval": 0.5}),
        ({"every_n_train_steps": 2}, {"val_check_interval": 3}),
        ({"every_n_train_steps": 4}, {}),
        ({"save_on_train_epoch_end": True}, {"check_val_every_n_epoch": 2, "max_epochs": 4}),
    ],
)
def test_the_value_in_the_name_is_the_one_of_the_weights_in_the_file(
    tmp_path: Path, occasions: dict[str, Any], arguments: dict[str, Any]
) -> None:
    callback = ModelCheckpoint(
        dirpath=tmp_path, monitor="val_loss", save_top_k=2, filename="{step}-{val_loss:.6f}", **occasions
    )
    made, module = fit(tmp_path, callback, **arguments)
    assert len(callback.best_k_models) == 2
    for path, score in callback.best_k_models.items():
        result = made.validate(module, data(2, 6), ckpt_path=path, verbose=False)[0]["val_loss"]
        assert f"val_loss={result:.6f}.ckpt" in path
        assert score.item() == pytest.approx(result, abs=1e-7)
    assert {Path(path).name for path in callback.best_k_models} == set(names(tmp_path))


@pytest.mark.feature("C-01")
@pytest.mark.parametrize(("policy", "step"), [(Policy.right, 18), (Policy.lightning, 6)])
def test_last_is_the_newest_state(tmp_path: Path, policy: Policy, step: int) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_last=True, filename="best")
    fit(tmp_path, callback, module=Regressor(values=[1.0, 2.0, 3.0]), policy=policy)
    assert names(tmp_path) == ["best.ckpt", "last.ckpt"]
    assert read(tmp_path / "best.ckpt")["global_step"] == 6
    assert read(tmp_path / "last.ckpt")["global_step"] == step


@pytest.mark.feature("C-01", "C-02")
@pytest.mark.parametrize("saved_by", [{}, {"every_n_train_steps": 4}, {"monitor": "val_loss"}])
def test_a_resumed_run_ends_with_the_files_of_an_uninterrupted_one(tmp_path: Path, saved_by: dict[str, Any]) -> None:
    def callback(folder: str) -> ModelCheckpoint:
        return ModelCheckpoint(dirpath=tmp_path / folder, save_last=True, save_top_k=1, **saved_by)

    fit(tmp_path, callback("whole"))
    with pytest.raises(ValueError, match="broken"):
        fit(tmp_path, callback("parts"), module=Regressor(at={15: ValueError("broken")}))
    assert read(tmp_path / "parts" / "last.ckpt")["global_step"] == 12
    fit(tmp_path, callback("parts"), ckpt_path="last")
    assert read(tmp_path / "parts" / "last.ckpt")["global_step"] == 18
    assert names(tmp_path / "parts") == names(tmp_path / "whole")
    assert len(names(tmp_path / "parts")) == 2


@pytest.mark.feature("C-01")
def test_files_of_another_run_are_left_alone(tmp_path: Path) -> None:
    fit(tmp_path, ModelCheckpoint(dirpath=tmp_path, save_last=True), max_epochs=1)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.ckpt")}
    fit(tmp_path, ModelCheckpoint(dirpath=tmp_path, save_last=True), max_epochs=1)
    assert names(tmp_path) == ["epoch=0-step=6-v1.ckpt", "epoch=0-step=6.ckpt", "last-v1.ckpt", "last.ckpt"]
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.feature("C-01", "C-07")
def test_state_in_the_file_is_plain_and_has_lightnings_keys(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss")
    stopping = EarlyStopping("val_loss")
    fit(tmp_path, callback, stopping, max_epochs=1)
    states = read(callback.best_model_path)["callbacks"]
    assert set(states) >= {callback.state_key, stopping.state_key}
    assert states[callback.state_key]["best_model_path"] == callback.best_model_path
    assert states[stopping.state_key]["best_score"].item() == pytest.approx(callback.best_model_score.item())


@pytest.mark.feature("T-07", "C-02")
def test_an_interrupt_leaves_a_file_to_go_on_from(tmp_path: Path) -> None:
    _, whole = fit(tmp_path, ModelCheckpoint(dirpath=tmp_path / "whole"))

    class Interrupt(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == 9:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, ModelCheckpoint(dirpath=tmp_path / "parts"), Interrupt())
    assert names(tmp_path / "parts") == ["epoch=0-step=6.ckpt", "last.ckpt"]
    _, resumed = fit(tmp_path, ModelCheckpoint(dirpath=tmp_path / "parts"), ckpt_path="last")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.feature("T-07")
def test_an_interrupt_without_a_checkpoint_callback_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, module=Regressor(at={3: KeyboardInterrupt()}), enable_checkpointing=False)
    assert list(tmp_path.rglob("*.ckpt")) == []


@pytest.mark.feature("C-05")
def test_a_full_disk_is_an_error_at_the_end_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fulmen.engine.storage.checkpoint_io import TorchCheckpointIO

    real = TorchCheckpointIO.save_checkpoint

    def save(self: Any, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if checkpoint["global_step"] > 6:
            raise CheckpointError(f"cannot write {path}: no space left on device")
        real(self, checkpoint, path, storage_options)

    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", save)
    module = Regressor()
    with (
        pytest.warns(FulmenWarning, match="could not write"),
        pytest.raises(CheckpointError, match="no space left on device"),
    ):
        fit(tmp_path, ModelCheckpoint(dirpath=tmp_path), module=module)
    assert module.batches == 18
    assert names(tmp_path) == ["epoch=0-step=6.ckpt"]
    assert read(tmp_path / "epoch=0-step=6.ckpt")["global_step"] == 6


@pytest.mark.feature("K-02")
@pytest.mark.parametrize(
    ("values", "min_epochs", "policy", "epochs"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], None, Policy.right, 3),
        ([1.0, 2.0, 3.0, 0.5, 0.4, 0.3], 4, Policy.right, 6),  # recovers before a stop may take effect
        ([1.0, 2.0, 3.0, 0.5, 0.4, 0.3], 4, Policy.lightning, 4),
    ],
)
@pytest.mark.filterwarnings("ignore:A stop was asked for")
def test_early_stopping(
    tmp_path: Path, values: list[float], min_epochs: int | None, policy: Policy, epochs: int
) -> None:
    stopping = EarlyStopping("v", patience=2)
    made, _ = fit(
        tmp_path, stopping, module=Regressor(values=values), max_epochs=6, min_epochs=min_epochs, policy=policy,
        enable_checkpointing=False,
    )  # fmt: skip
    assert made.current_epoch == epochs
    assert (stopping.stopping_reason.name == "NOT_STOPPED") is (epochs == 6)


@pytest.mark.feature("K-02")
def test_a_missing_monitor_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"'val_los'.*Did you mean 'val_loss'"):
        fit(tmp_path, EarlyStopping("val_los"), enable_checkpointing=False)

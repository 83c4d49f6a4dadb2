"""A call of `validate` inside of a hook of `fit` leaves the fit as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.loggers import CSVLogger
from fulmen.loggers.record import read_record


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.stages: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", self.layer(batch[0]).mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Inside(L.Callback):
    """Validates on other data in the middle of an epoch."""

    def __init__(self, fails: bool = False) -> None:
        self.results: list[Any] = []
        self.after: list[Any] = []
        self.fails = fails

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx != 1:
            return
        if self.fails:
            with pytest.raises(TypeError):
                trainer.validate(pl_module, DataLoader([None]), verbose=False)
        else:
            self.results += trainer.validate(pl_module, loader(), verbose=False)
        self.after.append((trainer.state.fn.value, trainer.training, pl_module.training))
        pl_module.log("after", 1.0)


def loader() -> Any:
    return DataLoader(TensorDataset(torch.randn(8, 4, generator=torch.Generator().manual_seed(0))), batch_size=2)


@pytest.mark.feature("T-02", "T-06")
@pytest.mark.parametrize("fails", [False, True], ids=["ends well", "raises"])
def test_fit_goes_on_after_a_validate_inside_a_hook(fails: bool) -> None:
    weights = []
    inside = Inside(fails)
    for callbacks in ([], [inside]):
        L.seed_everything(3, verbose=False)
        model = Net()
        trainer = L.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=CSVLogger(".", name=f"run{len(callbacks)}"),
            callbacks=list(callbacks),
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
            num_sanity_val_steps=0,
        )
        trainer.fit(model, loader(), loader())
        weights.append(model.layer.weight.detach().clone())
        assert trainer.state.finished
    assert torch.equal(*weights)  # the nested call changed nothing
    assert inside.after == [("fit", True, True)] * 2
    assert {"loss", "val", "after"} <= set(trainer.callback_metrics)
    assert len(inside.results) == (0 if fails else 2)


@pytest.mark.feature("G-08")
def test_the_record_has_epochs_validations_and_checkpoints() -> None:
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=CSVLogger(".", name="run"),
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    trainer.fit(Net(), loader(), loader())
    entries = list(read_record(f"{trainer.log_dir}/run.jsonl"))
    kinds = [entry["kind"] for entry in entries]
    assert kinds[0] == "start" and kinds[-1] == "end"
    assert kinds.count("epoch") == 2 and kinds.count("validation") == 2
    assert [e["step"] for e in entries if e["kind"] == "epoch"] == [4, 8]
    saved = [e["path"] for e in entries if e["kind"] == "checkpoint"]
    assert saved[-1] == trainer.checkpoint_callback.best_model_path
    assert all("val" in e["results"][0] for e in entries if e["kind"] == "validation")

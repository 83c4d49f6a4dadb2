"""Small parts of Lightning's interface that nothing else uses here do what they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import fulmen as L
from fulmen.accelerators import CUDAAccelerator
from fulmen.demos.boring_classes import BoringModel
from fulmen.export.summary import ModelSummary
from fulmen.loggers import CSVLogger
from fulmen.plugins import MixedPrecision
from fulmen.utilities import is_overridden


def test_numbering_of_gpus_is_that_of_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    CUDAAccelerator.set_nvidia_flags(0)
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_autocast_under_its_old_name() -> None:
    with MixedPrecision("bf16-mixed", "cpu").autocast_context_manager():
        assert torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2)).dtype is torch.bfloat16


def test_layers_of_a_summary() -> None:
    layers = ModelSummary(BoringModel()).summarize()
    assert {name: layer.num_parameters for name, layer in layers.items()} == {"layer": 66}


def test_nothing_overrides_no_hook() -> None:
    assert not is_overridden("training_step", None)
    assert is_overridden("training_step", BoringModel(), L.LightningModule)


@pytest.mark.parametrize("on", [True, False])
def test_sending_hyperparameters_can_be_switched_before_a_run(tmp_path: Path, on: bool) -> None:
    class Model(BoringModel):
        def __init__(self, width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters()

    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=1,
        logger=CSVLogger(tmp_path, name="", version=""),
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        limit_val_batches=0,
        log_every_n_steps=1,
    )
    trainer.enable_autolog_hparams = on
    trainer.fit(Model())
    file = tmp_path / "hparams.yaml"
    assert (file.exists() and "width: 3" in file.read_text()) is on

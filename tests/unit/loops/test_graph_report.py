"""A step whose tensors with graph are kept by somebody is told what, where and how much."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.errors import FulmenWarning

pytestmark = pytest.mark.feature("L-06")


class Net(L.LightningModule):
    def __init__(self, *, detach: bool, keep: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2**16)
        self.detach, self.keep = detach, keep
        self.kept: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        hidden = self.layer(batch[0])
        return {"loss": hidden.mean(), "hidden": hidden.detach() if self.detach else hidden, "n": 3}

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.keep:
            self.kept.append(outputs["hidden"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(model: L.LightningModule) -> None:
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=2))


def test_kept_tensors_with_graph_are_named_with_their_size() -> None:
    with pytest.warns(FulmenWarning, match=r"Net\.training_step returned 'hidden' with graph \(0\.50 MB\).*W604"):
        fit(Net(detach=False, keep=True))


@pytest.mark.parametrize(("detach", "keep"), [(True, True), (False, False)], ids=["detached", "not kept"])
def test_others_are_fine(detach: bool, keep: bool) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(Net(detach=detach, keep=keep))
    assert not [warning for warning in found if "W604" in str(warning.message)]

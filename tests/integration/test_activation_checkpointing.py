"""Activation checkpointing inside of a run: where users put it, what comes out, what is in the checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as torch_wrapper
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import offload_wrapper
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.utilities import checkpoint_activations, checkpoint_wrapper, is_checkpointed


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.dropout(torch.relu(self.linear(x)))


class Plain(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0]).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self(batch[0]).square().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.1)


class InConfigureModel(Plain):
    def configure_model(self) -> None:
        checkpoint_activations(self)


class InOldHook(Plain):
    """As it was written with FairScale: its function, its keyword, the hook's old name."""

    def configure_sharded_model(self) -> None:
        for index, layer in enumerate(self.layers):
            self.layers[index] = checkpoint_wrapper(layer, offload_to_cpu=True)


class TorchsWrapper(Plain):
    def configure_sharded_model(self) -> None:
        if not hasattr(self.layers[0], "_checkpoint_wrapped_module"):  # the hook runs before each call
            for index, layer in enumerate(self.layers):
                self.layers[index] = torch_wrapper(layer)


class TorchsOffload(Plain):
    def configure_model(self) -> None:
        if not hasattr(self.layers[0], "_checkpoint_wrapped_module"):
            for index, layer in enumerate(self.layers):
                self.layers[index] = offload_wrapper(torch_wrapper(layer))


class WholeModule(Plain):
    def __init__(self) -> None:
        super().__init__()
        checkpoint_wrapper(self)


def fit(module: L.LightningModule, folder: Path, **kwargs: Any) -> L.Trainer:
    L.seed_everything(5, verbose=False)
    data = DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=4)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **kwargs,
    )
    trainer.fit(module, data, data)
    trainer.validate(module, data, verbose=False)
    return trainer


@pytest.mark.feature("M-09")
@pytest.mark.parametrize("kind", [InConfigureModel, InOldHook, TorchsWrapper, TorchsOffload, WholeModule])
def test_same_weights_and_keys(tmp_path: Path, kind: Any) -> None:
    L.seed_everything(1, verbose=False)
    plain = Plain()
    other = kind()
    other.load_state_dict(plain.state_dict())
    plain_run, run = fit(plain, tmp_path), fit(other, tmp_path)
    # 8 training steps computed twice, 2 batches of the sanity check, 2 epochs and 1 validation of 4 batches once.
    calls = [getattr(layer, "calls", 0) for layer in other.layers]
    assert calls == [8 * 2 + 2 + 3 * 4] * 3
    for trainer, name in ((plain_run, "plain.ckpt"), (run, "other.ckpt")):
        trainer.save_checkpoint(tmp_path / name)
    states = [torch.load(tmp_path / n, weights_only=True)["state_dict"] for n in ("plain.ckpt", "other.ckpt")]
    assert list(states[0]) == list(states[1])
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
    # Either class reads the file of the other.
    for cls, name in ((Plain, "other.ckpt"), (kind, "plain.ckpt")):
        loaded = cls.load_from_checkpoint(tmp_path / name)
        assert torch.equal(loaded.head.weight, plain.head.weight)
        assert torch.equal(loaded.state_dict()["layers.2.linear.weight"], states[0]["layers.2.linear.weight"])


@pytest.mark.feature("M-09")
@pytest.mark.parametrize("kwargs", [{"precision": "bf16-mixed"}, {"accumulate_grad_batches": 3}])
def test_with_autocast_and_accumulation(tmp_path: Path, kwargs: dict[str, Any]) -> None:
    L.seed_everything(1, verbose=False)
    plain = Plain()
    other = InConfigureModel()
    other.load_state_dict(plain.state_dict())
    fit(plain, tmp_path, **kwargs)
    fit(other, tmp_path, **kwargs)
    assert all(map(torch.equal, plain.parameters(), other.parameters()))


@pytest.mark.feature("M-09")
def test_a_run_goes_on_with_and_without(tmp_path: Path) -> None:
    L.seed_everything(1, verbose=False)
    first = InConfigureModel()
    trainer = fit(first, tmp_path)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    ends = []
    for kind in (Plain, InConfigureModel):
        module = kind()
        data = DataLoader(TensorDataset(torch.randn(16, 8, generator=torch.Generator().manual_seed(0))), batch_size=4)
        again = L.Trainer(
            accelerator="cpu",
            max_epochs=3,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        again.fit(module, data, ckpt_path=tmp_path / "a.ckpt")
        assert again.global_step == 12
        ends.append(module.head.weight.detach().clone())
    assert torch.equal(*ends)


def test_copies_of_a_module_in_and_after_a_run(tmp_path: Path) -> None:
    copies = []

    class Copies(InConfigureModel):
        def on_train_batch_end(self, *args: Any) -> None:
            copies.append(copy.deepcopy(self))

    module = Copies()
    fit(module, tmp_path)
    copies.append(copy.deepcopy(module))
    assert all(is_checkpointed(c.layers[0]) for c in copies)
    assert torch.equal(copies[-1].head.weight, module.head.weight)

"""`PreciseBatchNorm`: statistics as of one big batch of the present weights, and nothing else changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import fulmen as L
from fulmen.callbacks import PreciseBatchNorm
from fulmen.errors import DataError, MisconfigurationException
from fulmen.utilities import CombinedLoader
from tests.integration.test_safeguards import SaveAt
from tests.integration.toys import Endless, fit, loader, quiet, rows, weights


class Normed(L.LightningModule):
    """Two batch norm layers, dropout, a metric of its own and logged values."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.net = nn.Sequential(
            nn.BatchNorm1d(4), nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(dropout), nn.Linear(3, 1)
        )
        self.frozen = nn.BatchNorm1d(4).eval()
        self.register_buffer("calls", torch.zeros(()))
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.validated: list[dict[str, Tensor]] = []
        self.draws: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.calls += 1
        draw = float(torch.rand(())) + random.random()
        if torch.is_grad_enabled():
            self.draws.append(draw)
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        assert not self.training
        self.validated.append({k: v.clone() for k, v in self.state_dict().items() if "running" in k})

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.frozen.eval()
        return self


def by_hand(module: Normed, batches: Any) -> dict[str, Tensor]:
    """Statistics of all rows together, without dropout in front of the layers."""
    first = torch.cat([batch[0] for batch in batches]).double()
    # The second layer sees what the first makes of each batch by that batch's own statistics.
    norm, linear = module.net[0], module.net[1]
    parts = []
    with torch.no_grad():
        for batch in batches:
            x = batch[0]
            x = (x - x.mean(0)) / (x.var(0, correction=0) + norm.eps).sqrt() * norm.weight + norm.bias
            parts.append(linear(x))
    second = torch.cat(parts).double()
    return {
        "net.0.running_mean": first.mean(0),
        "net.0.running_var": first.var(0),
        "net.2.running_mean": second.mean(0),
        "net.2.running_var": second.var(0),
    }


@pytest.mark.feature("O-14")
@pytest.mark.filterwarnings("ignore:.*FULMEN-W603:UserWarning")
@pytest.mark.parametrize("window", [1, 3])
def test_statistics_are_those_of_one_big_batch(window: int) -> None:
    seen: list[dict[str, Tensor]] = []

    class Looks(Normed):
        def on_validation_epoch_start(self) -> None:
            seen.append(by_hand(self, list(loader(22, 4))[:4]))

    module = Looks()
    callback = PreciseBatchNorm(num_batches=4)
    fit(
        module,
        loader(22, 4),
        loader(2),
        max_epochs=2,
        val_check_interval=2,
        accumulate_grad_batches=window,
        callbacks=[callback],
        num_sanity_val_steps=1,
    )
    assert len(seen) == 7
    for expected, found in zip(seen[1:], module.validated[1:], strict=True):
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value.float(), atol=1e-5, rtol=1e-5)
        assert torch.equal(found["frozen.running_mean"], torch.zeros(4))
    assert torch.equal(module.validated[0]["net.0.running_mean"], torch.zeros(4))  # the sanity check has its own


@pytest.mark.feature("O-14")
@pytest.mark.filterwarnings("ignore:.*FULMEN-W603:UserWarning", "ignore:.*FULMEN-W101:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("inference_mode", [True, False])
def test_nothing_else_changes(workers: int, inference_mode: bool) -> None:
    def run(callbacks: Any) -> tuple[Normed, L.Trainer]:
        L.seed_everything(4, verbose=False)
        generator = torch.Generator().manual_seed(9)
        train: Any = DataLoader(
            rows(22),
            batch_size=4,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=generator,
        )
        module = Normed()
        trainer = fit(
            module,
            train,
            loader(2),
            max_epochs=2,
            val_check_interval=2,
            accumulate_grad_batches=4,
            callbacks=callbacks,
            inference_mode=inference_mode,
        )
        return module, trainer

    plain, first = run([])
    precise, second = run([PreciseBatchNorm(num_batches=3)])
    assert torch.equal(weights(precise), weights(plain))
    assert float(precise.calls) == float(plain.calls) == 12
    assert precise.draws == plain.draws
    assert first.callback_metrics["loss_epoch"] == second.callback_metrics["loss_epoch"]
    assert int(precise.net[0].num_batches_tracked) == int(plain.net[0].num_batches_tracked)
    assert not torch.equal(precise.validated[0]["net.0.running_mean"], plain.validated[0]["net.0.running_mean"])


@pytest.mark.feature("O-14", "C-01")
@pytest.mark.filterwarnings("ignore:.*FULMEN-W603:UserWarning")
@pytest.mark.parametrize("batch", [0, 1, 3, 5])
def test_resume_is_bit_equal(batch: int, tmp_path: Path) -> None:
    def train() -> Any:
        return DataLoader(rows(22), batch_size=4, shuffle=True)

    arguments: dict[str, Any] = {"max_epochs": 2, "val_check_interval": 2, "accumulate_grad_batches": 4}
    L.seed_everything(4, verbose=False)
    whole = Normed()
    saves = SaveAt(batch, tmp_path / "a.ckpt")
    fit(whole, train(), loader(2), callbacks=[PreciseBatchNorm(3), saves], **arguments)
    L.seed_everything(5, verbose=False)
    resumed = Normed()
    trainer = quiet(callbacks=[PreciseBatchNorm(3)], **arguments)
    trainer.fit(resumed, train(), loader(2), ckpt_path=tmp_path / "a.ckpt")
    for key, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], value), key


@pytest.mark.feature("O-14")
@pytest.mark.filterwarnings("ignore:.*FULMEN-W603:UserWarning")
def test_without_validation_the_end_of_the_fit_has_them_and_evaluation_alone_changes_nothing() -> None:
    module = Normed(dropout=0.0)
    callback = PreciseBatchNorm(num_batches=None)
    trainer = quiet(callbacks=[callback], limit_val_batches=0, limit_train_batches=5)
    trainer.fit(module, loader(22, 4))
    expected = by_hand(module, list(loader(22, 4))[:5])
    for key, value in expected.items():
        torch.testing.assert_close(module.state_dict()[key], value.float(), atol=1e-5, rtol=1e-5)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    quiet(callbacks=[callback]).validate(module, loader(2), verbose=False)
    assert all(torch.equal(module.state_dict()[key], value) for key, value in before.items())


@pytest.mark.feature("O-14")
@pytest.mark.filterwarnings("ignore:.*FULMEN-W603:UserWarning")
def test_manual_optimization_needs_forward_and_loaders_that_cannot_be_read_twice_need_another() -> None:
    class ByHand(Normed):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(nn.functional.mse_loss(self.net(batch[0]), batch[1]))
            optimizer.step()

    with pytest.raises(MisconfigurationException, match=r"training_step.*ByHand.*forward=lambda module"):
        fit(ByHand(), loader(22, 4), callbacks=[PreciseBatchNorm()])
    module = ByHand()
    fit(module, loader(22, 4), callbacks=[PreciseBatchNorm(forward=lambda module, batch: module.net(batch[0]))])
    torch.testing.assert_close(module.net[0].running_mean, rows(22).tensors[0].mean(0), atol=1e-5, rtol=1e-5)

    class Once(IterableDataset[Any]):
        def __init__(self) -> None:
            self.left = iter(range(12))

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return rows(12)[next(self.left)]

    with pytest.raises(DataError, match=r"Once can be iterated only once at a time.*PreciseBatchNorm\(dataloader="):
        fit(Normed(), DataLoader(Once(), batch_size=4), callbacks=[PreciseBatchNorm()])
    module = Normed()
    fit(module, DataLoader(Once(), batch_size=4), callbacks=[PreciseBatchNorm(dataloader=loader(12, 4))])
    torch.testing.assert_close(module.net[0].running_mean, rows(12).tensors[0].mean(0), atol=1e-5, rtol=1e-5)
    module = Normed()
    fit(module, DataLoader(Endless(12), batch_size=4), callbacks=[PreciseBatchNorm()])
    torch.testing.assert_close(module.net[0].running_mean, rows(12).tensors[0].mean(0), atol=1e-5, rtol=1e-5)
    with pytest.raises(DataError, match="gave no batch"):
        fit(Normed(), loader(12, 4), callbacks=[PreciseBatchNorm(dataloader=[])])


@pytest.mark.feature("O-14")
@pytest.mark.filterwarnings("ignore:.*FULMEN-W603:UserWarning")
def test_several_training_loaders_need_one_for_the_pass() -> None:
    class Both(Normed):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return super().training_step(batch["a"], batch_idx)

    def run(callback: Any, several: Any) -> Tensor:
        module = Both(dropout=0.0)
        fit(module, several, loader(2), val_check_interval=2, callbacks=callback)
        return weights(module)

    several = {"a": loader(12, 4), "b": loader(12, 4)}
    for given in (several, CombinedLoader(several)):
        expected = run([], given)
        with pytest.raises(DataError, match=r"goes over one loader.*PreciseBatchNorm\(dataloader=\.\.\.\)"):
            run([PreciseBatchNorm()], given)
        pairs = [{"a": batch, "b": batch} for batch in loader(12, 4)]
        assert torch.equal(run([PreciseBatchNorm(dataloader=pairs)], given), expected)


@pytest.mark.feature("O-14")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_batches": 0}, "must be at least 1"),
        ({"num_batches": 1.5}, "int of at least 1"),
        ({"num_batches": True}, "int of at least 1"),
        ({"forward": 3}, "function of module and batch"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(MisconfigurationException, match=words):
        PreciseBatchNorm(**arguments)

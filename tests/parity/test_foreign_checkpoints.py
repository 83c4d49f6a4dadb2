"""Lightning's checkpoints go on here as they go on there; ours open in Lightning and in plain PyTorch."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet
from tests.parity.scenarios import rows

pytestmark = pytest.mark.feature("C-09")


@dataclass
class Seen:
    """What a fit showed."""

    losses: list[Tensor] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    counters: list[tuple[int, int]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    stopper: tuple[Any, ...] = ()
    best: tuple[str, float] = ("", 0.0)


def module_of(framework: Framework, seen: Seen) -> Any:
    class Net(framework.L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self, width: int = 6, rate: float = 0.05, extra: Any = None) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.Dropout(0.2), nn.Linear(width, 3))

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            seen.losses.append(loss.detach().clone())
            seen.counters.append((self.current_epoch, self.global_step))
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def on_train_epoch_end(self) -> None:
            seen.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]

    return Net


def fit(name: str, root: Path, ckpt_path: Path | None = None, **checkpoint: Any) -> Seen:
    """Train for 4 epochs of 4 batches from the same seed, or go on from a file."""
    framework, seen = Framework(name), Seen()
    with quiet():
        framework.L.seed_everything(7, verbose=False)
        module = module_of(framework, seen)(extra={"path": Path("data"), "numbers": [1, 2]})
        stopper = framework.callbacks.EarlyStopping("val_loss", patience=10)
        keeper = framework.callbacks.ModelCheckpoint(
            root / "files", monitor="val_loss", save_top_k=-1, filename="{epoch}-{step}", **checkpoint
        )
        trainer = framework.trainer(root, max_epochs=4, callbacks=[stopper, keeper], enable_checkpointing=True)
        train = DataLoader(rows(16), batch_size=4, shuffle=True)
        # Files of one's own are trusted: Lightning needs that for the path among the hyperparameters.
        trainer.fit(module, train, DataLoader(rows(8, seed=2), batch_size=4), ckpt_path=ckpt_path, weights_only=False)
    seen.weights = {key: value.clone() for key, value in module.state_dict().items()}
    seen.stopper = (stopper.wait_count, stopper.best_score.item(), stopper.stopped_epoch)
    seen.best = (Path(keeper.best_model_path).name, keeper.best_model_score.item())
    return seen


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Fits by name of the framework, of the file to go on from, and of who wrote it; each done once."""
    folder = tmp_path_factory.mktemp("foreign")

    @cache
    def first(name: str) -> Seen:
        return fit(name, folder / name)

    @cache
    def run(name: str, file: str = "", writer: str = LIGHTNING) -> Seen:
        if not file:
            return first(name)
        first(writer)
        return fit(name, folder / f"{name}-{file}-{writer}", ckpt_path=folder / writer / "files" / file)

    run.folder = folder  # type: ignore[attr-defined]  # for those who look at the files
    return run


@pytest.mark.parametrize("policy", [STRICT, RIGHT])
@pytest.mark.parametrize("file", ["epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt", "epoch=2-step=12.ckpt"])
def test_a_file_of_lightnings_goes_on_with_the_numbers_that_it_has_there(policy: str, file: str, runs: Any) -> None:
    theirs, ours = runs(LIGHTNING, file), runs(policy, file)
    assert len(ours.losses) > 0
    assert [loss.item() for loss in ours.losses] == [loss.item() for loss in theirs.losses]
    assert ours.counters == theirs.counters
    assert ours.rates == theirs.rates
    assert all(torch.equal(value, theirs.weights[key]) for key, value in ours.weights.items())
    assert ours.stopper == theirs.stopper
    assert ours.best == theirs.best


def test_a_file_from_within_an_epoch_goes_on_with_the_rest_of_it(runs: Any, tmp_path: Path) -> None:
    fit(LIGHTNING, tmp_path / "theirs", every_n_train_steps=3)
    files = {path.name: path for path in (tmp_path / "theirs" / "files").glob("*.ckpt")}
    ours = fit(RIGHT, tmp_path / "ours", ckpt_path=files["epoch=1-step=6.ckpt"])
    # The batches that were trained on are skipped, and no other.
    assert ours.counters == [
        (1, 6),
        (1, 7),
        *[(2, step) for step in range(8, 12)],
        *[(3, step) for step in range(12, 16)],
    ]
    assert ours.rates == runs(LIGHTNING).rates[1:]


@pytest.mark.parametrize("policy", [STRICT, RIGHT])
def test_our_files_open_in_lightning_and_in_plain_torch(policy: str, runs: Any) -> None:
    ours = runs(policy)
    path = runs.folder / policy / "files" / "epoch=3-step=16.ckpt"
    theirs = module_of(Framework(LIGHTNING), Seen())
    with quiet():
        loaded = theirs.load_from_checkpoint(path)
    assert loaded.hparams.width == 6 and loaded.hparams.rate == 0.05
    assert loaded.hparams.extra["numbers"] == [1, 2]
    assert all(torch.equal(value, ours.weights[key]) for key, value in loaded.state_dict().items())
    plain = torch.load(path, weights_only=True)
    net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 3))
    net.load_state_dict({key.removeprefix("net."): value for key, value in plain["state_dict"].items()})
    assert torch.equal(net[0].weight, ours.weights["net.0.weight"])


OLD_HPARAMS: dict[str, Any] = {
    "plain": {"width": 5, "rate": 0.25},
    "namespace": Namespace(width=5, rate=0.25),
}


@pytest.mark.parametrize("kind", OLD_HPARAMS)
def test_a_file_in_the_layout_of_1_9_gives_weights_and_hyperparameters(kind: str, tmp_path: Path) -> None:
    """Version 1.9: no `loops` that are known here, and callbacks under the old keys."""
    from fulmen import Trainer

    ours = module_of(Framework(RIGHT), Seen())
    weights = ours(width=5).state_dict()
    torch.save(
        {
            "epoch": 3,
            "global_step": 40,
            "pytorch-lightning_version": "1.9.5",
            "state_dict": weights,
            "loops": {
                "fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 4}, "current": {"ready": 4}}}
            },
            "callbacks": {"ModelCheckpoint{'monitor': None, 'mode': 'min'}": {"best_model_path": "old.ckpt"}},
            "optimizer_states": [],
            "lr_schedulers": [],
            "NativeMixedPrecisionPlugin": {},
            "hparams_name": "kwargs",
            "hyper_parameters": OLD_HPARAMS[kind],
        },
        tmp_path / "old.ckpt",
    )
    loaded = ours.load_from_checkpoint(tmp_path / "old.ckpt")
    assert loaded.hparams.width == 5 and loaded.hparams.rate == 0.25
    assert all(torch.equal(value, weights[key]) for key, value in loaded.state_dict().items())
    with quiet():
        trainer = Trainer(logger=False, enable_progress_bar=False, enable_checkpointing=False)
        results = trainer.validate(
            ours(width=5), DataLoader(rows(8), batch_size=4), ckpt_path=tmp_path / "old.ckpt", verbose=False
        )
    assert results[0]["val_loss"] > 0

"""Any configuration, stopped anywhere: the resumed run is the uninterrupted one, bit for bit.

Drawn by a seed, so that a failure is one number; the default suite takes 30 of them, the slow one 200.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor, nn
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.callbacks import Checkpoint, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from fulmen.loggers import CSVLogger
from tests.integration.test_resume import Augmented, Counting, end_of, rows, same

pytestmark = [
    pytest.mark.feature("C-03"),
    pytest.mark.filterwarnings("ignore:.*(W102|W404|W110|W602)"),
]

DEFAULT, ALL = 30, 200


@dataclass(frozen=True)
class Setting:
    """One configuration, and where the run is stopped."""

    kind: str
    workers: int
    persistent: bool
    accumulate: int
    precision: str
    schedule: str
    interval: Any
    every_epochs: Any
    loaders: str
    sanity: int
    stop_hook: str
    stop_at: int
    then: int

    @classmethod
    def draw(cls, seed: int) -> Setting:
        """The setting of a seed."""
        r = random.Random(seed)
        kind = r.choice(["automatic", "automatic", "automatic", "manual", "gan"])
        workers = r.choice([0, 0, 0, 2])
        every_epochs = r.choice([1, 1, 2, None])
        return cls(
            kind=kind,
            workers=workers,
            persistent=bool(workers) and r.random() < 0.5,
            accumulate=r.choice([1, 1, 3, 4]),
            precision=r.choice(["32-true", "32-true", "bf16-mixed", "16-mixed"]) if kind == "automatic" else "32-true",
            schedule=r.choice(["cosine", "plateau", "none"]) if kind == "automatic" else "none",
            interval=r.choice([2, 3, 4]) if every_epochs is None else r.choice([1.0, 1.0, 0.5, 2]),
            every_epochs=every_epochs,
            loaders=r.choice(["one", "one", "one", "several", "generator"]),
            sanity=r.choice([0, 2]),
            stop_hook=r.choice(HOOKS),
            stop_at=r.randint(1, 14),
            then=r.randint(0, 3),
        )


HOOKS = (
    "on_train_batch_end",
    "on_train_batch_end",
    "on_train_batch_end",
    "on_validation_batch_end",
    "on_validation_epoch_end",
    "on_validation_end",
    "on_train_epoch_end",
)


class Net(L.LightningModule):
    """Batch norm, dropout, a metric object, values of all kinds; three ways of optimizing."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.3))
        self.head, self.other = nn.Linear(6, 1), nn.Linear(6, 1)
        self.error = torchmetrics.MeanSquaredError()
        self.val_error = torchmetrics.MeanSquaredError()
        self.automatic_optimization = setting.kind == "automatic"

    def compute(self, batch: Any, head: Any = None) -> Tensor:
        if isinstance(batch, dict):
            return self.compute(batch["a"], head) + 0.5 * self.compute(batch["b"], head)
        guess = (head or self.head)(self.body(batch[0])).squeeze(1).float()
        self.error.update(guess.detach(), batch[1])
        return nn.functional.mse_loss(guess, batch[1])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.compute(batch)
        self.log("loss", loss, on_step=True, on_epoch=True, batch_size=4)
        self.log("largest", loss, on_step=False, on_epoch=True, reduce_fx="max", batch_size=4)
        self.log("error", self.error, on_step=False, on_epoch=True)
        if self.setting.kind == "manual":
            self.by_hand(loss, batch_idx)
        elif self.setting.kind == "gan":
            self.in_turn(batch, batch_idx)
        return loss

    def by_hand(self, loss: Tensor, batch_idx: int) -> None:
        """Accumulate over the epoch's end where it comes."""
        optimizer = self.optimizers()
        self.manual_backward(loss / self.setting.accumulate)
        if (batch_idx + 1) % self.setting.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()

    def in_turn(self, batch: Any, batch_idx: int) -> None:
        """Two optimizers at different cadence; the slow one keeps its gradients meanwhile."""
        one, two = self.optimizers()
        self.toggle_optimizer(one)
        self.manual_backward(self.compute(batch))
        one.step()
        one.zero_grad()
        self.untoggle_optimizer(one)
        self.toggle_optimizer(two)
        self.manual_backward(self.compute(batch, self.other))
        if (batch_idx + 1) % 3 == 0:
            two.step()
            two.zero_grad()
        self.untoggle_optimizer(two)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        guess = self.head(self.body(batch[0])).squeeze(1).float()
        noisy = nn.functional.mse_loss(guess + 0.01 * torch.randn(()), batch[1])  # some evaluations draw
        self.log("val_loss", noisy)
        self.val_error.update(guess, batch[1])
        self.log("val_error", self.val_error)

    def configure_optimizers(self) -> Any:
        if self.setting.kind == "gan":
            one = torch.optim.Adam([*self.body.parameters(), *self.head.parameters()], lr=0.01)
            return [one, torch.optim.SGD(self.other.parameters(), lr=0.05, momentum=0.9)]
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        if self.setting.schedule == "cosine":
            cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 18)
            return [optimizer], [{"scheduler": cosine, "interval": "step"}]
        if self.setting.schedule == "plateau":
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "loss"}}
        return optimizer


def loaders(setting: Setting) -> tuple[Any, Any]:
    """Training and validation data."""

    def one(count: int, generator: Any = None) -> Any:
        return DataLoader(
            Augmented(count),
            batch_size=4,
            shuffle=True,
            drop_last=True,
            num_workers=setting.workers,
            persistent_workers=setting.persistent,
            generator=generator,
        )

    if setting.loaders == "several":
        train: Any = {"a": one(25), "b": one(13)}
    else:
        train = one(25, torch.Generator().manual_seed(5) if setting.loaders == "generator" else None)
    return train, DataLoader(Augmented(10), batch_size=4)


class Stop(Exception):
    """The power goes off."""


class Plug(Checkpoint):
    """Writes a checkpoint at the n-th time of a hook, after all others, and pulls the plug some batches later."""

    decides_last = True

    def __init__(self, path: Path, setting: Setting) -> None:
        super().__init__()
        self.path, self.setting = path, setting
        self.seen, self.left = 0, -1
        setattr(self, setting.stop_hook, self.save)

    def save(self, trainer: Any, *args: Any) -> None:
        if trainer.sanity_checking:
            return
        self.seen += 1
        if self.seen == self.setting.stop_at:
            trainer.save_checkpoint(self.path)
            self.left = self.setting.then + 1

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        if self.left > 0:
            self.left -= 1
            if self.left == 0:
                raise Stop


def trainer_of(setting: Setting, root: Path, *more: Any) -> Any:
    """A Trainer with what most runs have."""
    monitored = ModelCheckpoint(
        root / "files", monitor="val_loss", save_top_k=2, filename="{epoch}-{step}", save_last=True
    )
    arguments = {"accumulate_grad_batches": setting.accumulate, "gradient_clip_val": 1.0}
    return L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        precision=setting.precision,
        val_check_interval=setting.interval,
        check_val_every_n_epoch=setting.every_epochs,
        num_sanity_val_steps=setting.sanity,
        logger=CSVLogger(root, name="logs", version=0),
        log_every_n_steps=1,
        callbacks=[Counting(), monitored, EarlyStopping("val_loss", patience=3), LearningRateMonitor(), *more],
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=root,
        **(arguments if setting.kind == "automatic" else {}),
    )


def everything(trainer: Any, module: Any) -> dict[str, Any]:
    """What is compared."""
    monitored = next(c for c in trainer.callbacks if type(c) is ModelCheckpoint)
    stopper = next(c for c in trainer.callbacks if type(c) is EarlyStopping)
    return {
        **end_of(trainer, module),
        "best": {Path(path).name: score for path, score in monitored.best_k_models.items()},
        "best_path": Path(monitored.best_model_path).name,
        "last": Path(monitored.last_model_path).name,
        "files": sorted(path.name for path in Path(monitored.dirpath).glob("*.ckpt")),
        "stopper": stopper.state_dict(),
        "gradients": {name: p.grad for name, p in module.named_parameters() if p.grad is not None},
    }


def run(seed: int, root: Path) -> str:
    """Train without and with a stop; returns whether the run was stopped at all."""
    setting = Setting.draw(seed)

    def fit(folder: str, start: int, path: Path | None = None, *more: Any) -> tuple[Any, Any]:
        L.seed_everything(start, verbose=False)
        torch.rand(start)
        module = Net(setting)
        trainer = trainer_of(setting, root / folder, *more)
        trainer.fit(module, *loaders(setting), ckpt_path=path)
        return trainer, module

    whole = everything(*fit("whole", 11))
    path = root / "here.ckpt"
    with contextlib.suppress(Stop):
        fit("parts", 11, None, Plug(path, setting))
    if not path.exists():
        return "never"
    parts = everything(*fit("parts", 99, path))
    same(whole, parts)
    assert rows(root / "parts") == rows(root / "whole")
    return "stopped"


@pytest.mark.parametrize("seed", range(DEFAULT))
def test_the_resumed_run_is_the_uninterrupted_one(seed: int, tmp_path: Path) -> None:
    assert run(seed, tmp_path) in ("stopped", "never")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(DEFAULT, ALL, 10))
def test_more_of_them(first: int, tmp_path: Path) -> None:
    stopped = [run(seed, tmp_path / str(seed)) for seed in range(first, first + 10)]
    assert stopped.count("stopped") >= 4

"""Fits in forked children that are killed, and the same command started again until it is done.

One process imports everything; each start of the "command" is a fork of it, so that many can be tried. A child is
killed by SIGKILL, either by a clock or by itself at a chosen call of the checkpoint writer (in the middle of the file,
before or after it is renamed, before or after the manifest is).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import fulmen as L
from fulmen.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from fulmen.engine.storage import read_verified, writer
from fulmen.loggers import CSVLogger
from fulmen.plugins.io import AsyncCheckpointIO

PLACES = ("clock", "writing", "before rename", "after rename")


class Rows(Dataset[Any]):
    """Rows with noise from all three generators."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(48, 6, generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.randn(6) * 0.1 + random.random() * 0.1 + float(np.random.rand()) * 0.1
        return self.x[index] + noise, self.x[index].sum()


class Net(L.LightningModule):
    """Dropout, batch norm, a schedule by step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))

    def step(self, batch: Any) -> torch.Tensor:
        return (self.net(batch[0]).squeeze(1) - batch[1]).square().mean()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.step(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 36)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@dataclass(frozen=True)
class Setting:
    """One kind of run; 3 epochs of 12 batches."""

    seed: int
    every: int
    accumulate: int
    background: bool
    workers: int

    @classmethod
    def draw(cls, seed: int, *, workers: bool) -> Setting:
        """A setting by a seed."""
        r = random.Random(seed)
        return cls(
            seed, r.choice([1, 2, 3, 5]), r.choice([1, 1, 3]), r.random() < 0.5, r.choice([0, 2]) if workers else 0
        )


def command(setting: Setting) -> None:
    """What is run again and again, in the working folder; leaves `end.pt`."""
    torch.set_num_threads(1)
    L.seed_everything(setting.seed, workers=True, verbose=False)
    keeper = ModelCheckpoint(
        "files", monitor="val_loss", save_top_k=2, save_last=True, every_n_train_steps=setting.every
    )
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=CSVLogger("logs", flush_logs_every_n_steps=1),
        log_every_n_steps=1,
        callbacks=[keeper, EarlyStopping("val_loss", patience=9), LearningRateMonitor("step")],
        accumulate_grad_batches=setting.accumulate,
        plugins=[AsyncCheckpointIO()] if setting.background else None,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    module = Net()
    train = DataLoader(Rows(), batch_size=4, shuffle=True, num_workers=setting.workers)
    trainer.fit(module, train, DataLoader(Rows(), batch_size=16), ckpt_path="auto")
    state = {
        "weights": module.state_dict(),
        "optimizer": trainer.optimizers[0].state_dict(),
        "schedule": trainer.lr_scheduler_configs[0].scheduler.state_dict(),
        "random": torch.get_rng_state(),
        "step": trainer.global_step,
        "rows": (Path(str(trainer.log_dir)) / "metrics.csv").read_text().splitlines(),
        "best": [(Path(path).name, value.item()) for path, value in keeper.best_k_models.items()],
        "files": sorted(path.name for path in Path("files").glob("*.ckpt")),
    }
    torch.save(state, "end.part")
    os.replace("end.part", "end.pt")


def die() -> None:
    """As if the power went."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)


def arm(place: str, countdown: int) -> None:
    """Have this process kill itself at the n-th passage of a place of the writer."""
    left = [countdown]

    def passes() -> bool:
        left[0] -= 1
        return left[0] == 0

    if place == "writing":
        plain_write = writer.torch.save  # type: ignore[attr-defined]  # the module that the writer uses

        def torn(content: Any, file: Any, *args: Any, **kwargs: Any) -> None:
            if passes():
                file.write(b"PK\x03\x04 half of a file")
                file.flush()
                die()
            plain_write(content, file, *args, **kwargs)

        writer.torch.save = torn  # type: ignore[attr-defined]  # in this child only
        return
    plain: Callable[..., None] = os.replace

    def replace(source: Any, target: Any) -> None:
        due = passes()  # of files and manifests alike
        if due and place == "before rename":
            die()
        plain(source, target)
        if due:
            die()

    os.replace = replace  # type: ignore[assignment]  # in this child only


def start(folder: Path, setting: Setting, place: str | None, chance: random.Random) -> int:
    """Run the command once in a child; returns how it ended: 0, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.chdir(folder)
            log = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.setsid()  # so that its workers can be ended with it
            if place is not None and place != "clock":
                arm(place, chance.randint(1, 12))
            command(setting)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    if place == "clock":
        time.sleep(chance.uniform(0.02, 0.8))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # workers that were left
    return os.waitstatus_to_exitcode(status)


@dataclass
class Round:
    """What happened in one round.

    Attributes:
        setting: The kind of run.
        kills: Places where it was killed.
        differences: What differs from the run that nobody killed.
    """

    setting: Setting
    kills: list[str]
    differences: list[str]


def play(seed: int, root: Path, *, workers: bool = True, most: int = 4) -> Round:
    """Run to the end without a kill, then with up to `most` kills, and compare."""
    chance, setting = random.Random(1000 + seed), Setting.draw(seed, workers=workers)
    whole, broken = root / f"whole{seed}", root / f"broken{seed}"
    whole.mkdir(parents=True)
    broken.mkdir(parents=True)
    assert start(whole, setting, None, chance) == 0, (whole / "said").read_text()
    kills: list[str] = []
    while not (broken / "end.pt").exists():
        place = chance.choice(PLACES) if len(kills) < most else None
        code = start(broken, setting, place, chance)
        if code == -signal.SIGKILL:
            kills.append(str(place))
        elif code != 0:
            return Round(setting, kills, [f"exit code {code}: {(broken / 'said').read_text()[-2000:]}"])
    done = Round(setting, kills, compare(whole, broken))
    if not done.differences:
        shutil.rmtree(whole)
        shutil.rmtree(broken)
    return done


def compare(whole: Path, broken: Path) -> list[str]:
    """What differs: final state, files, every logged row; and every file that is left must be whole."""
    one, other = (torch.load(folder / "end.pt", weights_only=True) for folder in (whole, broken))
    found = [key for key in one if not same(one[key], other[key])]
    for path in (broken / "files").glob("*.ckpt"):
        try:
            read_verified(path)
        except Exception as error:
            found.append(f"{path.name}: {error}")
    return found


def same(one: Any, other: Any) -> bool:
    """Bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)

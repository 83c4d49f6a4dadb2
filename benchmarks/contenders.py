"""The same small training, by hand and by each framework.

Every contender gets the number of steps and a folder and returns the microseconds of one step. The time is taken in the
data set, which all share: from the moment in which the batch after the warm-up is asked for to the moment in which the
last one is. That spans whole turns of the loop, whatever a framework does in which order, and leaves out what comes
before the first batch and after the last. No callback or hook is needed for it. Two clocks are read: the CPU time of
the process (all threads, blind to other programs on the machine) and the wall clock.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

WARM_UP = 100


@dataclass(frozen=True)
class Timing:
    """Microseconds of one step, by either clock."""

    cpu: float
    wall: float


Contender = Callable[[int, Path], Timing]


class Marks:
    """The times at which two steps began, the first after the warm-up and the last one."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.first = min(WARM_UP, steps // 5)
        self.marks: dict[int, tuple[float, float]] = {self.first: (0.0, 0.0), steps - 1: (0.0, 0.0)}

    def note(self, index: int) -> None:
        """Step `index` begins."""
        self.marks[index] = (time.process_time(), time.perf_counter())

    @property
    def timing(self) -> Timing:
        """What a step took."""
        start, end = self.marks[self.first], self.marks[self.steps - 1]
        if not start[1] < end[1]:
            raise RuntimeError("the contender did not take all batches")
        cpu, wall = ((b - a) / (self.steps - 1 - self.first) * 1e6 for a, b in zip(start, end, strict=True))
        return Timing(cpu, wall)


class Batches(Marks, Dataset[Any]):
    """Prebuilt batches of 32 rows of 32; notes the time at which two of them are asked for."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        generator = torch.Generator().manual_seed(0)
        self.batches = [
            (torch.randn(32, 32, generator=generator), torch.randint(10, (32,), generator=generator)) for _ in range(64)
        ]

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> Any:
        if index in self.marks:
            self.note(index)
        return self.batches[index % 64]


def make_loader(steps: int) -> tuple[Batches, DataLoader[Any]]:
    batches = Batches(steps)
    return batches, DataLoader(batches, batch_size=None)


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def make_optimizer(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.01)


@contextmanager
def settled() -> Iterator[None]:
    """Garbage of others is out of the way, the collector itself stays on; no word on the screen."""
    loggers = [logging.getLogger(name) for name in ("fulmen", "lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    gc.collect()
    gc.freeze()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gc.unfreeze()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Terminal(io.TextIOWrapper):
    """A terminal that nobody reads: bars are drawn as on a real one."""

    def __init__(self) -> None:
        super().__init__(io.FileIO(os.devnull, "wb"), write_through=True)

    def isatty(self) -> bool:
        return True


@contextmanager
def terminal() -> Iterator[None]:
    """Output goes to a `Terminal`."""
    kept, term = (sys.stdout, sys.stderr), os.environ.get("TERM")
    with Terminal() as screen:
        sys.stdout = sys.stderr = screen
        os.environ["TERM"] = "xterm-256color"
        try:
            yield
        finally:
            sys.stdout, sys.stderr = kept
            if term is None:
                del os.environ["TERM"]
            else:
                os.environ["TERM"] = term


# ------------------------------------------------------------------------------------------------------------ by hand


def by_hand(steps: int, folder: Path) -> Timing:
    batches, loader = make_loader(steps)
    net = make_net()
    optimizer = make_optimizer(net)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return batches.timing


def validation_by_hand(steps: int, folder: Path) -> Timing:
    batches, loader = make_loader(steps)
    net = make_net().eval()
    loss_sum, right, rows = torch.zeros(()), torch.zeros(()), 0
    with torch.inference_mode():
        for x, y in loader:
            logits = net(x)
            loss_sum += F.cross_entropy(logits, y) * len(x)
            right += (logits.argmax(1) == y).float().mean() * len(x)
            rows += len(x)
    assert rows and float(loss_sum / rows) > 0 and float(right / rows) >= 0
    return batches.timing


# ------------------------------------------------------------------------------------------------- Fulmen, Lightning


def make_module(L: Any, *, log: bool) -> Any:
    class Module(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()

        def configure_optimizers(self) -> Any:
            return make_optimizer(self.net)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            logits = self.net(x)
            self.log("val_loss", F.cross_entropy(logits, y))
            self.log("val_acc", (logits.argmax(1) == y).float().mean())

    class Plain(Module):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            return F.cross_entropy(self.net(x), y)

    class Logging(Module):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            loss = F.cross_entropy(self.net(x), y)
            self.log("loss", loss, prog_bar=True)
            self.log("twice", loss, on_step=True, on_epoch=True)
            self.log("mean", loss, on_step=False, on_epoch=True)
            return loss

    return Logging() if log else Plain()


BARE = {
    "accelerator": "cpu",
    "devices": 1,
    "max_epochs": 1,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


def bare_trainer(L: Any, folder: Path, **changes: Any) -> Any:
    return L.Trainer(**{**BARE, "default_root_dir": str(folder), **changes})


def everything(L: Any, folder: Path) -> Any:
    """Bar, CSV logger, checkpoints, learning rate monitor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bare_trainer(
            L,
            folder,
            logger=L.pytorch_loggers.CSVLogger(str(folder)),
            callbacks=[L.callbacks.LearningRateMonitor()],
            enable_progress_bar=True,
            enable_checkpointing=True,
        )


def trainer_contenders(L: Any) -> dict[str, Contender]:
    """Contenders of a framework with Lightning's interface; `L` has `Trainer`, `LightningModule`, `callbacks`."""

    def fit(trainer: Any, module: Any, steps: int) -> Timing:
        batches, loader = make_loader(steps)
        trainer.fit(module, loader)
        return batches.timing

    def plain(steps: int, folder: Path) -> Timing:
        return fit(bare_trainer(L, folder), make_module(L, log=False), steps)

    def with_log(steps: int, folder: Path) -> Timing:
        return fit(bare_trainer(L, folder), make_module(L, log=True), steps)

    def full(steps: int, folder: Path) -> Timing:
        with terminal():
            return fit(everything(L, folder), make_module(L, log=True), steps)

    def validate(steps: int, folder: Path) -> Timing:
        batches, loader = make_loader(steps)
        bare_trainer(L, folder).validate(make_module(L, log=False), loader, verbose=False)
        return batches.timing

    return {"plain": plain, "log": with_log, "everything": full, "validate": validate}


# -------------------------------------------------------------------------------------------------------------- peers


def lightning_fabric() -> Contender:
    from lightning.fabric import Fabric

    def run(steps: int, folder: Path) -> Timing:
        batches, loader = make_loader(steps)
        fabric = Fabric(accelerator="cpu", devices=1)
        net = make_net()
        net, optimizer = fabric.setup(net, make_optimizer(net))
        for x, y in fabric.setup_dataloaders(loader):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
        return batches.timing

    return run


def accelerate() -> Contender:
    from accelerate import Accelerator

    def run(steps: int, folder: Path) -> Timing:
        batches, loader = make_loader(steps)
        accelerator = Accelerator(cpu=True)
        net = make_net()
        net, optimizer, prepared = accelerator.prepare(net, make_optimizer(net), loader)
        for x, y in prepared:
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        return batches.timing

    return run


def ignite() -> Contender:
    from ignite.engine import Engine

    def run(steps: int, folder: Path) -> Timing:
        batches, loader = make_loader(steps)
        net = make_net()
        optimizer = make_optimizer(net)

        def update(engine: Any, batch: Any) -> None:
            x, y = batch
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        Engine(update).run(loader, max_epochs=1)
        return batches.timing

    return run


def peers() -> dict[str, Contender]:
    """Those that are installed."""
    from benchmarks.variants import variants

    found: dict[str, Contender] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from types import SimpleNamespace

            import lightning.pytorch as peer
            from lightning.pytorch import callbacks, loggers
            from lightning.pytorch.utilities import CombinedLoader

            L = SimpleNamespace(
                Trainer=peer.Trainer,
                LightningModule=peer.LightningModule,
                callbacks=callbacks,
                pytorch_loggers=loggers,
                CombinedLoader=CombinedLoader,
            )
            contenders = trainer_contenders(L) | variants(L)
            found.update({f"Lightning, {name}": run for name, run in contenders.items()})
            found["Lightning's Fabric"] = lightning_fabric()
        except ImportError:
            pass
        for name, make in (("Accelerate", accelerate), ("Ignite", ignite)):
            try:
                found[name] = make()
            except ImportError:
                continue
    return found


def own() -> dict[str, Contender]:
    """Fulmen's."""
    from types import SimpleNamespace

    import fulmen
    from benchmarks.variants import variants
    from fulmen import callbacks, loggers, utilities

    L = SimpleNamespace(
        Trainer=fulmen.Trainer,
        LightningModule=fulmen.LightningModule,
        callbacks=callbacks,
        pytorch_loggers=loggers,
        CombinedLoader=getattr(utilities, "CombinedLoader", None),
    )
    return trainer_contenders(L) | variants(L)

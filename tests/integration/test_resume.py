"""A run that is stopped and goes on in a new Trainer ends bit for bit where an uninterrupted one does."""

from __future__ import annotations

import csv
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset

import fulmen as L
from fulmen.callbacks import EarlyStopping, ModelCheckpoint
from fulmen.errors import CheckpointError, CorruptCheckpointError, FulmenWarning, MisconfigurationException
from fulmen.loggers import CSVLogger
from fulmen.utilities.seed import collect_rng_states

pytestmark = pytest.mark.filterwarnings("ignore:The checkpoint has states of callbacks")


class Augmented(Dataset[Any]):
    """Images whose augmentation draws from all three global generators."""

    def __init__(self, rows: int = 22) -> None:
        self.x = torch.linspace(-1, 1, rows * 8).reshape(rows, 1, 8)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.x[index]
        noise = 0.1 * torch.randn(1, 8) + random.random() + float(np.random.rand())
        return x + noise, x.mean()


class Net(L.LightningModule):
    """Batch norm, dropout, a value per step and per epoch."""

    def __init__(self, schedule: str = "cosine", width: int = 4) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, width, 3), nn.BatchNorm1d(width), nn.Flatten(), nn.Dropout(0.3))
        self.head = nn.Linear(width * 6, 1)
        self.schedule = schedule

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x)).squeeze(1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("largest", loss, on_step=False, on_epoch=True, reduce_fx="max")
        self.log("spread", loss, on_step=False, on_epoch=True, reduce_fx=torch.std)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        if self.schedule == "cosine":
            return [optimizer], [{"scheduler": CosineAnnealingLR(optimizer, 24), "interval": "step"}]
        plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
        watch = {"scheduler": plateau, "monitor": "val_loss"}
        if self.schedule == "plateau by step":
            watch.update(interval="step", frequency=3)
        return {"optimizer": optimizer, "lr_scheduler": watch}


class Counting(L.Callback):
    """State, and random numbers drawn in hooks: those of the part before the stop must not come again."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        torch.rand(3)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._count("epoch_start")
        torch.rand(1)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._count("batch_end")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._count("validation_end")
            random.random()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._count("epoch_end")
        np.random.rand()

    def state_dict(self) -> dict[str, Any]:
        return {"calls": dict(self.calls)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.calls = dict(state_dict["calls"])


@dataclass
class Case:
    """One way of training, and where it is stopped."""

    trainer: dict[str, Any] = field(default_factory=dict)
    module: Callable[[], Net] = Net
    workers: int = 0
    persistent: bool = False
    generator: bool = False
    val_workers: int = 0
    epochs: int = 4


def loaders(case: Case) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(5) if case.generator else None
    train = DataLoader(
        Augmented(), batch_size=4, shuffle=True, num_workers=case.workers, persistent_workers=case.persistent,
        generator=generator,
    )  # fmt: skip
    val = DataLoader(
        Augmented(6), batch_size=4, num_workers=case.val_workers, persistent_workers=bool(case.val_workers)
    )
    return train, val


def trainer_of(case: Case, root: Path, *callbacks: Any, **more: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "log_every_n_steps": 1}
    arguments = {"max_epochs": case.epochs, "enable_checkpointing": bool(callbacks), **quiet, **case.trainer, **more}
    logger = CSVLogger(root, name="logs", version=0)
    return L.Trainer(default_root_dir=root, logger=logger, callbacks=[Counting(), *callbacks], **arguments)


def end_of(trainer: Any, module: Any) -> dict[str, Any]:
    """Everything that must be equal, in a form that can be compared."""
    rng = collect_rng_states()
    return {
        "weights": module.state_dict(),
        "optimizers": [o.state_dict() for o in trainer.optimizers],
        "schedulers": [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs],
        "progress": trainer.progress.state_dict(),
        "metrics": dict(trainer.callback_metrics),
        "counted": next(c.calls for c in trainer.callbacks if isinstance(c, Counting)),
        "rng": rng,
    }


def rows(root: Path) -> list[dict[str, str]]:
    with open(root / "logs" / "version_0" / "metrics.csv") as file:
        return list(csv.DictReader(file))


def same(one: Any, other: Any, path: str = "") -> None:
    """Assert equality bit for bit, naming the first place that differs."""
    assert type(one) is type(other), path
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{path}/{index}")
    else:
        assert one == other or (one != one and other != other), f"{path}: {one!r} != {other!r}"


class Stop(Exception):
    """The power goes off."""


class SaveAt(L.Callback):
    """Writes a checkpoint at one place of the run, and then pulls the plug, some batches later."""

    def __init__(self, path: Path, hook: str, step: int, *, then: int | None = None) -> None:
        self.path, self.step, self.then = path, step, then
        setattr(self, hook, self.save)

    def save(self, trainer: Any, *args: Any) -> None:
        if trainer.progress.total_batches == self.step and not trainer.sanity_checking:
            trainer.save_checkpoint(self.path)

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        if self.then is not None and trainer.progress.total_batches > self.step + self.then:
            raise Stop


def uninterrupted(case: Case, root: Path) -> dict[str, Any]:
    L.seed_everything(11, verbose=False)
    module = case.module()
    trainer = trainer_of(case, root)
    trainer.fit(module, *loaders(case))
    return end_of(trainer, module)


def resumed(case: Case, root: Path, path: Any) -> dict[str, Any]:
    """Another process, as far as one process can be: other weights, other random numbers."""
    L.seed_everything(99, verbose=False)
    torch.rand(17)
    module = case.module()
    trainer = trainer_of(case, root)
    trainer.fit(module, *loaders(case), ckpt_path=path)
    return end_of(trainer, module)


def stopped_by_plug(case: Case, root: Path, hook: str, step: int, *, then: int = 2) -> Path:
    path = root / "here.ckpt"
    L.seed_everything(11, verbose=False)
    with pytest.raises(Stop):
        trainer_of(case, root, SaveAt(path, hook, step, then=then)).fit(case.module(), *loaders(case))
    return path


EPOCH_CASES = {
    "plain": Case(),
    "two workers": Case(workers=2, epochs=3),
    "persistent workers": Case(workers=2, persistent=True, generator=True, epochs=3),
    "generator of the loader": Case(generator=True),
    "persistent validation workers": Case(val_workers=1, trainer={"num_sanity_val_steps": 0}, epochs=3),
    "plateau": Case(module=lambda: Net("plateau")),
    "accumulation": Case(trainer={"accumulate_grad_batches": 4, "gradient_clip_val": 0.5}),
    "validation twice an epoch": Case(trainer={"val_check_interval": 3}),
    "validation every other epoch": Case(trainer={"check_val_every_n_epoch": 2}),
    "new loaders every other epoch": Case(trainer={"reload_dataloaders_every_n_epochs": 2}),
    "scaled": Case(trainer={"precision": "16-mixed"}),
}


@pytest.mark.feature("C-02")
@pytest.mark.parametrize("name", EPOCH_CASES)
def test_stopped_after_an_epoch(tmp_path: Path, name: str) -> None:
    case = EPOCH_CASES[name]
    whole = uninterrupted(case, tmp_path / "whole")
    callback = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    L.seed_everything(11, verbose=False)
    trainer_of(case, tmp_path / "parts", callback, max_epochs=2).fit(case.module(), *loaders(case))
    for path in ("epoch=1.ckpt", "epoch=0.ckpt"):  # the second one leaves out what the run did after it
        parts = resumed(case, tmp_path / "parts", tmp_path / path)
        same(whole, parts)
        assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.feature("C-02")
@pytest.mark.parametrize(
    ("hook", "step"),
    [
        ("on_train_batch_end", 8),  # in the middle of the second epoch
        ("on_train_batch_end", 9),  # a validation follows
        ("on_train_batch_end", 12),  # the last batch of the epoch
        ("on_validation_end", 9),
        ("on_validation_end", 12),
        ("on_train_epoch_end", 12),
        ("on_train_epoch_start", 12),
    ],
)
@pytest.mark.parametrize("schedule", ["cosine", "plateau", "plateau by step"])
def test_the_plug_is_pulled(tmp_path: Path, hook: str, step: int, schedule: str) -> None:
    case = Case(module=lambda: Net(schedule), trainer={"val_check_interval": 3}, epochs=3)
    whole = uninterrupted(case, tmp_path / "whole")
    path = stopped_by_plug(case, tmp_path / "parts", hook, step)
    parts = resumed(case, tmp_path / "parts", path)
    if hook == "on_train_epoch_start":  # it fires once more, and draws
        assert parts["counted"].pop("epoch_start") == whole["counted"].pop("epoch_start") + 1
        same(whole["counted"], parts["counted"])
        return
    same(whole, parts)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.feature("C-02", "O-05")
@pytest.mark.parametrize("step", [8, 9, 10, 11, 12])
def test_inside_an_accumulation_window(tmp_path: Path, step: int) -> None:
    case = Case(trainer={"accumulate_grad_batches": 4, "val_check_interval": 3}, epochs=3)
    whole = uninterrupted(case, tmp_path / "whole")
    parts = resumed(case, tmp_path / "parts", stopped_by_plug(case, tmp_path / "parts", "on_train_batch_end", step))
    same(whole, parts)
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.feature("C-02")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_written_every_few_steps(tmp_path: Path, workers: int) -> None:
    case = Case(epochs=2, workers=workers)
    whole = uninterrupted(case, tmp_path / "whole")
    callback = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=4, save_top_k=-1)
    L.seed_everything(11, verbose=False)
    trainer_of(case, tmp_path / "parts", callback).fit(case.module(), *loaders(case))
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["step=12.ckpt", "step=4.ckpt", "step=8.ckpt"]
    for step in (4, 8):
        same(whole, resumed(case, tmp_path / "parts", tmp_path / f"step={step}.ckpt"))
        assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.feature("C-02")
def test_callbacks_go_on(tmp_path: Path) -> None:
    """The stop of EarlyStopping and the best of ModelCheckpoint come where they would have come."""

    def callbacks(folder: Path) -> list[Any]:
        return [EarlyStopping("val_loss", patience=2), ModelCheckpoint(folder, monitor="val_loss")]

    case = Case(epochs=12)
    L.seed_everything(11, verbose=False)
    whole = trainer_of(case, tmp_path / "whole", *callbacks(tmp_path / "a"))
    whole.fit(case.module(), *loaders(case))
    stop, best = whole.early_stopping_callback, whole.checkpoint_callback
    assert 2 < stop.stopped_epoch < 11
    L.seed_everything(11, verbose=False)
    always = ModelCheckpoint(tmp_path / "all", filename="{epoch}", save_top_k=-1)
    first = trainer_of(case, tmp_path / "parts", *callbacks(tmp_path / "b"), always, max_epochs=stop.stopped_epoch)
    first.fit(case.module(), *loaders(case))
    L.seed_everything(99, verbose=False)
    second = trainer_of(case, tmp_path / "parts", *callbacks(tmp_path / "b"), always)
    last = tmp_path / "all" / f"epoch={stop.stopped_epoch - 1}.ckpt"
    second.fit(case.module(), *loaders(case), ckpt_path=last)
    assert second.early_stopping_callback.stopped_epoch == stop.stopped_epoch
    assert torch.equal(second.early_stopping_callback.best_score, stop.best_score)
    assert Path(second.checkpoint_callbacks[0].best_model_path).name == Path(best.best_model_path).name
    assert torch.equal(second.checkpoint_callbacks[0].best_model_score, best.best_model_score)


@pytest.mark.feature("C-02")
def test_saved_after_fit(tmp_path: Path) -> None:
    case = Case(generator=True)
    whole = uninterrupted(case, tmp_path / "whole")
    L.seed_everything(11, verbose=False)
    first = trainer_of(case, tmp_path / "parts", max_epochs=2)
    first.fit(case.module(), *loaders(case))
    first.save_checkpoint(tmp_path / "end.ckpt")
    same(whole, resumed(case, tmp_path / "parts", tmp_path / "end.ckpt"))


@pytest.mark.feature("C-02", "T-16")
def test_three_runs_with_one_seed_are_equal(tmp_path: Path) -> None:
    ends = [uninterrupted(Case(workers=2, epochs=2), tmp_path / str(index)) for index in range(3)]
    same(ends[0], ends[1])
    same(ends[0], ends[2])
    L.seed_everything(12, verbose=False)
    other = Net()
    assert not torch.equal(other.state_dict()["head.weight"], ends[0]["weights"]["head.weight"])


# --- files ---------------------------------------------------------------------------------------------------------


def written(root: Path, **more: Any) -> tuple[Any, Path]:
    """A run over two epochs with a file for each; returns the newest."""
    case = Case(epochs=2)
    L.seed_everything(11, verbose=False)
    callback = ModelCheckpoint(root / "files", filename="{epoch}", save_top_k=-1, save_last=True, **more)
    trainer = trainer_of(case, root, callback)
    trainer.fit(Net(), *loaders(case))
    return trainer, root / "files" / "epoch=1.ckpt"


@pytest.mark.feature("C-02", "C-07", "C-09")
def test_the_file_is_lightnings_and_opens_in_plain_torch(tmp_path: Path) -> None:
    trainer, path = written(tmp_path)
    checkpoint = torch.load(path, weights_only=True)
    assert set(checkpoint) >= {
        "state_dict", "optimizer_states", "lr_schedulers", "epoch", "global_step", "loops", "callbacks",
        "pytorch-lightning_version",
    }  # fmt: skip
    assert set(checkpoint) - {"fulmen"} <= {
        "state_dict", "optimizer_states", "lr_schedulers", "epoch", "global_step", "loops", "callbacks",
        "pytorch-lightning_version", "hparams_name", "hyper_parameters",
    }  # fmt: skip
    assert (checkpoint["epoch"], checkpoint["global_step"]) == (1, 12)
    plain = Net()
    plain.load_state_dict(checkpoint["state_dict"])
    same(dict(plain.state_dict()), dict(trainer.lightning_module.state_dict()))


@pytest.mark.feature("C-05")
@pytest.mark.parametrize("how", ["torn", "flipped"])
def test_a_damaged_file_is_noticed_and_the_one_before_it_used(tmp_path: Path, how: str) -> None:
    _, path = written(tmp_path)
    (tmp_path / "files" / "last.ckpt").unlink()
    content = bytearray(path.read_bytes())
    if how == "torn":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    case = Case(epochs=3)
    trainer = trainer_of(case, tmp_path / "again")
    with pytest.warns(FulmenWarning, match=r"epoch=1\.ckpt.*Going on from '.*epoch=0\.ckpt'"):
        trainer.fit(Net(), *loaders(case), ckpt_path=path)
    assert str(trainer.ckpt_path).endswith("epoch=0.ckpt")
    assert trainer.progress.total_batches == 18
    (tmp_path / "files" / "epoch=0.ckpt").unlink()
    with pytest.raises(CorruptCheckpointError, match=r"epoch=1\.ckpt"):
        trainer_of(case, tmp_path / "never").fit(Net(), *loaders(case), ckpt_path=path)


class Two(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [
            torch.optim.lr_scheduler.StepLR(optimizer, 1),
            torch.optim.lr_scheduler.StepLR(optimizer, 2),
        ]


class Groups(Net):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([{"params": self.net.parameters()}, {"params": self.head.parameters()}], lr=0.1)


class TwoOptimizers(Net):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.net.parameters(), lr=0.1), torch.optim.SGD(self.head.parameters(), lr=0.1)], []


class Deeper(Net):
    def __init__(self) -> None:
        super().__init__()
        self.further = nn.Linear(2, 2)


@pytest.mark.feature("C-02", "T-02")
@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (TwoOptimizers, MisconfigurationException, r"gave 2 optimizers, the checkpoint has 1"),
        (Two, MisconfigurationException, r"gave 2 schedulers, the checkpoint has 1"),
        (Deeper, RuntimeError, r"further\.weight"),
        (lambda: Net(width=5), RuntimeError, r"net\.0\.weight \(4, 1, 3\) in the checkpoint, \(5, 1, 3\)"),
    ],
)
def test_a_file_of_another_model(tmp_path: Path, module: Any, error: type[Exception], words: str) -> None:
    _, path = written(tmp_path)
    case = Case()
    with pytest.raises(error, match=f"(?s){words}"):
        trainer_of(case, tmp_path / "again").fit(module(), *loaders(case), ckpt_path=path)


@pytest.mark.feature("C-02", "T-02")
def test_weights_alone_are_not_enough_to_go_on(tmp_path: Path) -> None:
    _, path = written(tmp_path, save_weights_only=True)
    case = Case()
    with pytest.raises(MisconfigurationException, match=r"Trainer\.fit.*epoch=1\.ckpt.*weights only.*load_from_check"):
        trainer_of(case, tmp_path / "again").fit(Net(), *loaders(case), ckpt_path=path)
    result = trainer_of(case, tmp_path / "third").validate(Net(), loaders(case)[1], ckpt_path=path, verbose=False)
    assert set(result[0]) == {"val_loss"}


@pytest.mark.feature("T-02")
@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (3, MisconfigurationException, r"ckpt_path=3.*must be a path, 'best', 'last' or None, not int"),
        ("nowhere.ckpt", FileNotFoundError, r"ckpt_path='nowhere\.ckpt'.*no such file"),
        ("lst", FileNotFoundError, r"'lst'.*Did you mean 'last'"),
        ("best", MisconfigurationException, r"'best'.*no ModelCheckpoint"),
        ("hpc", MisconfigurationException, r"'hpc'.*hpc_ckpt_<n>"),
        ("registry:x", MisconfigurationException, r"'registry:x'.*give a path"),
    ],
)
@pytest.mark.parametrize("fn", ["fit", "validate"])
def test_wrong_paths(tmp_path: Path, path: Any, error: type[Exception], words: str, fn: str) -> None:
    train, val = loaders(Case())
    data = (train, val) if fn == "fit" else (val,)
    with pytest.raises(error, match=rf"Trainer\.{fn}.*{words}"):
        getattr(trainer_of(Case(), tmp_path), fn)(Net(), *data, ckpt_path=path)


@pytest.mark.feature("T-02")
def test_best_before_anything_was_saved(tmp_path: Path) -> None:
    trainer = trainer_of(Case(), tmp_path, ModelCheckpoint(tmp_path))
    with pytest.raises(MisconfigurationException, match=r"'best'.*ModelCheckpoint has not saved a checkpoint yet"):
        trainer.validate(Net(), loaders(Case())[1], ckpt_path="best")


@pytest.mark.feature("T-02", "C-02")
def test_best_and_last(tmp_path: Path) -> None:
    trainer, _ = written(tmp_path, monitor="val_loss")
    best = trainer.checkpoint_callback.best_model_score.item()
    result = trainer.validate(Net(), loaders(Case())[1], ckpt_path="best", verbose=False)
    assert trainer.ckpt_path == trainer.checkpoint_callback.best_model_path
    assert result[0]["val_loss"] != best  # augmentation draws anew; the weights are those of the file
    case = Case(epochs=3)
    again = trainer_of(case, tmp_path, ModelCheckpoint(tmp_path / "files", monitor="val_loss", save_last=True))
    again.fit(Net(), *loaders(case), ckpt_path="last")
    assert Path(again.ckpt_path).name == "last.ckpt"
    assert again.progress.total_batches == 18


@pytest.mark.feature("T-02")
def test_last_without_a_file_starts_anew(tmp_path: Path) -> None:
    trainer = trainer_of(Case(epochs=1), tmp_path, ModelCheckpoint(tmp_path, save_last=True))
    with pytest.warns(FulmenWarning, match=r"'last'.*no last checkpoint"):
        trainer.fit(Net(), *loaders(Case()), ckpt_path="last")
    assert trainer.progress.total_batches == 6


class Bomb:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("exploded",))


@pytest.mark.feature("C-07")
@pytest.mark.parametrize("key", ["state_dict", "callbacks", "hyper_parameters", "optimizer_states", "fulmen", "more"])
@pytest.mark.parametrize("fn", ["fit", "test", "load_from_checkpoint"])
def test_a_hostile_pickle_never_runs(tmp_path: Path, key: str, fn: str) -> None:
    _, path = written(tmp_path)
    checkpoint = torch.load(path, weights_only=True)
    old = checkpoint.get(key)
    if isinstance(old, dict):
        old["bomb"] = Bomb()
    elif isinstance(old, list):
        old.append(Bomb())
    else:
        checkpoint[key] = Bomb()
    hostile = tmp_path / "hostile.ckpt"
    torch.save(checkpoint, hostile)
    case = Case()

    class Tested(Net):
        test_step = Net.validation_step

    with pytest.raises(CheckpointError, match=r"hostile\.ckpt"):
        if fn == "fit":
            trainer_of(case, tmp_path / "again").fit(Net(), *loaders(case), ckpt_path=hostile)
        elif fn == "test":
            trainer_of(case, tmp_path / "again").test(Tested(), loaders(case)[1], ckpt_path=hostile)
        else:
            Net.load_from_checkpoint(hostile)
    assert not Path("exploded").exists()
    torch.load(hostile, weights_only=False)  # the file really is one that explodes
    assert Path("exploded").exists()


@pytest.mark.feature("C-02")
def test_what_the_module_does_after_a_batch_is_in_the_file(tmp_path: Path) -> None:
    """Checkpoint callbacks come after the module's hook, so that they see the batch as it ends."""

    class Draws(Net):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            torch.rand(1)
            self.head.bias.data += 0.01
            self.log("after", outputs["loss"] + 1)

    case = Case(module=Draws, epochs=2)
    whole = uninterrupted(case, tmp_path / "whole")
    callback = ModelCheckpoint(
        tmp_path, filename="{step}-{after:.3f}", every_n_train_steps=4, save_top_k=-1, monitor="after"
    )
    L.seed_everything(11, verbose=False)
    trainer_of(case, tmp_path / "parts", callback).fit(case.module(), *loaders(case))
    value = {row["step"]: float(row["after"]) for row in rows(tmp_path / "parts") if row["after"]}
    for step in (4, 8):
        path = tmp_path / f"step={step}-after={value[str(step - 1)]:.3f}.ckpt"
        same(whole, resumed(case, tmp_path / "parts", path))


class ByHand(Net):
    """Manual optimization: a step each second batch, with gradients that wait in between."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]  # nothing to return
        self.manual_backward(super().training_step(batch, batch_idx))
        if batch_idx % 2:
            optimizer, scheduler = self.optimizers(), self.lr_schedulers()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()


@pytest.mark.feature("C-02", "O-04")
@pytest.mark.parametrize("step", [7, 8, 9])
def test_in_manual_optimization(tmp_path: Path, step: int) -> None:
    case = Case(module=ByHand, epochs=3)
    whole = uninterrupted(case, tmp_path / "whole")
    path = stopped_by_plug(case, tmp_path / "parts", "on_train_batch_end", step)
    same(whole, resumed(case, tmp_path / "parts", path))
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.feature("C-02")
def test_float64_weights_come_back_as_they_were(tmp_path: Any) -> None:
    class Double(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch[0]).pow(2).mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.seen = self.layer.weight.detach().clone()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trainer() -> Any:
        return L.Trainer(
            max_epochs=1,
            accelerator="cpu",
            precision="64-true",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4)), batch_size=2)
    first, model, again = trainer(), Double(), Double()
    first.fit(model, loader, loader)
    first.save_checkpoint("double.ckpt")
    trainer().validate(again, loader, ckpt_path="double.ckpt", verbose=False)
    assert again.seen.dtype == torch.float64
    assert torch.equal(again.seen, model.layer.weight)


@pytest.mark.feature("C-02")
@pytest.mark.filterwarnings("ignore:.*validation")
def test_the_state_of_another_optimizer_is_refused_by_name() -> None:
    class Net(L.LightningModule):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.layer, self.kind = torch.nn.Linear(4, 1), kind

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return self.kind(self.parameters(), lr=0.1)

    def trainer(epochs: int) -> Any:
        return L.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 4)), batch_size=2)
    first = trainer(1)
    first.fit(Net(torch.optim.SGD), loader)
    first.save_checkpoint("sgd.ckpt")
    with pytest.raises(MisconfigurationException, match=r"sgd\.ckpt.*another optimizer than Adam.*'betas'"):
        trainer(2).fit(Net(torch.optim.Adam), loader, ckpt_path="sgd.ckpt")

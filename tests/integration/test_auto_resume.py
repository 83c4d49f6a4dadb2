"""The same command run again goes on where it was."""

from __future__ import annotations

import csv
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import ModelCheckpoint
from fulmen.errors import MisconfigurationException
from fulmen.loggers import CSVLogger
from tests.integration.toys import Toy, loader

pytestmark = pytest.mark.feature("T-11")


class Crash(Exception):
    pass


class Net(Toy):
    """Fails at a batch of all epochs."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        self.fails_at = fails_at
        self.seen = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.trainer.fit_loop.total_batch_idx == self.fails_at:
            raise Crash
        self.seen += 1
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss


class Other(Net):
    pass


def trainer(**changes: Any) -> L.Trainer:
    arguments: dict[str, Any] = {
        "max_epochs": 3,
        "log_every_n_steps": 1,
        "logger": CSVLogger("logs", "mine"),
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return L.Trainer(**{**arguments, **changes})


def fit(module: Net, ckpt_path: Any = "auto", **changes: Any) -> L.Trainer:
    made = trainer(**changes)
    with suppress(Crash):
        made.fit(module, loader(8), ckpt_path=ckpt_path)
    return made


def steps(made: L.Trainer) -> list[int]:
    with open(Path(str(made.log_dir)) / "metrics.csv") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def weights(module: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_a_first_start_trains_from_the_beginning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fulmen")
    module = Net()
    fit(module)
    assert module.seen == 12
    assert (
        "ckpt_path='auto': there is no checkpoint of this command in the log folder yet; starting anew." in caplog.text
    )


def test_after_a_crash_it_goes_on_in_the_same_folder_and_ends_alike(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fulmen")
    whole = Net()
    fit(whole, ckpt_path=None, logger=CSVLogger("elsewhere", "mine"))
    first = fit(Net(fails_at=10))
    second_module = Net()
    second = fit(second_module)
    assert "ckpt_path='auto': going on from logs/mine/version_0/checkpoints/epoch=1-step=8.ckpt." in caplog.text
    assert second_module.seen == 4
    assert second.log_dir == first.log_dir
    assert steps(second) == list(range(12))
    assert torch.equal(weights(second_module), weights(whole))
    assert second.run_id == first.run_id
    names = sorted(path.name for path in Path("logs/mine/version_0/checkpoints").glob("*.ckpt"))
    assert names == ["epoch=2-step=12.ckpt"]


def test_another_command_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fit(Net(fails_at=10))
    monkeypatch.setattr(sys, "argv", [sys.argv[0], "--lr", "0.3"])
    module = Net()
    made = fit(module)
    assert module.seen == 12
    assert made.log_dir == "logs/mine/version_1"


def test_another_module_starts_anew() -> None:
    fit(Net(fails_at=10), callbacks=ModelCheckpoint("shared"))
    module = Other()
    fit(module, callbacks=ModelCheckpoint("shared"))
    assert module.seen == 12


@pytest.mark.parametrize("folder", ["ckpts", "memory://auto/ckpts"])
def test_a_named_folder_local_or_remote(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(Net(fails_at=10), callbacks=ModelCheckpoint(folder))
    monkeypatch.setattr(sys, "argv", [sys.argv[0], "--max_epochs", "4"])  # the folder says what belongs together
    module = Net()
    made = fit(module, callbacks=ModelCheckpoint(folder), max_epochs=4)
    assert module.seen == 8
    assert made.current_epoch == 4


@pytest.mark.feature("C-05")
def test_a_torn_file_is_passed_over() -> None:
    fit(Net(fails_at=10), callbacks=ModelCheckpoint("ckpts", save_top_k=-1))
    newest = Path("ckpts/epoch=1-step=8.ckpt")
    newest.write_bytes(newest.read_bytes()[:-100])
    module = Net()
    made = fit(module, callbacks=ModelCheckpoint("ckpts", save_top_k=-1))
    assert module.seen == 8
    assert str(made.ckpt_path).endswith("ckpts/epoch=0-step=4.ckpt")


def test_files_of_weights_alone_and_of_unknown_origin_are_passed_over() -> None:
    made = fit(Net(fails_at=10), callbacks=ModelCheckpoint("ckpts", save_weights_only=True))
    made.save_checkpoint("copy.ckpt")
    Path("ckpts/unknown.ckpt").write_bytes(Path("copy.ckpt").read_bytes())
    module = Net()
    fit(module, callbacks=ModelCheckpoint("ckpts"))
    assert module.seen == 12


def test_without_loggers_it_is_the_root_folder() -> None:
    fit(Net(fails_at=10), logger=False)
    module = Net()
    fit(module, logger=False)
    assert module.seen == 4


@pytest.mark.parametrize("name", ["validate", "test", "predict"])
def test_only_a_fit_goes_on_by_itself(name: str) -> None:
    with pytest.raises(MisconfigurationException, match=rf"Trainer\.{name}\(ckpt_path='auto'\): only `fit`"):
        getattr(trainer(), name)(Evaluated(), loader(4), ckpt_path="auto")


class Evaluated(Net):
    def validation_step(self, batch: Any, batch_idx: int) -> None: ...

    def test_step(self, batch: Any, batch_idx: int) -> None: ...


def test_without_checkpoints_there_is_nothing_to_go_on_from() -> None:
    with pytest.raises(MisconfigurationException, match=r"ckpt_path='auto'\): no checkpoint callback writes anything"):
        fit(Net(), enable_checkpointing=False)


def test_a_name_that_makes_folders_is_found() -> None:
    def keeper() -> ModelCheckpoint:
        return ModelCheckpoint("ckpts", monitor="part/loss", filename="{epoch}-{part/loss:.2f}", save_top_k=-1)

    class Parts(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("part/loss", loss, on_step=False, on_epoch=True)
            return loss

    fit(Parts(fails_at=10), callbacks=keeper())
    module = Parts()
    fit(module, callbacks=keeper())
    assert module.seen == 4

"""The configuration record: in every checkpoint, in the run record, and for loggers that ask for it."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import EarlyStopping, ModelCheckpoint
from fulmen.demos.boring_classes import BoringDataModule, BoringModel
from fulmen.engine.runtime.policy import Policy
from fulmen.loggers import CSVLogger, Logger, read_record
from fulmen.trainer.run_manifest import describe, run_manifest
from fulmen.version import __version__
from tests.ids import plain as plain_id


class Model(BoringModel):
    def __init__(self, width: int = 3, options: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.25)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)]


class Data(BoringDataModule):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.save_hyperparameters()


def trainer(folder: Path, **kwargs: Any) -> L.Trainer:
    settings = {"max_steps": 2, "limit_val_batches": 0, "logger": False, "enable_checkpointing": False, **kwargs}
    return L.Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        **settings,
    )


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (bool, int, float, str)


@pytest.mark.feature("C-10")
@pytest.mark.parametrize("weights_only", [False, True])
def test_every_checkpoint_has_it(tmp_path: Path, weights_only: bool) -> None:
    L.seed_everything(7, workers=True, verbose=False)
    run = trainer(tmp_path, callbacks=[EarlyStopping("x", patience=9, strict=False)], gradient_clip_val=0.5)
    run.fit(Model(4, {"a": [1, 2]}), datamodule=Data(tmp_path))
    run.save_checkpoint(tmp_path / "a.ckpt", weights_only=weights_only)
    manifest = torch.load(tmp_path / "a.ckpt", weights_only=True)["fulmen"]["manifest"]

    assert plain(manifest)
    json.dumps(manifest)
    given, effective = manifest["trainer"]["given"], manifest["trainer"]["effective"]
    assert given["gradient_clip_val"] == 0.5 and given["limit_val_batches"] == 0
    assert "max_epochs" not in given and "overfit_batches" not in given
    assert (effective["max_epochs"], effective["devices"], effective["precision"]) == (-1, 1, "32-true")
    assert effective["strategy"]["class"] == "fulmen.strategies.single_device.SingleDeviceStrategy"
    stopping = next(c for c in effective["callbacks"] if c["class"].endswith(".EarlyStopping"))
    assert (stopping["monitor"], stopping["patience"]) == ("x", 9)
    assert all(effective["policy"][name] is True for name in ("count_batches", "run_record"))

    assert manifest["module"]["class"] == f"{__name__}.Model"
    assert manifest["module"]["hparams"] == {"width": 4, "options": {"a": [1, 2]}}
    assert (manifest["module"]["parameters"], manifest["module"]["trainable"]) == (66, 66)
    assert manifest["datamodule"] == {"class": f"{__name__}.Data", "hparams": {"folder": str(tmp_path)}}
    (optimizer,) = manifest["optimizers"]
    assert optimizer["class"] == "torch.optim.sgd.SGD"
    assert (optimizer["groups"][0]["lr"], optimizer["groups"][0]["momentum"]) == (0.5, 0.25)
    assert optimizer["schedulers"][0]["class"] == "torch.optim.lr_scheduler.StepLR"
    assert manifest["seed"] == {"seed": 7, "workers": True}
    assert manifest["packages"]["fulmen"] == __version__
    assert manifest["hardware"]["device"] == "cpu" and manifest["hardware"]["processes"] == 1
    assert "git" in manifest


def test_every_argument_of_the_trainer_is_in_it(tmp_path: Path) -> None:
    import inspect

    run = trainer(tmp_path)
    run.fit(Model())
    names = set(inspect.signature(L.Trainer).parameters)
    assert names == run_manifest(run)["trainer"]["effective"].keys()


@pytest.mark.feature("C-10")
def test_run_record_has_it(tmp_path: Path) -> None:
    run = trainer(tmp_path, logger=CSVLogger(tmp_path, name="", version=""), enable_checkpointing=True)
    run.fit(Model(width=5))
    start = next(entry for entry in read_record(tmp_path) if entry["kind"] == "start")
    assert start["manifest"]["module"]["hparams"]["width"] == 5
    stored = torch.load(run.checkpoint_callback.best_model_path, weights_only=True)["fulmen"]["manifest"]
    assert stored == start["manifest"]


class Keeps(Logger):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None: ...

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        self.calls.append(("hparams", dict(params) if isinstance(params, dict) else vars(params)))

    def log_manifest(self, manifest: Any) -> None:
        self.calls.append(("manifest", manifest["module"]["class"]))


@pytest.mark.feature("C-10")
def test_loggers_that_want_it_get_it_after_the_hyperparameters(tmp_path: Path) -> None:
    logger = Keeps()
    trainer(tmp_path, logger=logger).fit(Model())
    assert logger.calls == [("hparams", {"width": 3, "options": None}), ("manifest", f"{__name__}.Model")]


def test_each_call_has_its_own(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    run.fit(Model(width=1))
    assert run_manifest(run)["module"]["hparams"]["width"] == 1
    run.validate(Model(width=2), verbose=False)
    assert run_manifest(run)["module"]["hparams"]["width"] == 2


def test_nothing_is_put_together_when_nobody_asks(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    run.fit(Model())
    assert run.manifest is None


def test_policy_lightning_writes_it_into_checkpoints_only(tmp_path: Path) -> None:
    run = trainer(
        tmp_path,
        policy=Policy.lightning,
        callbacks=[ModelCheckpoint(tmp_path / "ckpt")],
        logger=CSVLogger(tmp_path, name="", version=""),
        enable_checkpointing=True,
    )
    run.fit(Model())
    assert not (tmp_path / "run.jsonl").exists()
    manifest = torch.load(run.checkpoint_callback.best_model_path, weights_only=True)["fulmen"]["manifest"]
    assert not any(v for k, v in manifest["trainer"]["effective"]["policy"].items() if k != "class")


def test_a_section_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    class Bad(Model):
        @property
        def hparams(self) -> Any:
            raise KeyError("no hyperparameters today")

    class Silent(Bad):
        def __init__(self) -> None:
            BoringModel.__init__(self)

    run = trainer(tmp_path)
    run.fit(Silent())
    found = run_manifest(run)
    assert found["module"] == {"error": "KeyError: 'no hyperparameters today'"}
    assert found["trainer"]["effective"]["max_steps"] == 2


class Widget:
    def __init__(self, size: int, hidden: int, other: int = 0) -> None:
        self.size, self._hidden, self.state = size, hidden, "not an argument"

    @property
    def other(self) -> int:
        raise AssertionError("properties are not read")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        ("x" * 3000, "x" * 2000 + "..."),
        (Path("a/b"), "a/b"),
        (torch.float16, "torch.float16"),
        (torch.device("cpu"), "cpu"),
        (torch.tensor(2.5), 2.5),
        (torch.ones(2, 3), "<Tensor (2, 3)>"),
        (torch.nn.Linear, "torch.nn.modules.linear.Linear"),
        (range(3), {"class": "builtins.range"}),
        ({1: (2, {3})}, {"1": [2, [3]]}),
        (Widget(2, 3), {"class": f"{__name__}.Widget", "size": 2, "hidden": 3}),
    ],
    ids=plain_id,
)
def test_plain_forms(value: Any, expected: Any) -> None:
    assert describe(value) == expected


def test_long_and_endless_structures_are_cut() -> None:
    assert len(describe(list(range(1000)))) == 200
    endless: list[Any] = []
    endless.append(endless)
    assert plain(describe(endless))

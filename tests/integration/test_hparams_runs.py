"""Hyperparameters through whole runs: loggers, checkpoints, another process, values that no file can hold."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
import textwrap
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import fulmen as L
from fulmen.core.hparams import HparamsConflictError
from fulmen.demos.boring_classes import BoringDataModule, BoringModel
from fulmen.engine.runtime.policy import Policy, set_default_policy
from fulmen.errors import ArgumentTypeError
from fulmen.loggers import CSVLogger, TensorBoardLogger

omegaconf = pytest.importorskip("omegaconf")

pytestmark = pytest.mark.feature("M-06", "M-07")


class Model(BoringModel):
    def __init__(self, width: int = 3, lr: float = 0.1, extra: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters()


class Data(BoringDataModule):
    def __init__(self, batch_size: int = 4, folder: Any = "data") -> None:
        super().__init__()
        self.save_hyperparameters()


def fit(folder: Path, model: Any, data: Any = None, **kwargs: Any) -> L.Trainer:
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=2,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        default_root_dir=folder,
        **{"logger": False, **kwargs},
    )
    trainer.fit(model, datamodule=data)
    return trainer


def saved(folder: Path, model: Any, data: Any = None) -> Path:
    path = folder / "a.ckpt"
    fit(folder, model, data).save_checkpoint(path)
    return path


# --- loggers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_loggers_get_the_initial_values_of_both(tmp_path: Path, kind: Any) -> None:
    class Changes(Model):
        def on_train_start(self) -> None:
            self.hparams.lr = 5.0

    model = Changes(width=7, extra={"a": [1, 2], "path": Path("x/y")})
    logger = kind(tmp_path, name="", version="")
    fit(tmp_path, model, Data(batch_size=2), logger=logger)
    found = yaml.safe_load((tmp_path / "hparams.yaml").read_text())
    assert found["width"] == 7 and found["batch_size"] == 2 and found["extra"]["a"] == [1, 2]
    assert found["lr"] == 0.1  # as it was when saved; the checkpoint has what it became
    assert model.hparams_initial.lr == 0.1 and model.hparams.lr == 5.0


def test_values_that_are_not_for_loggers(tmp_path: Path) -> None:
    class Silent(BoringModel):
        def __init__(self, secret: str = "x") -> None:
            super().__init__()
            self.save_hyperparameters(logger=False)

    fit(tmp_path, Silent(), Data(), logger=CSVLogger(tmp_path, name="", version=""))
    found = yaml.safe_load((tmp_path / "hparams.yaml").read_text())
    assert found == {"batch_size": 4, "folder": "data"}


def test_module_and_data_module_that_disagree(tmp_path: Path) -> None:
    steps: list[int] = []

    class Other(BoringModel):
        def __init__(self, batch_size: int = 8) -> None:
            super().__init__()
            self.save_hyperparameters()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            steps.append(batch_idx)
            return super().training_step(batch, batch_idx)

    words = r"Other and Data save different values.*'batch_size': 8 in Other, 4 in Data.*ignore=\['batch_size'\]"
    with pytest.raises(HparamsConflictError, match=words):
        fit(tmp_path, Other(), Data(), logger=CSVLogger(tmp_path))
    assert steps == []
    fit(tmp_path, Other(batch_size=4), Data(), logger=CSVLogger(tmp_path))


def test_a_file_of_a_logger_builds_a_module_without_stored_values(tmp_path: Path) -> None:
    fit(tmp_path, Model(width=9), logger=CSVLogger(tmp_path, name="", version=""))
    path = saved(tmp_path, BoringModel())
    loaded = Model.load_from_checkpoint(path, hparams_file=tmp_path / "hparams.yaml", lr=0.5)
    assert dict(loaded.hparams) == {"width": 9, "lr": 0.5, "extra": None}


# --- values ------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Options:
    depth: int = 2
    names: tuple[str, ...] = ("a",)


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": [1, (2, 3)]}},
        Path("some/where"),
        np.float64(0.5),
        np.arange(3),
        torch.tensor([1.0, 2.0]),
        torch.float16,
        torch.device("cpu"),
        {1, 2},
        range(3),
        Namespace(a=1, b=[2]),
        omegaconf.OmegaConf.create({"a": 1, "b": "${a}"}),
        Colour.RED,
        Options(3, ("x", "y")),
        complex(1, 2),
        b"bytes",
        float("inf"),
        2**80,
    ],
    ids=lambda v: type(v).__name__,
)
def test_values_come_back_as_they_were(tmp_path: Path, value: Any) -> None:
    loaded = Model.load_from_checkpoint(saved(tmp_path, Model(extra=value)))
    found = loaded.hparams.extra
    assert type(found) is type(value)
    same = np.array_equal(found, value) if hasattr(value, "shape") else found == value
    assert same


def unpicklable() -> dict[str, Any]:
    def generator() -> Any:
        yield 1

    return {
        "function": lambda x: x,
        "lock": threading.Lock(),
        "generator": generator(),
        "local class": type("Local", (), {})(),
        "module": sys,
    }


@pytest.mark.parametrize("kind", list(unpicklable()))
@pytest.mark.parametrize("nested", [False, True])
def test_values_that_no_file_can_hold(tmp_path: Path, kind: str, nested: bool) -> None:
    value = unpicklable()[kind]
    model = Model(width=5, extra={"inside": value, "kept": 1} if nested else value)
    with pytest.warns(UserWarning, match=r"extra.*inside" if nested else "extra") as found:
        path = saved(tmp_path, model)
    assert len([w for w in found if "extra" in str(w.message)]) == 1
    assert (model.hparams.extra["inside"] if nested else model.hparams.extra) is value  # the module keeps it
    stored = torch.load(path, weights_only=True)["hyper_parameters"]
    assert stored["width"] == 5
    loaded = Model.load_from_checkpoint(path, extra=3)
    assert dict(loaded.hparams) == {"width": 5, "lr": 0.1, "extra": 3}
    if not nested:
        assert Model.load_from_checkpoint(path).hparams.extra is None  # the constructor's default


def test_a_required_value_that_was_left_out_is_named(tmp_path: Path) -> None:
    class Needs(BoringModel):
        def __init__(self, function: Any, width: int = 2) -> None:
            super().__init__()
            self.save_hyperparameters()

    with pytest.warns(UserWarning, match="function"):
        path = saved(tmp_path, Needs(lambda x: x))
    with pytest.raises(ArgumentTypeError, match=r"no value for 'function' of Needs.*Stored hyperparameters: width"):
        Needs.load_from_checkpoint(path)
    assert Needs.load_from_checkpoint(path, function=abs).hparams.function is abs


def test_modules_among_the_values(tmp_path: Path) -> None:
    class Wraps(BoringModel):
        def __init__(self, net: torch.nn.Module, width: int = 2) -> None:
            super().__init__()
            self.net = net
            self.save_hyperparameters()

    class Leaves(BoringModel):
        def __init__(self, net: torch.nn.Module, width: int = 2) -> None:
            super().__init__()
            self.net = net
            self.save_hyperparameters(ignore=["net"])

    sizes = []
    for cls in (Wraps, Leaves):
        net = torch.nn.Linear(100, 100)
        if cls is Wraps:
            with pytest.warns(UserWarning, match=r"'net' of Wraps is an `nn.Module` \(Linear\).*ignore=\['net'\]"):
                model: Any = cls(net)
        else:
            model = cls(net)
        path = tmp_path / f"{cls.__name__}.ckpt"
        trainer = fit(tmp_path, model)
        trainer.save_checkpoint(path, weights_only=True)
        sizes.append(path.stat().st_size)
        loaded = cls.load_from_checkpoint(path, net=torch.nn.Linear(100, 100))
        assert torch.equal(loaded.net.weight, net.weight)
    assert abs(sizes[0] - sizes[1]) < 4000  # the weights are in either file once


def test_changes_during_the_run_are_in_the_checkpoint(tmp_path: Path) -> None:
    class Changes(Model):
        def on_train_epoch_end(self) -> None:
            self.hparams.lr = 0.7
            self.hparams["found"] = [1, 2]

    path = saved(tmp_path, Changes())
    stored = torch.load(path, weights_only=True)["hyper_parameters"]
    assert stored == {"width": 3, "lr": 0.7, "extra": None, "found": [1, 2]}
    assert Changes.load_from_checkpoint(path).hparams.lr == 0.7  # what the constructor does not know is passed over


# --- loading -----------------------------------------------------------------------------------------------------


def test_data_modules(tmp_path: Path) -> None:
    path = saved(tmp_path, Model(), Data(batch_size=6, folder=Path("d")))
    assert dict(Data.load_from_checkpoint(path).hparams) == {"batch_size": 6, "folder": Path("d")}
    assert Data.load_from_checkpoint(path, batch_size=2).hparams.batch_size == 2
    words = r"'batch_sise' is no argument of Data\. Did you mean 'batch_size'\? Its arguments: batch_size, folder"
    with pytest.raises(ArgumentTypeError, match=words):
        Data.load_from_checkpoint(path, batch_sise=2)


@pytest.mark.parametrize(
    ("policy", "raises"),
    [
        (Policy.right, True),
        (Policy.lightning, False),
        (Policy.right.replace(unknown_arguments_raise=False), False),
        (Policy.lightning.replace(unknown_arguments_raise=True), True),
    ],
)
def test_unknown_arguments_by_policy(tmp_path: Path, policy: Policy, raises: bool) -> None:
    path = saved(tmp_path, Model(width=4))
    words = (
        r"'widht' is no argument of Model.*Did you mean 'width'\? Its arguments: width, lr, extra. Stored"
        r" hyperparameters: width, lr, extra\."
    )
    former = set_default_policy(policy)
    try:
        if raises:
            with pytest.raises(ArgumentTypeError, match=words):
                Model.load_from_checkpoint(path, widht=5)
        else:
            with pytest.warns(UserWarning, match=words):
                assert Model.load_from_checkpoint(path, widht=5).hparams.width == 4
    finally:
        set_default_policy(former)


def test_omegaconf_stays_itself(tmp_path: Path) -> None:
    class Configured(BoringModel):
        def __init__(self, cfg: Any) -> None:
            super().__init__()
            self.save_hyperparameters(cfg)

    cfg = omegaconf.OmegaConf.create({"lr": 0.1, "net": {"width": 4, "twice": "${net.width}"}})
    logger = CSVLogger(tmp_path, name="", version="")
    trainer = fit(tmp_path, Configured(cfg), logger=logger)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert yaml.safe_load((tmp_path / "hparams.yaml").read_text())["net"] == {"width": 4, "twice": 4}
    loaded = Configured.load_from_checkpoint(tmp_path / "a.ckpt", lr=0.5)
    assert isinstance(loaded.hparams, omegaconf.DictConfig)
    assert loaded.hparams == {"lr": 0.5, "net": {"width": 4, "twice": 4}}
    loaded.hparams.net.width = 8
    assert loaded.hparams.net.twice == 8


def test_another_process_reads_them(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        textwrap.dedent(
            """
            from pathlib import Path
            from fulmen.demos.boring_classes import BoringModel

            class Model(BoringModel):
                def __init__(self, width=1, folder=None, options=None):
                    super().__init__()
                    self.save_hyperparameters()
            """
        )
    )
    sys.path.insert(0, str(tmp_path))
    try:
        from model import Model as Theirs  # type: ignore[import-not-found]  # written above
    finally:
        sys.path.remove(str(tmp_path))
    path = saved(tmp_path, Theirs(width=5, folder=Path("x"), options={"a": np.float32(1.5)}))
    code = f"from model import Model; print(sorted(Model.load_from_checkpoint({str(path)!r}).hparams.items()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[('folder', PosixPath('x')), ('options', {'a': np.float32(1.5)}), ('width', 5)]"

"""CSVLogger: files, columns, resumption, bad arguments."""

from __future__ import annotations

import copy
import csv
import math
import os
import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning, LoggingError, forget_warnings
from fulmen.loggers import CSVLogger, files
from fulmen.loggers.csv_logs import ExperimentWriter
from fulmen.loggers.logger import DummyExperiment
from fulmen.utilities.rank_zero import rank_zero_only


def rows_of(logger: CSVLogger) -> list[dict[str, str]]:
    text = files.read_text(f"{logger.log_dir}/metrics.csv")
    return list(csv.DictReader(text.splitlines()))


def cells(logger: CSVLogger, key: str) -> list[tuple[int, str]]:
    return [(int(row["step"]), row[key]) for row in rows_of(logger) if row.get(key)]


@pytest.mark.feature("G-01")
def test_files_and_layout(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="exp")
    assert not (tmp_path / "exp").exists(), "nothing is created before the first use"
    logger.log_hyperparams({"lr": 0.1, "model": {"act": torch.nn.ReLU, "path": Path("a/b")}, "sizes": (1, 2)})
    logger.log_hyperparams(Namespace(seed=1))
    logger.log_metrics({"loss": torch.tensor(0.5), "epoch": 0}, step=0)
    logger.log_metrics({"loss": 0.25, "epoch": 0}, step=1)
    logger.finalize("success")

    folder = tmp_path / "exp" / "version_0"
    assert logger.log_dir == str(folder)
    assert (logger.root_dir, logger.save_dir, logger.name, logger.version) == (
        str(tmp_path / "exp"),
        str(tmp_path),
        "exp",
        0,
    )
    assert sorted(p.name for p in folder.iterdir()) == ["hparams.yaml", "metrics.csv"]
    assert (folder / "metrics.csv").read_bytes() == b"epoch,loss,step\r\n0,0.5,0\r\n0,0.25,1\r\n"
    assert yaml.safe_load((folder / "hparams.yaml").read_text()) == {
        "lr": 0.1,
        "model": {"act": "torch.nn.modules.activation.ReLU", "path": str(Path("a/b"))},
        "sizes": [1, 2],
        "seed": 1,
    }


@pytest.mark.feature("G-01")
def test_new_columns_after_the_first_flush_keep_the_rows(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    for step, row in enumerate(({"m": 1.0}, {"m": 1.5}, {"z": 2.0}, {"z": 2.5}, {"a": 3.0, "m": 4.0}, {"m": 5.0})):
        logger.log_metrics(row, step)
    text = Path(logger.log_dir, "metrics.csv").read_text().split()
    assert text == ["a,m,step,z", ",1.0,0,", ",1.5,1,", ",,2,2.0", ",,3,2.5", "3.0,4.0,4,", ",5.0,5,"]
    assert not list(Path(logger.log_dir).glob("*.part"))


@pytest.mark.feature("G-01")
def test_a_row_costs_no_rewrite_and_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    logger.log_metrics({"m": 1.0}, 0)
    for name in ("replace_text", "read_text", "is_file", "cut_torn_line"):
        monkeypatch.setattr(files, name, lambda *a, **k: pytest.fail("touches the rows before it"))
    for step in range(1, 50):
        logger.log_metrics({"m": 1.0}, step)
    monkeypatch.undo()
    assert [step for step, _ in cells(logger, "m")] == list(range(50))


@pytest.mark.feature("G-01")
def test_a_crash_while_the_header_grows_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"a": 1.0}, 0)
    logger.save()
    logger.log_metrics({"b": 2.0}, 1)

    def full_disk(old: str, new: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        logger.save()
    assert [row["step"] for row in rows_of(logger)] == ["0"]
    monkeypatch.undo()
    logger.finalize("success")
    assert cells(logger, "a") == [(0, "1.0")]
    assert cells(logger, "b") == [(1, "2.0")]


@pytest.mark.feature("G-01")
def test_flush_interval(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=3)
    path = Path(logger.log_dir, "metrics.csv")
    logger.log_metrics({"a": 1.0}, 0)
    logger.log_metrics({"a": 1.0}, 1)
    assert not path.exists()
    logger.log_metrics({"a": 1.0}, 2)
    assert len(rows_of(logger)) == 3


@pytest.mark.feature("G-01")
def test_steps_go_on_by_themselves(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    for _ in range(3):
        logger.log_metrics({"a": 1.0})
    logger.log_metrics({"a": 1.0}, step=torch.tensor(10))  # type: ignore[arg-type]  # a tensor works too
    logger.log_metrics({"a": 1.0})
    assert [step for step, _ in cells(logger, "a")] == [0, 1, 2, 10, 11]
    logger.finalize("success")
    again = CSVLogger(tmp_path, version=0)
    again.log_metrics({"a": 1.0})
    again.finalize("success")
    assert [step for step, _ in cells(again, "a")][-1] == 12


@pytest.mark.feature("G-01", "C-02")
def test_resuming_in_the_same_folder_appends(tmp_path: Path) -> None:
    first = CSVLogger(tmp_path, version="run")
    for step in range(5):
        first.log_metrics({"loss": float(step)}, step)
    first.finalize("success")
    second = CSVLogger(tmp_path, version="run")
    for step in range(5, 8):
        second.log_metrics({"loss": float(step), "lr": 0.1}, step)
    second.finalize("success")
    assert cells(second, "loss") == [(step, str(float(step))) for step in range(8)]
    assert cells(second, "lr") == [(step, "0.1") for step in range(5, 8)]


@pytest.mark.feature("G-01", "C-02")
def test_rewind_makes_rows_unique_per_step_and_key(tmp_path: Path) -> None:
    first = CSVLogger(tmp_path, version="run")
    for step in range(10):
        first.log_metrics({"loss": step, "epoch": 0}, step)
    first.log_metrics({"val": 9, "epoch": 0}, 9)
    first.finalize("failed")

    second = CSVLogger(tmp_path, version="run")
    second.rewind(6)  # six steps are done: 0..5
    assert [row["step"] for row in rows_of(second)] == ["0", "1", "2", "3", "4", "5"]
    for step in range(6, 12):
        second.log_metrics({"loss": 100 + step, "epoch": 0}, step)
    second.finalize("success")
    assert cells(second, "loss") == [(s, str(s)) for s in range(6)] + [(s, str(100 + s)) for s in range(6, 12)]
    assert cells(second, "val") == []


@pytest.mark.feature("G-01", "C-02")
def test_a_validation_done_again_replaces_its_row(tmp_path: Path) -> None:
    first = CSVLogger(tmp_path, version="run")
    for step in range(4):
        first.log_metrics({"loss": step, "epoch": 0}, step)
    first.log_metrics({"val": 1.0, "val_acc": 2.0, "epoch": 0}, 3)
    first.finalize("failed")

    second = CSVLogger(tmp_path, version="run")
    second.rewind(4)  # the checkpoint was written before the validation of step 3
    second.log_metrics({"val": 1.5, "val_acc": 2.5, "epoch": 0}, 3)
    second.log_metrics({"loss": 4, "epoch": 1}, 4)
    second.finalize("success")
    assert cells(second, "val") == [(3, "1.5")]
    assert cells(second, "val_acc") == [(3, "2.5")]
    assert cells(second, "loss") == [(s, str(s)) for s in range(5)]
    assert len(rows_of(second)) == 6, "the emptied row is gone"


@pytest.mark.feature("G-01")
def test_rewind_without_a_file_creates_nothing(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    logger.rewind(3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("G-01")
def test_rewind_forgets_rows_in_memory(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    for step in range(5):
        logger.log_metrics({"a": step}, step)
    logger.rewind(2)
    logger.finalize("success")
    assert [s for s, _ in cells(logger, "a")] == [0, 1]


@pytest.mark.feature("G-01")
@pytest.mark.parametrize("tail", [b"2,0.", b"garbage", b"3,1.0,"])
def test_a_torn_last_line_is_cut(tmp_path: Path, tail: bytes) -> None:
    first = CSVLogger(tmp_path, version="run")
    first.log_metrics({"a": 1.0}, 0)
    first.finalize("failed")
    path = Path(first.log_dir, "metrics.csv")
    path.write_bytes(path.read_bytes() + tail)
    second = CSVLogger(tmp_path, version="run")
    second.log_metrics({"a": 2.0}, 1)
    second.finalize("success")
    assert path.read_bytes() == b"a,step\r\n1.0,0\r\n2.0,1\r\n"


def test_cut_torn_line_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"whole\n" + b"x" * 200_000)
    files.cut_torn_line(str(path))
    assert path.read_bytes() == b"whole\n"
    path.write_bytes(b"x" * 200_000)
    files.cut_torn_line(str(path))
    assert path.read_bytes() == b""


@pytest.mark.feature("G-01")
def test_a_new_run_in_an_old_folder_says_so_and_keeps_the_rows(tmp_path: Path) -> None:
    forget_warnings()
    first = CSVLogger(tmp_path, version="run")
    for step in range(3):
        first.log_metrics({"a": 1.0}, step)
    first.finalize("success")
    second = CSVLogger(tmp_path, version="run")
    with pytest.warns(FulmenWarning, match=r"rows up to step 2 .* kept.*FULMEN-W301"):
        second.log_metrics({"a": 2.0}, 0)
    second.log_metrics({"a": 2.0}, 1)
    second.finalize("success")
    assert [s for s, _ in cells(second, "a")] == [0, 1, 2, 0, 1]


@pytest.mark.feature("G-01")
def test_non_finite_values_and_kinds_of_numbers(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    values: dict[str, Any] = {
        "nan": float("nan"),
        "inf": torch.tensor(float("-inf")),
        "bool": True,
        "np": np.float32(0.5),
        "one": torch.ones(1, 1),
        "none": None,
        "text": "a,b\n",
        "parts": {"x": 1, "y": torch.tensor(2)},
    }
    logger.log_metrics(values, 0)
    logger.finalize("success")
    with open(Path(logger.log_dir, "metrics.csv"), newline="") as file:
        (row,) = csv.DictReader(file)
    assert math.isnan(float(row["nan"]))
    assert float(row["inf"]) == -math.inf
    assert (row["bool"], row["np"], row["one"], row["none"], row["text"]) == ("True", "0.5", "1.0", "", "a,b\n")
    assert (row["parts/x"], row["parts/y"]) == ("1", "2")


@pytest.mark.feature("L-09")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(3), r"'acc' is a Tensor of shape \(3,\)"),
        (np.zeros((2, 2)), r"'acc' is a ndarray of shape \(2, 2\)"),
        ([1, 2], r"'acc' is a builtins.list"),
        (object(), r"'acc' is a builtins.object"),
        ({"x": [1]}, r"'acc/x' is a builtins.list"),
    ],
)
def test_unloggable_values_name_key_and_type(tmp_path: Path, value: Any, words: str) -> None:
    logger = CSVLogger(tmp_path)
    with pytest.raises(LoggingError, match=f"CSVLogger: the value logged under {words}"):
        logger.log_metrics({"acc": value}, 0)
    assert logger.experiment.metrics == [], "no half row"


@pytest.mark.feature("L-09")
@pytest.mark.parametrize("step", [1.5, "one", torch.ones(2)])
def test_a_step_is_a_whole_number(tmp_path: Path, step: Any) -> None:
    with pytest.raises(LoggingError, match="step"):
        CSVLogger(tmp_path).log_metrics({"a": 1.0}, step)


@pytest.mark.feature("G-01", "G-09")
def test_prefix(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, prefix="run1")
    logger.log_metrics({"a": 1.0}, 0)
    logger.finalize("success")
    assert cells(logger, "run1-a") == [(0, "1.0")]


@pytest.mark.feature("G-01")
def test_versions(tmp_path: Path) -> None:
    for name in ("version_0", "version_3", "version_7_old", "version_x", "other"):
        (tmp_path / "exp" / name).mkdir(parents=True)
    (tmp_path / "exp" / "version_9").write_text("a file, not a folder")
    assert CSVLogger(tmp_path, "exp").version == 8
    assert CSVLogger(tmp_path, "exp", version=3).log_dir == str(tmp_path / "exp" / "version_3")
    assert CSVLogger(tmp_path, "exp", version="mine").log_dir == str(tmp_path / "exp" / "mine")
    assert CSVLogger(tmp_path, "new").version == 0
    for name in (None, ""):
        logger = CSVLogger(tmp_path, name=name, version=1)
        assert logger.name == ""
        assert Path(logger.log_dir) == tmp_path / "version_1"
    lazy = CSVLogger(tmp_path, "late")
    (tmp_path / "late" / "version_4").mkdir(parents=True)
    assert lazy.version == 5
    (tmp_path / "late" / "version_5").mkdir(parents=True)
    assert lazy.version == 5, "fixed when first asked for"


@pytest.mark.feature("G-01")
def test_home_and_variables_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WHERE", "here")
    logger = CSVLogger("~/$WHERE", name="e", version=0)
    assert logger.log_dir == str(tmp_path / "here" / "e" / "version_0")
    assert logger.save_dir == "~/$WHERE"


@pytest.mark.feature("G-01")
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_go_on_in_the_same_file(tmp_path: Path, copier: Any) -> None:
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"a": 1.0}, 0)
    logger.save()
    logger.log_metrics({"a": 2.0}, 1)
    twin = copier(logger)
    assert twin.version == logger.version
    logger.finalize("success")
    twin.log_metrics({"a": 3.0}, 2)
    twin.finalize("success")
    assert cells(logger, "a") == [(0, "1.0"), (1, "2.0"), (2, "3.0")]


@pytest.mark.feature("G-07")
def test_finalize_twice_and_logging_after_it(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    logger.finalize("success")
    assert list(tmp_path.iterdir()) == [], "never used: nothing created"
    logger.log_metrics({"a": 1.0}, 0)
    logger.finalize("success")
    logger.finalize("success")
    logger.log_metrics({"test": 5.0}, 1)
    logger.finalize("success")
    assert cells(logger, "a") == [(0, "1.0")]
    assert cells(logger, "test") == [(1, "5.0")]


@pytest.mark.feature("G-01")
def test_fsspec_urls() -> None:
    pytest.importorskip("fsspec")
    logger = CSVLogger("memory://csv-logs", name="e")
    logger.log_hyperparams({"a": 1})
    logger.log_metrics({"a": 1.0}, 0)
    logger.save()
    logger.log_metrics({"a": 2.0}, 1)
    logger.save()
    logger.log_metrics({"b": 2.0}, 2)
    logger.finalize("success")
    assert CSVLogger("memory://csv-logs", name="e").version == 1
    again = CSVLogger("memory://csv-logs", name="e", version=0)
    again.rewind(2)
    again.log_metrics({"b": 3.0}, 2)
    again.finalize("success")
    assert cells(again, "a") == [(0, "1.0"), (1, "2.0")]
    assert cells(again, "b") == [(2, "3.0")]


@pytest.mark.feature("G-09")
def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = CSVLogger(tmp_path, version=0)
    assert isinstance(logger.experiment, DummyExperiment)
    logger.log_hyperparams({"a": 1})
    logger.log_metrics({"a": torch.ones(3)}, 0)
    logger.save()
    logger.rewind(1)
    logger.finalize("success")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("G-09")
def test_raw_handle(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    assert isinstance(logger.experiment, ExperimentWriter)
    assert logger.experiment is logger.experiment
    logger.experiment.log_metrics({"mine": 1.0}, 4)
    logger.experiment.save()
    assert cells(logger, "mine") == [(4, "1.0")]


def test_no_open_file_is_left_to_the_garbage_collector(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    for step in range(2):  # the first row brings the columns, the second is appended
        logger.log_metrics({"a": 1.0}, step)
    assert len(os.listdir("/dev/fd")) == before + 1
    del logger
    assert len(os.listdir("/dev/fd")) == before


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"save_dir": 3}, ArgumentTypeError, r"CSVLogger\(save_dir=3\): expected a str or a path, got int"),
    ({"save_dir": None}, ArgumentTypeError, r"save_dir=None"),
    ({"save_dir": b"x"}, ArgumentTypeError, r"got bytes"),
    ({"name": 3}, ArgumentTypeError, r"CSVLogger\(name=3\): expected a str"),
    ({"version": 1.0}, ArgumentTypeError, r"CSVLogger\(version=1.0\).*next free number"),
    ({"version": True}, ArgumentTypeError, r"version=True"),
    ({"version": -1}, ArgumentValueError, r"version=-1"),
    ({"prefix": 1}, ArgumentTypeError, r"prefix=1"),
    ({"flush_logs_every_n_steps": 0}, ArgumentValueError, r"flush_logs_every_n_steps=0\): must be at least 1"),
    ({"flush_logs_every_n_steps": -5}, ArgumentValueError, r"at least 1"),
    ({"flush_logs_every_n_steps": 1.5}, ArgumentTypeError, r"flush_logs_every_n_steps=1.5"),
    ({"flush_logs_every_n_steps": True}, ArgumentTypeError, r"flush_logs_every_n_steps=True"),
    ({"flush": 1}, TypeError, r"flush"),
]


@pytest.mark.feature("G-01")
@pytest.mark.parametrize(("kwargs", "error", "words"), BAD)
def test_bad_arguments(tmp_path: Path, kwargs: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        CSVLogger(**{"save_dir": tmp_path, **kwargs})


def test_bad_hyperparameters(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match=r"got list: \[1, 2\]"):
        CSVLogger(tmp_path).log_hyperparams([1, 2])  # type: ignore[arg-type]  # the wrong type is the point

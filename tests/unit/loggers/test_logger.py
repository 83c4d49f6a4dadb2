"""The base class, the dummies, several loggers at once, the package's names."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fulmen.loggers
from fulmen.loggers import CSVLogger, DummyLogger, Logger
from fulmen.loggers.logger import DummyExperiment, rank_zero_experiment
from fulmen.utilities.rank_zero import rank_zero_only


class OldLogger(Logger):
    """As printed in older articles: no name, no version."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.saved = 0

    @property
    @rank_zero_experiment
    def experiment(self) -> str:
        return "handle"

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, metrics))

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass

    def save(self) -> None:
        self.saved += 1


@pytest.mark.feature("G-07")
def test_own_logger_without_name_and_version() -> None:
    logger = OldLogger()
    assert (logger.name, logger.version) == ("OldLogger", 0)
    assert (logger.root_dir, logger.log_dir, logger.save_dir, logger.group_separator) == (None, None, None, "/")
    logger.log_metrics({"a": 1.0}, 3)
    assert logger.rows == [(3, {"a": 1.0})]
    logger.finalize("success")
    assert logger.saved == 1, "finalize saves"
    logger.log_graph(None)  # type: ignore[arg-type]  # does nothing with it
    logger.after_save_checkpoint(None)
    logger.rewind(3)


@pytest.mark.feature("G-07")
@pytest.mark.parametrize("missing", ["log_metrics", "log_hyperparams"])
def test_two_methods_are_required(missing: str) -> None:
    body = {name: (lambda self, *a, **k: None) for name in ("log_metrics", "log_hyperparams") if name != missing}
    with pytest.raises(TypeError, match=missing):
        type("Incomplete", (Logger,), body)()


@pytest.mark.feature("G-09")
def test_only_rank_zero_gets_the_raw_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = OldLogger()
    assert logger.experiment == "handle"
    monkeypatch.setattr(rank_zero_only, "rank", 2)
    handle: Any = logger.experiment
    assert isinstance(handle, DummyExperiment)
    assert handle.add_image("x", 1, dataformats="HW") is None
    handle["run"] = 1
    assert handle[0].add_text("a") is None
    logger.log_metrics({"a": 1.0}, 3)
    assert logger.rows == []


@pytest.mark.feature("G-09")
@pytest.mark.parametrize("make", [DummyExperiment, DummyLogger])
def test_dummies_copy_and_pickle(make: Any) -> None:
    for twin in (copy.deepcopy(make()), copy.copy(make()), pickle.loads(pickle.dumps(make()))):
        assert type(twin) is make
        assert twin.anything(1, b=2) is None


def test_dummy_logger_answers_everything() -> None:
    logger = DummyLogger()
    logger.log_metrics({"a": 1.0}, 1)
    logger.log_metrics()
    logger.log_hyperparams({})
    logger.log_image("k", [])
    assert (logger.name, logger.version) == ("", "")
    assert logger[3].experiment.add_image(1) is None
    logger.save()
    logger.finalize("success")


@pytest.mark.feature("G-06")
def test_several_at_once_share_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from fulmen.loggers import TensorBoardLogger

    loggers: list[Any] = [CSVLogger(tmp_path), TensorBoardLogger(tmp_path)]
    assert [logger.version for logger in loggers] == [0, 0], "asked before either writes"
    for step in range(3):
        for logger in loggers:
            logger.log_metrics({"a": float(step), "pair": {"x": 1.0}}, step)
    for logger in loggers:
        logger.log_hyperparams({"lr": 1})
        logger.finalize("success")
    names = sorted(p.name for p in Path(loggers[0].log_dir).iterdir())
    assert names[0].startswith("events.out")
    assert names[1:] == ["hparams.yaml", "metrics.csv", "pair_x"]


def test_names() -> None:
    for name in fulmen.loggers.__all__:
        assert getattr(fulmen.loggers, name).__name__ == name
    assert set(fulmen.loggers.__all__) <= set(dir(fulmen.loggers))
    with pytest.raises(AttributeError, match="WandLogger"):
        _ = fulmen.loggers.WandLogger


def test_importing_a_logger_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from fulmen.loggers import CSVLogger, RunRecord, TensorBoardLogger\n"
        "l = CSVLogger(sys.argv[1]); l.log_metrics({'a': 1.0}, 0); l.finalize('success')\n"
        "r = RunRecord(sys.argv[1] + '/run.jsonl', 'id'); r.write('start'); r.close()\n"
        "bad = [m for m in ('tensorboard', 'fsspec', 'yaml', 'omegaconf', 'torch._dynamo') if m in sys.modules]\n"
        "assert not bad, bad\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=env, timeout=60)

"""TensorBoardLogger: what a TensorBoard reader sees."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

pytest.importorskip("tensorboard")

from fulmen.errors import ArgumentTypeError, ArgumentValueError, LoggingError, PossibleUserWarning, forget_warnings
from fulmen.loggers import TensorBoardLogger
from fulmen.loggers.logger import DummyExperiment
from fulmen.utilities.rank_zero import rank_zero_only


def read(folder: str | Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return reader


def points(folder: str | Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def event_files(folder: str | Path) -> list[Path]:
    return list(Path(folder).glob("events.out.tfevents*"))


@pytest.mark.feature("G-02")
def test_layout_and_values(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="exp")
    assert not (tmp_path / "exp").exists()
    logger.log_hyperparams({"lr": 0.5, "model": {"width": 3}})
    logger.log_metrics({"loss": torch.tensor(0.5), "n": 3}, step=0)
    logger.log_metrics({"loss": float("nan"), "n": float("inf")}, step=1)
    logger.finalize("success")
    folder = tmp_path / "exp" / "version_0"
    assert logger.log_dir == str(folder)
    assert (logger.root_dir, logger.save_dir, logger.name, logger.version) == (
        str(tmp_path / "exp"),
        str(tmp_path),
        "exp",
        0,
    )
    assert len(event_files(folder)) == 1
    loss = points(folder, "loss")
    assert loss[0] == (0, 0.5)
    assert loss[1][0] == 1
    assert math.isnan(loss[1][1])
    assert points(folder, "n") == [(0, 3.0), (1, math.inf)]
    assert yaml.safe_load((folder / "hparams.yaml").read_text()) == {"lr": 0.5, "model": {"width": 3}}
    assert TensorBoardLogger(tmp_path, name="exp").version == 1


@pytest.mark.feature("G-02")
def test_versions_and_sub_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TensorBoardLogger(tmp_path, "e", version="mine").log_dir == str(tmp_path / "e" / "mine")
    assert Path(TensorBoardLogger(tmp_path, name=None, version=2).log_dir) == tmp_path / "version_2"
    monkeypatch.setenv("PART", "p")
    logger = TensorBoardLogger(tmp_path, "e", version=2, sub_dir=Path("$PART/q"))
    assert logger.sub_dir == "$PART/q"
    assert logger.log_dir == str(tmp_path / "e" / "version_2" / "p" / "q")
    logger.log_metrics({"a": 1.0}, 0)
    logger.finalize("success")
    assert points(logger.log_dir, "a") == [(0, 1.0)]


@pytest.mark.feature("G-02")
def test_mapping_values_share_a_chart(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, version=0)
    logger.log_metrics({"loss": {"train": 1.0, "val": torch.tensor(2.0)}}, 3)
    logger.finalize("success")
    assert points(Path(logger.log_dir, "loss_train"), "loss") == [(3, 1.0)]
    assert points(Path(logger.log_dir, "loss_val"), "loss") == [(3, 2.0)]


@pytest.mark.feature("G-02", "G-09")
def test_prefix_and_raw_handle(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    logger = TensorBoardLogger(tmp_path, prefix="run1")
    logger.log_metrics({"a": 1.0}, 0)
    logger.log_hyperparams({"lr": 1}, metrics={"acc": 0.5})
    assert isinstance(logger.experiment, SummaryWriter)
    logger.experiment.add_text("note", "hello", 0)
    logger.experiment.add_histogram("weights", torch.rand(10), 0)
    logger.finalize("success")
    reader = read(logger.log_dir)
    assert reader.Tags()["histograms"] == ["weights"]
    assert set(reader.Tags()["scalars"]) == {"run1-a", "run1-acc"}
    assert "note/text_summary" in reader.Tags()["tensors"]


def table(folder: Path) -> tuple[set[str], set[str]]:
    """Names of hyperparameters and metrics that TensorBoard's own plugin shows."""
    from tensorboard import context
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import backend_context

    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
    backend = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    request = context.RequestContext()
    experiment = backend.experiment_from_metadata(
        request,
        "",
        True,
        backend.hparams_metadata(request, ""),
        backend.hparams_from_data_provider(request, "", 0),
    )
    return {info.name for info in experiment.hparam_infos}, {info.name.tag for info in experiment.metric_infos}


@pytest.mark.feature("G-02")
@pytest.mark.parametrize(
    ("kwargs", "metrics", "shown"),
    [
        ({}, None, {"hp_metric", "loss"}),
        ({"default_hp_metric": False}, None, {"loss"}),
        ({}, {"best": 0.5}, {"best"}),
        ({}, 0.25, {"hp_metric"}),
    ],
)
def test_table_of_hyperparameters(tmp_path: Path, kwargs: dict[str, Any], metrics: Any, shown: set[str]) -> None:
    logger = TensorBoardLogger(tmp_path, version=0, **kwargs)
    logger.log_hyperparams({"lr": 0.5, "model": {"act": torch.nn.ReLU, "w": torch.ones(2)}, "n": None}, metrics)
    for step in range(3):
        logger.log_metrics({"loss": 1.0 - step}, step)
    logger.finalize("success")
    assert table(tmp_path) == ({"lr", "model/act", "model/w", "n"}, shown)
    tags = set(read(logger.log_dir).Tags()["scalars"])
    assert ("hp_metric" in tags) is ("hp_metric" in shown)
    if metrics is None and not kwargs:
        assert points(logger.log_dir, "hp_metric") == [(0, -1.0)]


@pytest.mark.feature("G-02")
def test_hparams_file_follows_later_calls(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, version=0)
    logger.log_hyperparams({"a": 1})
    logger.save()
    logger.log_hyperparams({"b": 2})
    logger.finalize("success")
    path = Path(logger.log_dir, "hparams.yaml")
    assert yaml.safe_load(path.read_text()) == {"a": 1, "b": 2}
    resumed = TensorBoardLogger(tmp_path, version=0)
    resumed.log_metrics({"x": 1.0}, 0)
    resumed.finalize("success")
    assert yaml.safe_load(path.read_text()) == {"a": 1, "b": 2}, "no hyperparameters: the file stays"


@pytest.mark.feature("G-02", "C-02")
def test_resume_without_overlap(tmp_path: Path) -> None:
    first = TensorBoardLogger(tmp_path, version=0)
    for step in range(10):
        first.log_metrics({"loss": step, "pair": {"a": step, "b": step}}, step)
    first.finalize("failed")

    second = TensorBoardLogger(tmp_path, version=0)
    second.rewind(6)
    for step in range(6, 9):
        second.log_metrics({"loss": 100 + step, "pair": {"a": 100 + step}}, step)
    second.finalize("success")
    expected = [(s, float(s)) for s in range(6)] + [(s, 100.0 + s) for s in range(6, 9)]
    assert points(second.log_dir, "loss") == expected
    assert points(Path(second.log_dir, "pair_a"), "pair") == expected
    assert points(Path(second.log_dir, "pair_b"), "pair") == expected[:6]


@pytest.mark.feature("G-02")
def test_rewind_in_a_new_folder_writes_nothing(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    logger.rewind(5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("G-07")
def test_finalize_twice_and_logging_after_it(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, version=0)
    logger.finalize("success")
    assert list(tmp_path.iterdir()) == []
    logger.log_metrics({"a": 1.0}, 0)
    logger.finalize("success")
    logger.finalize("success")
    logger.log_hyperparams({"lr": 1}, {"b": 3.0})
    logger.log_metrics({"a": 2.0}, 1)
    logger.finalize("success")
    assert points(logger.log_dir, "a") == [(0, 1.0), (1, 2.0)]
    assert table(tmp_path) == ({"lr"}, {"b"})


@pytest.mark.feature("G-02")
def test_hyperparameters_first_after_finalize(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, version=0, default_hp_metric=False)
    logger.log_metrics({"a": 1.0}, 0)
    logger.finalize("success")
    logger.log_hyperparams({"lr": 1})
    logger.finalize("success")
    assert table(tmp_path) == ({"lr"}, {"a"})


@pytest.mark.feature("G-02")
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies(tmp_path: Path, copier: Any) -> None:
    logger = TensorBoardLogger(tmp_path)
    logger.log_metrics({"a": 1.0}, 0)
    twin = copier(logger)
    logger.finalize("success")
    twin.log_metrics({"a": 2.0}, 1)
    twin.finalize("success")
    assert points(logger.log_dir, "a") == [(0, 1.0), (1, 2.0)]


@pytest.mark.feature("L-09")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(3), r"'acc' is a Tensor of shape \(3,\)"),
        ("text", r"'acc' is a builtins.str"),
        (None, r"'acc' is a builtins.NoneType"),
        ({"x": "text"}, r"'acc/x' is a builtins.str"),
    ],
)
def test_unloggable_values_name_key_and_type(tmp_path: Path, value: Any, words: str) -> None:
    logger = TensorBoardLogger(tmp_path)
    with pytest.raises(LoggingError, match=f"TensorBoardLogger: the value logged under {words}"):
        logger.log_metrics({"acc": value}, 0)
    logger.finalize("failed")


@pytest.mark.feature("G-09")
def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = TensorBoardLogger(tmp_path, version=0, log_graph=True)
    assert isinstance(logger.experiment, DummyExperiment)
    logger.experiment.add_figure("f", None)
    logger.log_hyperparams({"a": 1})
    logger.log_metrics({"a": 1.0}, 0)
    logger.log_graph(torch.nn.Linear(1, 1))
    logger.save()
    logger.rewind(3)
    logger.finalize("success")
    assert list(tmp_path.iterdir()) == []


class Net(torch.nn.Module):
    def __init__(self, example: Any) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
        self.example_input_array = example

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.feature("G-02")
@pytest.mark.parametrize("example", [torch.rand(5, 4), (torch.rand(5, 4),)], ids=["tensor", "tuple"])
def test_graph(tmp_path: Path, example: Any) -> None:
    net = Net(example)
    net.layers[1].eval()  # a frozen layer stays frozen
    mean = net.layers[1].running_mean.clone()
    state = torch.get_rng_state()
    logger = TensorBoardLogger(tmp_path, version=0, log_graph=True)
    logger.log_graph(net)
    logger.finalize("success")
    assert read(logger.log_dir).Tags()["graph"]
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in net.modules()] == [True, True, True, False, True]
    assert torch.equal(net.layers[1].running_mean, mean)


@pytest.mark.feature("G-02")
def test_graph_is_off_by_default(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, version=0)
    logger.log_graph(Net(torch.rand(5, 4)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("G-02")
def test_graph_goes_through_the_data_hooks(tmp_path: Path) -> None:
    calls: list[str] = []

    class WithHooks(Net):
        device = torch.device("cpu")

        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            calls.append("before")
            return batch["x"] if isinstance(batch, dict) else batch

        def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
            calls.append("move")
            return batch.to(device)

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            calls.append("after")
            return batch * torch.rand(1)

    logger = TensorBoardLogger(tmp_path, version=0, log_graph=True)
    net, batch = WithHooks(None), torch.rand(5, 4)
    state = torch.get_rng_state()
    logger.log_graph(net, batch)
    assert torch.equal(torch.get_rng_state(), state)
    logger.finalize("success")
    assert calls == ["before", "move", "after"]
    assert read(logger.log_dir).Tags()["graph"]


@pytest.mark.feature("G-02")
@pytest.mark.parametrize(
    ("example", "words"),
    [
        (None, "no `example_input_array`"),
        ({"x": torch.rand(1, 4)}, "is a dict"),
        (torch.rand(5, 7), "tracing failed with RuntimeError"),
    ],
)
def test_a_graph_that_cannot_be_had_is_a_warning(tmp_path: Path, example: Any, words: str) -> None:
    forget_warnings()
    logger = TensorBoardLogger(tmp_path, version=0, log_graph=True)
    net = Net(example)
    with pytest.warns(PossibleUserWarning, match=f"graph is not logged: .*{words}.*FULMEN-W304"):
        logger.log_graph(net)
    assert all(m.training for m in net.modules())
    logger.finalize("success")


@pytest.mark.feature("G-02")
def test_figures_through_the_raw_handle(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    logger = TensorBoardLogger(tmp_path, version=0)
    logger.experiment.add_figure("confusion", pyplot.figure(), 0)
    logger.finalize("success")
    assert read(logger.log_dir).Tags()["images"] == ["confusion"]


@pytest.mark.feature("G-02")
def test_without_tensorboard_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fulmen.loggers.tensorboard.module_available", lambda name: False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install fulmen\[tensorboard\]"):
        TensorBoardLogger(tmp_path)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"save_dir": 3}, ArgumentTypeError, r"TensorBoardLogger\(save_dir=3\)"),
    ({"name": 1.5}, ArgumentTypeError, r"name=1.5"),
    ({"version": [1]}, ArgumentTypeError, r"version=\[1\]"),
    ({"version": -2}, ArgumentValueError, r"version=-2"),
    ({"log_graph": "yes"}, ArgumentTypeError, r"log_graph='yes'\): expected True or False"),
    ({"default_hp_metric": None}, ArgumentTypeError, r"default_hp_metric=None"),
    ({"prefix": 1}, ArgumentTypeError, r"prefix=1"),
    ({"sub_dir": 1}, ArgumentTypeError, r"sub_dir=1"),
    ({"flush_sec": 3}, ArgumentTypeError, r"neither .* 'flush_sec'\. Did you mean 'flush_secs'\?.*max_queue"),
    ({"log_grph": True}, ArgumentTypeError, r"Did you mean 'log_graph'\?"),
    ({"log_dir": "x"}, ArgumentTypeError, r"log_dir='x'\).*save_dir='x', name='', version=''"),
]


@pytest.mark.feature("G-02")
@pytest.mark.parametrize(("kwargs", "error", "words"), BAD)
def test_bad_arguments(tmp_path: Path, kwargs: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TensorBoardLogger(**{"save_dir": tmp_path, **kwargs})


@pytest.mark.feature("G-02")
def test_writer_arguments_are_passed_on(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, version=0, filename_suffix=".mine", max_queue=1, flush_secs=5)
    logger.log_metrics({"a": 1.0}, 0)
    logger.finalize("success")
    assert event_files(logger.log_dir)[0].name.endswith(".mine")

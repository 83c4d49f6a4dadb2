"""`torchmetrics` objects in runs: checkpoints and resumes, and where they are held or made so that they cannot work."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor, nn

import fulmen as L
from fulmen.callbacks import ModelCheckpoint
from fulmen.engine.results.metrics import load_metric_states, metric_states
from fulmen.errors import FulmenWarning, LoggingError
from tests.integration.test_logging import Memory
from tests.integration.toys import Toy, fit, loader, quiet

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the import of torchmetrics warns of
    torchmetrics = pytest.importorskip("torchmetrics")
    from torchmetrics import CatMetric, MeanMetric, Metric, MetricCollection, MinMaxMetric
    from torchmetrics.regression import MeanSquaredError, R2Score


class Last(Metric):  # type: ignore[misc]  # torchmetrics is imported at run time
    """The last value and the number of updates: state that a float cannot stand for."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("last", torch.zeros(3), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, value: Tensor) -> None:
        self.last = self.last + value * torch.arange(3)
        self.count = self.count + 1

    def compute(self) -> Tensor:
        return self.last.sum() / self.count


class Measured(Toy):
    """Metrics of every kind: logged in steps, at epochs' ends, computed by hand, in collections, nested, persistent."""

    def __init__(self, *, persistent: bool = False) -> None:
        super().__init__(lr=0.01)
        self.forwarded, self.updated, self.by_hand, self.last = MeanMetric(), MeanMetric(), CatMetric(), Last()
        self.extremes = MinMaxMetric(MeanMetric())
        self.group = MetricCollection({"mse": MeanSquaredError(), "rmse": MeanSquaredError(squared=False)}, prefix="t_")
        self.scores = nn.ModuleDict({"r2": R2Score(), "val": MeanMetric()})
        self.val_each = nn.ModuleList([MeanMetric(), Last()])
        self.val_by_hand = MeanMetric()
        for module in self.modules():
            if isinstance(module, Metric):
                module.persistent(persistent)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        out = self.net(x)
        loss = nn.functional.mse_loss(out, y)
        value = loss.detach()
        self.forwarded(value)
        self.log("forwarded", self.forwarded, on_step=True, on_epoch=True)
        self.updated.update(value)
        self.log("updated", self.updated, on_step=False, on_epoch=True)
        self.by_hand.update(value)
        self.last.update(value)
        self.log("last", self.last, on_epoch=True, on_step=False)
        self.extremes.update(value)
        self.group.update(out.detach(), y)
        if batch_idx < 3:  # not in the last batches: the epoch's value needs the entry of before the resume
            self.log_dict(self.group, on_step=False, on_epoch=True)
        self.scores["r2"].update(out.detach().flatten(), y.flatten())
        self.log("r2", self.scores["r2"], on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("by_hand", self.by_hand.compute().sum())
        self.by_hand.reset()
        self.log_dict({f"ext_{key}": value for key, value in self.extremes.compute().items()})

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        loss = self.loss(batch)
        self.val_each[dataloader_idx].update(loss)
        self.log("val", self.val_each[dataloader_idx])
        self.scores["val"](loss)
        self.log("val_all", self.scores["val"], add_dataloader_idx=False)
        self.val_by_hand.update(loss)

    def on_validation_epoch_end(self) -> None:
        self.log("val_by_hand", self.val_by_hand.compute())
        self.val_by_hand.reset()


def run(folder: Path, path: Path | None = None, *, persistent: bool) -> tuple[Memory, list[str]]:
    memory = Memory()
    saves = [
        ModelCheckpoint(folder, filename="step{step}", auto_insert_metric_name=False, save_top_k=-1, **when)
        for when in ({"every_n_train_steps": 1}, {"every_n_epochs": 1})
    ]
    saves[1].filename = "val{step}"
    trainer = quiet(
        logger=memory,
        log_every_n_steps=1,
        max_epochs=2,
        val_check_interval=3,
        num_sanity_val_steps=2,
        enable_checkpointing=True,
        callbacks=saves,
    )
    module = Measured(persistent=persistent)
    trainer.fit(module, loader(10), {"a": loader(4), "b": loader(6, seed=2)}, ckpt_path=path)
    return memory, sorted(file.name for file in folder.glob("*.ckpt"))


@pytest.mark.feature("M-10", "C-02")
@pytest.mark.parametrize("persistent", [False, True])
def test_a_resume_at_any_batch_gives_the_same_values(tmp_path: Path, persistent: bool) -> None:
    whole, files = run(tmp_path / "whole", persistent=persistent)
    assert len(files) == 10 + 2
    for file in files:
        folder = tmp_path / file
        folder.mkdir()
        copy = folder / file
        copy.write_bytes((tmp_path / "whole" / file).read_bytes())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*FULMEN-W110")  # another folder
            rest, _ = run(folder, copy, persistent=persistent)
        assert rest.rows == whole.rows[len(whole.rows) - len(rest.rows) :], file
        assert len(rest.rows) < len(whole.rows) or file == "step1.ckpt", file


@pytest.mark.feature("M-10")
def test_states_go_round() -> None:
    module = Measured()
    module.group.update(torch.ones(2, 1), torch.zeros(2, 1))
    module.group.update(torch.ones(2, 1), torch.zeros(2, 1) - 1)
    module.by_hand.update(torch.tensor([1.0, 2.0]))
    module.last.update(torch.tensor(3.0))
    module.val_by_hand.update(1.0)
    states = metric_states(module, done=[module.val_by_hand])
    assert states["val_by_hand"] is None
    assert states["group.mse"]["updates"] == states["group.rmse"]["updates"] == 2
    other = Measured()
    other.updated.update(5.0)  # has no state: begins anew
    other.val_by_hand.update(7.0)
    load_metric_states(other, states)
    assert other.group.compute() == module.group.compute()
    assert other.group["t_mse"].compute() == pytest.approx(2.5)
    assert other.last.compute() == module.last.compute()
    assert torch.equal(other.by_hand.compute(), torch.tensor([1.0, 2.0]))
    assert not other.updated.update_called and not other.val_by_hand.update_called
    module.by_hand.update(9.0)  # what was kept is a copy
    module.last.update(torch.tensor(9.0))
    load_metric_states(other, states)
    assert torch.equal(other.by_hand.compute(), torch.tensor([1.0, 2.0])) and other.last.update_count == 1


def logging(value: Any, *, attribute: Any = None, twice: Any = None, **flags: Any) -> Any:
    """A module that logs what `value(module)` gives in each validation step."""

    class Logs(Toy):
        def __init__(self) -> None:
            super().__init__()
            if attribute is not None:
                self.held = attribute

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            metric = value(self)
            if isinstance(metric, Metric):
                metric.update(self.loss(batch))
            self.log("m", metric, **flags)
            if twice is not None:
                self.log("m", twice(self), **flags)

    return Logs()


@pytest.mark.feature("M-10")
def test_a_metric_made_in_a_step_is_told_as_a_likely_mistake() -> None:
    with pytest.warns(
        FulmenWarning, match=r"'m', MeanMetric.*validation_step.*If the step makes it.*`__init__`.*W205"
    ) as seen:
        quiet().validate(logging(lambda module: MeanMetric()), loader(4), verbose=False)
    assert len(seen) == 1


@pytest.mark.feature("M-10")
@pytest.mark.parametrize(
    ("attribute", "value", "better"),
    [
        ([MeanMetric()], lambda module: module.held[0], "self.held = nn.ModuleList"),
        ({"a": MeanMetric()}, lambda module: module.held["a"], "self.held = nn.ModuleDict"),
        ((MetricCollection([MeanMetric()]),), lambda module: module.held[0]["MeanMetric"], "self.held = nn.ModuleList"),
    ],
)
def test_a_metric_in_a_plain_list_is_told_before_anything_runs(attribute: Any, value: Any, better: str) -> None:
    with pytest.warns(FulmenWarning) as seen:
        quiet().validate(logging(value, attribute=attribute), loader(4), verbose=False)
    texts = [str(warning.message) for warning in seen]
    assert len(texts) == 2 and "W206" in texts[0] and "W205" in texts[1]
    assert re.search(r"Logs\.held is a plain (list|dict|tuple).*device.*not in checkpoints", texts[0])
    assert better in texts[0]


@pytest.mark.feature("M-10")
@pytest.mark.parametrize(
    ("attribute", "value", "flags"),
    [
        (MeanMetric(), lambda module: module.held, {}),
        (nn.ModuleList([MeanMetric()]), lambda module: module.held[0], {}),
        (nn.ModuleDict({"a": MeanMetric()}), lambda module: module.held["a"], {}),
        (nn.Sequential(nn.Linear(1, 1), MeanMetric()), lambda module: module.held[1], {}),
        (None, lambda module: MeanMetric(), {"metric_attribute": "meant so"}),
    ],
)
def test_metrics_that_are_held_well_are_silent(attribute: Any, value: Any, flags: dict[str, Any]) -> None:
    result = quiet().validate(logging(value, attribute=attribute, **flags), loader(4), verbose=False)
    assert list(result[0]) == ["m"]


@pytest.mark.feature("M-10", "L-05")
def test_a_callback_logs_a_metric_of_its_own() -> None:
    class Measures(L.Callback):
        def __init__(self) -> None:
            self.metric = MeanMetric()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.metric.update(float(batch_idx))
            self.log("m", self.metric, on_step=False, on_epoch=True, metric_attribute="Measures.metric")

    callback = Measures()
    trainer = fit(Toy(), callbacks=callback, max_epochs=2)
    assert trainer.callback_metrics["m"].item() == 2.5
    assert not callback.metric.update_called


@pytest.mark.feature("M-10", "L-09")
@pytest.mark.parametrize(
    ("value", "twice", "words"),
    [
        (lambda m: MetricCollection([MeanMetric()]), None, "MetricCollection cannot be logged.*self.log_dict"),
        (lambda m: m.held, lambda m: 1.0, "got float after a MeanMetric"),
        (lambda m: m.held, lambda m: torch.tensor(1.0), "got Tensor after a MeanMetric"),
        (lambda m: 1.0, lambda m: m.held, "got a MeanMetric after numbers"),
    ],
)
def test_what_cannot_be_logged_together(value: Any, twice: Any, words: str) -> None:
    with pytest.raises(LoggingError, match=rf"(?s)'m'.*validation_step.*{words}"):
        quiet().validate(logging(value, attribute=MeanMetric(), twice=twice), loader(4), verbose=False)


@pytest.mark.feature("M-10", "L-09")
@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (MinMaxMetric(MeanMetric()), r"MinMaxMetric computes a dict.*log_dict"),
        (CatMetric(), r" has shape \(2,\).*computes a vector"),
    ],
)
def test_a_metric_that_computes_more_than_one_number(metric: Any, words: str) -> None:
    with pytest.raises(LoggingError, match=rf"(?s)'m'.*{words}"):
        quiet().validate(logging(lambda module: module.held, attribute=metric), loader(4), verbose=False)


@pytest.mark.feature("M-10", "L-08")
def test_a_metric_of_its_own_for_each_loader_has_no_value_over_all() -> None:
    class Each(Toy):
        def __init__(self, **flags: Any) -> None:
            super().__init__()
            self.each = nn.ModuleList([MeanMetric(), MeanMetric()])
            self.flags = flags

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.each[dataloader_idx].update(1.0)
            self.log("m", self.each[dataloader_idx], **self.flags)

    for flags in ({"add_dataloader_idx": False}, {"reduce_loaders": "mean"}):
        with pytest.raises(LoggingError, match=r"MeanMetric of its own for each loader.*one metric object in all"):
            quiet().validate(Each(**flags), [loader(4), loader(4)], verbose=False)


@pytest.mark.feature("M-10")
def test_one_object_for_several_loaders_is_told() -> None:
    class Shared(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torchmetrics.MeanMetric()

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.mean.update(float(dataloader_idx))
            self.log("mean", self.mean)

    with pytest.warns(FulmenWarning, match=r"got one MeanMetric for several loaders.*W211"):
        quiet().validate(Shared(), [loader(4), loader(4)], verbose=False)

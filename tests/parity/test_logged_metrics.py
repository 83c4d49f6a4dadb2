"""`torchmetrics` objects that are logged: the same values in every hook, the same rows, the same moments of reset."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet
from tests.parity.scenarios import rows
from tests.parity.test_logged import RULES, SILENT_HOOKS, Seen, assert_same_numbers, snapshot


class Watched:
    """Notes the order of updates, computations and resets of metrics."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def metric(self, name: str) -> Any:
        import torchmetrics

        calls = self.calls

        class Mean(torchmetrics.MeanMetric):
            def update(self, *args: Any, **kwargs: Any) -> None:
                calls.append(f"{name} update")
                super().update(*args, **kwargs)

            def compute(self) -> Any:
                calls.append(f"{name} compute")
                return super().compute()

            def reset(self) -> None:
                calls.append(f"{name} reset")
                super().reset()

        return Mean()


def make_module(L: Any, watched: Watched, loaders: int) -> Any:
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassPrecision, MulticlassRecall

    def collection(prefix: str) -> Any:
        parts = {"acc": MulticlassAccuracy(3), "prec": MulticlassPrecision(3), "rec": MulticlassRecall(3)}
        return MetricCollection(parts, prefix=prefix, postfix="/post")

    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = MulticlassAccuracy(3)

    class Module(L.LightningModule):  # type: ignore[misc]  # of either framework
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 3)
            self.both = watched.metric("both")
            self.step_only = watched.metric("step_only")
            self.seldom = watched.metric("seldom")
            self.by_hand = watched.metric("by_hand")
            self.persistent_mean = watched.metric("persistent")
            self.persistent_mean.persistent(True)
            self.train_all, self.train_update, self.test_all = collection("train/"), collection("up/"), collection("t/")
            self.part = Part()
            self.val_each = torch.nn.ModuleList([watched.metric(f"val{i}") for i in range(loaders)])
            self.named = torch.nn.ModuleDict({"acc": MulticlassAccuracy(3), "loss": watched.metric("named loss")})
            self.val_epoch = MulticlassAccuracy(3)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            out = self.net(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            self.both(loss.detach())
            self.log("both", self.both, on_step=True, on_epoch=True, prog_bar=True)
            self.step_only(loss.detach())
            self.log("step_only", self.step_only)
            self.persistent_mean.update(loss.detach())
            self.log("updated", self.persistent_mean, on_step=True, on_epoch=True)
            if self.current_epoch % 2 == 0 and batch_idx == 1:
                self.seldom.update(loss.detach())
                self.log("seldom", self.seldom, on_step=False, on_epoch=True, logger=False)
            self.by_hand.update(loss.detach())
            self.train_all(out, y)
            self.log_dict(self.train_all, on_step=True, on_epoch=True)
            self.train_update.update(out, y)
            self.log_dict(self.train_update, on_step=False, on_epoch=True, prog_bar=True)
            self.part.inner(out, y)
            self.log("inner", self.part.inner, on_epoch=True, metric_attribute="part.inner")
            return loss

        def on_train_epoch_end(self) -> None:
            self.log("by_hand", self.by_hand.compute())
            self.by_hand.reset()

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            x, y = batch
            out = self.net(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            self.val_each[dataloader_idx](loss)
            self.log("val", self.val_each[dataloader_idx], on_step=True, on_epoch=True, prog_bar=True)
            self.named["acc"].update(out, y)
            self.named["loss"].update(loss)
            if dataloader_idx == 0:
                self.log_dict(dict(self.named.items()), add_dataloader_idx=False)
            self.val_epoch.update(out, y)

        def on_validation_epoch_end(self) -> None:
            self.log("val_epoch", self.val_epoch)

        def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            x, y = batch
            self.test_all(self.net(x), y)
            if dataloader_idx == 0:
                self.log_dict(self.test_all, on_step=True, on_epoch=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    return Module()


class Walk:
    """A fit and a test: what hooks saw, rows, results, and calls of the metrics."""

    def __init__(self, framework: Framework, root: Path, loaders: int) -> None:
        self.seen: Seen = []
        watched = Watched()
        names = (*RULES, *SILENT_HOOKS)

        def hook_of(name: str) -> Callable[..., Any]:
            def hook(callback: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
                self.seen.append((name, snapshot(trainer)))

            return hook

        looks = type("Looks", (framework.L.Callback,), {name: hook_of(name) for name in names})()
        torch.manual_seed(3)
        with quiet():
            module = make_module(framework.L, watched, loaders)
            logger = framework.loggers.CSVLogger(str(root), name="csv")
            trainer = framework.trainer(
                root, logger=logger, callbacks=[looks], max_epochs=3, log_every_n_steps=2, num_sanity_val_steps=1
            )
            evaluation = [DataLoader(rows(10 + 3 * n, seed=n), batch_size=4) for n in range(loaders)]
            trainer.fit(module, DataLoader(rows(18), batch_size=4), evaluation)
            self.fit_calls = list(watched.calls)
            self.results = trainer.test(module, evaluation, verbose=False)
            logger.save()
        with (Path(logger.log_dir) / "metrics.csv").open() as file:
            self.rows = [{key: float(cell) for key, cell in row.items() if cell} for row in csv.DictReader(file)]


Walks = Callable[[str, int], Walk]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Walks:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the import of torchmetrics warns of
        pytest.importorskip("torchmetrics")

    @cache
    def walk(name: str, loaders: int) -> Walk:
        return Walk(Framework(name), tmp_path_factory.mktemp("walk"), loaders)

    return walk


@pytest.mark.feature("M-10", "L-03")
@pytest.mark.parametrize("policy", [STRICT, RIGHT])
@pytest.mark.parametrize("loaders", [1, 2])
def test_every_hook_sees_what_lightnings_sees(loaders: int, policy: str, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders), walks(policy, loaders)
    assert [where for where, _ in ours.seen] == [where for where, _ in peer.seen]
    for index, ((where, expected), (_, kept)) in enumerate(zip(peer.seen, ours.seen, strict=True)):
        for kind, values in expected.items():
            assert_same_numbers(values, kept[kind], f"{kind} in {where} ({index})")


@pytest.mark.feature("M-10", "G-01")
@pytest.mark.parametrize("loaders", [1, 2])
def test_rows_and_results_are_the_same(loaders: int, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders), walks(RIGHT, loaders)
    assert len(ours.rows) == len(peer.rows)
    for index, (expected, row) in enumerate(zip(peer.rows, ours.rows, strict=True)):
        assert_same_numbers(expected, row, f"row {index}")
    assert len(ours.results) == len(peer.results)
    for expected, row in zip(peer.results, ours.results, strict=True):
        assert_same_numbers(expected, row, "results")


@pytest.mark.feature("M-10")
@pytest.mark.parametrize("loaders", [1, 2])
def test_metrics_are_reset_when_lightning_resets_them(loaders: int, walks: Walks) -> None:
    """By metric: updates, and resets that come after an update."""

    def story(calls: list[str], name: str) -> list[str]:
        own = [call.rsplit(" ", 1)[1] for call in calls if call.rsplit(" ", 1)[0] == name]
        short: list[str] = []
        for call in own:
            if call != "compute" and not (call == "reset" and (not short or short[-1] == "reset")):
                short.append(call)
        return short

    peer, ours = walks(LIGHTNING, loaders).fit_calls, walks(RIGHT, loaders).fit_calls
    names = {call.rsplit(" ", 1)[0] for call in peer}
    assert {"both", "step_only", "seldom", "by_hand", "persistent", "val0", "named loss"} <= names
    for name in names:
        assert story(ours, name) == story(peer, name), name

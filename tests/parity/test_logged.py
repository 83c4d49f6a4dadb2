"""What is logged, seen from every hook: `callback_metrics`, `logged_metrics`, `progress_bar_metrics`, and CSV rows.

The module and two callbacks log in every hook that allows it, in every combination of step and epoch that the hook
allows and with every reduction; in each hook, of callbacks and of the module, all dictionaries are kept. Keys must
be equal, step values bit for bit, epoch values within 1e-6. `Policy.right` differs in the names of loaders alone.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet
from tests.parity.scenarios import rows

BATCH = {"on_step": (False, True), "on_epoch": (False, True)}
EPOCH = {"on_step": (False,), "on_epoch": (True,)}


def flags_of(rule: dict[str, tuple[bool, ...]]) -> list[dict[str, bool]]:
    pairs = [{"on_step": s, "on_epoch": e} for s in rule["on_step"] for e in rule["on_epoch"] if s or e]
    return [*pairs, {}]


BATCH_HOOKS = (
    *("on_train_batch_start", "on_train_batch_end", "on_validation_batch_start", "on_validation_batch_end"),
    *("on_test_batch_start", "on_test_batch_end"),
    *("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad"),
)
EPOCH_HOOKS = (
    *("on_train_start", "on_train_epoch_start", "on_train_epoch_end", "on_validation_start"),
    *("on_validation_epoch_start", "on_validation_epoch_end", "on_test_start", "on_test_epoch_start"),
    "on_test_epoch_end",
)
SILENT_HOOKS = (
    *("on_fit_start", "on_fit_end", "on_train_end", "on_validation_end", "on_test_end", "on_sanity_check_start"),
    *("on_sanity_check_end", "setup", "teardown"),
)
RULES = {**dict.fromkeys(BATCH_HOOKS, BATCH), **dict.fromkeys(EPOCH_HOOKS, EPOCH)}
# Hooks that the module alone has; they do what the base class does.
MODULE_LOGS = ("configure_gradient_clipping", "backward", "optimizer_step", "optimizer_zero_grad")
MODULE_LOOKS = (
    *("configure_optimizers", "configure_model", "lr_scheduler_step", "on_validation_model_zero_grad"),
    *("on_validation_model_eval", "on_validation_model_train", "on_test_model_eval", "on_test_model_train"),
    *("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"),
)

Seen = list[tuple[str, dict[str, dict[str, float]]]]


class Counter:
    """Gives other values at each call, the same in every framework."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return torch.tensor(float(self.calls * 37 % 101) / 7)


def log_all(owner: str, hook: str, module: Any, value: Callable[[], Tensor]) -> None:
    """Log in every way that the hook allows."""
    rule = RULES.get(hook, BATCH)
    module.log(f"shared.{hook}.x", value(), on_epoch=True)  # the same key by all who have the hook
    if owner == "LogsItself":
        module.log_dict({f"{owner}.{hook}.d1": value(), f"{owner}.{hook}.d2": 0.25})
        return
    for number, flags in enumerate(flags_of(rule)):
        module.log(f"{owner}.{hook}.{number}", value(), prog_bar=number % 2 == 0, logger=number != 1, **flags)
    for reduce in ("sum", "max") if rule is BATCH else ("min", "sum"):
        module.log(f"{owner}.{hook}.{reduce}", value(), on_epoch=True, reduce_fx=reduce, batch_size=3)
    module.log(f"{owner}.{hook}.rank", value(), on_epoch=True, sync_dist=True)


def snapshot(trainer: Any) -> dict[str, dict[str, float]]:
    return {
        kind: {name: float(value) for name, value in getattr(trainer, kind).items()}
        for kind in ("callback_metrics", "logged_metrics", "progress_bar_metrics")
    }


def make_module(L: Any, seen: Seen, value: Counter) -> Any:
    def logging_hook(name: str, *, log: bool = True) -> Callable[..., Any]:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            if log:
                log_all("module", name, self, value)
            seen.append((f"{name} of the module", snapshot(self.trainer)))
            return getattr(super(cls, self), name)(*args, **kwargs)

        return hook

    def init(self: Any) -> None:
        L.LightningModule.__init__(self)
        self.net = torch.nn.Linear(8, 3)

    def step(name: str) -> Callable[..., Any]:
        def run(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            for number, flags in enumerate(flags_of(BATCH)):
                self.log(f"{name}.{number}", loss * (number + 1), prog_bar=number == 0, **flags)
            for reduce in ("min", "max", "sum"):
                self.log(f"{name}.{reduce}", loss, on_step=False, on_epoch=True, reduce_fx=reduce)
            self.log(f"{name}.weighted", loss, on_step=False, on_epoch=True, batch_size=1 + batch_idx)
            self.log_dict({f"{name}.int": batch_idx, f"{name}.float": batch_idx / 3}, on_step=True, on_epoch=True)
            self.log(f"{name}.of{dataloader_idx}", loss, on_step=True, on_epoch=True, add_dataloader_idx=False)
            seen.append((f"{name} of the module", snapshot(self.trainer)))
            return loss if name == "training_step" else None

        return run

    def configure_optimizers(self: Any) -> Any:
        seen.append(("configure_optimizers of the module", snapshot(self.trainer)))
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    hooks = {name: logging_hook(name) for name in (*RULES, *MODULE_LOGS)}
    others = set(SILENT_HOOKS) - {"on_sanity_check_start", "on_sanity_check_end"} | set(MODULE_LOOKS)
    looks = {name: logging_hook(name, log=False) for name in others}
    steps = {name: step(name) for name in ("training_step", "validation_step", "test_step")}
    body = {**hooks, **looks, **steps, "__init__": init, "configure_optimizers": configure_optimizers}
    cls: Any = type("LogsEverywhere", (L.LightningModule,), body)
    return cls()


def make_callbacks(L: Any, seen: Seen, value: Counter) -> list[Any]:
    """One callback that logs through the module and looks, one that logs by itself, one that only looks."""

    def hook_of(name: str, kind: str) -> Callable[..., Any]:
        def hook(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
            if kind != "Looks" and name in RULES:
                log_all(kind, name, pl_module if kind == "Logs" else self, value)
            seen.append((f"{name} of {kind}", snapshot(trainer)))

        return hook

    names = (*RULES, *SILENT_HOOKS)
    kinds = ("Logs", "LogsItself", "Looks")
    return [type(kind, (L.Callback,), {name: hook_of(name, kind) for name in names})() for kind in kinds]


class Walk:
    """A fit and a test of one framework: what every hook saw, results of the test, CSV rows."""

    def __init__(self, framework: Framework, root: Path, loaders: int, *, named: bool) -> None:
        self.seen: Seen = []
        value = Counter()
        torch.manual_seed(3)
        with quiet():
            L = framework.L
            module = make_module(L, self.seen, value)
            logger = framework.loggers.CSVLogger(str(root), name="csv")
            trainer = framework.trainer(
                root,
                logger=logger,
                callbacks=make_callbacks(L, self.seen, value),
                max_epochs=2,
                log_every_n_steps=2,
                val_check_interval=0.5,
                num_sanity_val_steps=1,
                accumulate_grad_batches=2,
                gradient_clip_val=10.0,
            )
            evaluation: Any = [DataLoader(rows(10 + 3 * n, seed=n), batch_size=4) for n in range(loaders)]
            if named:
                evaluation = {f"set {n}": loader for n, loader in enumerate(evaluation)}
            trainer.fit(module, DataLoader(rows(15), batch_size=4), evaluation)
            self.results = trainer.test(module, evaluation, verbose=False)
            logger.save()
        with (Path(logger.log_dir) / "metrics.csv").open() as file:
            self.rows = [{key: cell for key, cell in row.items() if cell} for row in csv.DictReader(file)]


Walks = Callable[[str, int, bool], Walk]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Walks:
    @cache
    def walk(name: str, loaders: int, named: bool) -> Walk:
        return Walk(Framework(name), tmp_path_factory.mktemp("walk"), loaders, named=named)

    return walk


# Policy, number of loaders, and whether they are given as a dict (which changes nothing in Lightning).
CASES = [
    (STRICT, 1, False), (STRICT, 2, False), (STRICT, 2, True), (RIGHT, 1, False), (RIGHT, 2, True),
]  # fmt: skip


def known(key: str, policy: str, named: bool) -> str:
    """What a key of Lightning's is called here: `Policy.named_loaders` decides."""
    return key.replace("/dataloader_idx_", "/set ") if named and policy == RIGHT else key


def renamed(values: dict[str, Any], policy: str, named: bool) -> dict[str, Any]:
    return {known(key, policy, named): value for key, value in values.items()}


def is_step_value(key: str) -> bool:
    return re.search(r"_step(/(dataloader_idx_|set )\d+)?$", key) is not None


def assert_same_numbers(peer: dict[str, float], ours: dict[str, float], where: str) -> None:
    assert ours.keys() == peer.keys(), f"{where}: {sorted(ours.keys() ^ peer.keys())}"
    for key, expected in peer.items():
        if ours[key] != expected:
            assert not is_step_value(key), f"{where}: {key} is {ours[key]}, not {expected}"
            assert ours[key] == pytest.approx(expected, rel=1e-6, abs=1e-7, nan_ok=True), f"{where}: {key}"


@pytest.mark.feature("L-01", "L-02", "L-03", "L-05", "L-08")
@pytest.mark.parametrize(("policy", "loaders", "named"), CASES)
def test_every_hook_sees_what_lightnings_sees(policy: str, loaders: int, named: bool, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders, False), walks(policy, loaders, named)
    assert [where for where, _ in ours.seen] == [where for where, _ in peer.seen]
    seen = {where for where, _ in ours.seen}
    assert {f"{name} of the module" for name in (*RULES, *MODULE_LOGS, *MODULE_LOOKS)} <= seen
    assert {f"{name} of {kind}" for name in (*RULES, *SILENT_HOOKS) for kind in ("Logs", "LogsItself")} <= seen
    for index, ((where, expected), (_, kept)) in enumerate(zip(peer.seen, ours.seen, strict=True)):
        for kind, values in expected.items():
            assert_same_numbers(renamed(values, policy, named), kept[kind], f"{kind} in {where} ({index})")


@pytest.mark.feature("L-01", "T-09", "L-08")
@pytest.mark.parametrize(("policy", "loaders", "named"), CASES)
def test_the_test_returns_the_same(policy: str, loaders: int, named: bool, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders, False), walks(policy, loaders, named)
    assert len(ours.results) == len(peer.results) == loaders
    for index, (expected, result) in enumerate(zip(peer.results, ours.results, strict=True)):
        assert_same_numbers(renamed(expected, policy, named), result, f"loader {index}")


@pytest.mark.feature("L-01", "G-01", "L-08")
@pytest.mark.parametrize(("policy", "loaders", "named"), CASES)
def test_csv_rows_are_the_same(policy: str, loaders: int, named: bool, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders, False).rows, walks(policy, loaders, named).rows
    assert [(row.get("step"), row.get("epoch")) for row in ours] == [(r.get("step"), r.get("epoch")) for r in peer]
    for index, (expected, row) in enumerate(zip(peer, ours, strict=True)):
        numbers = [{key: float(cell) for key, cell in r.items()} for r in (expected, row)]
        assert_same_numbers(renamed(numbers[0], policy, named), numbers[1], f"row {index}")


def turns(framework: Framework, root: Path) -> dict[str, float]:
    """Two manual steps per batch; the hooks around them log by turns with the step."""

    class Turns(framework.L.LightningModule):  # type: ignore[name-defined,misc]  # of either framework
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 3)
            self.automatic_optimization = False

        def count(self, name: str) -> None:
            self.log(name, 1.0, on_step=True, on_epoch=True, reduce_fx="sum")

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for part in ("first", "second"):
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(self.net(batch[0]).square().mean())
                self.count(part)
                optimizer.step()
            self.count("last")

        def on_after_backward(self) -> None:
            self.count("backward")

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.count("step")

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.count("val")

        def on_validation_batch_end(self, *args: Any) -> None:
            self.count("val end")

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    with quiet():
        trainer = framework.trainer(root, max_epochs=2, val_check_interval=2)
        trainer.fit(Turns(), DataLoader(rows(16), batch_size=4), DataLoader(rows(8), batch_size=4))
    return snapshot(trainer)["callback_metrics"]


@pytest.mark.feature("L-01", "L-02")
def test_hooks_that_take_turns_in_the_first_batch(tmp_path: Path) -> None:
    peer, strict, right = (turns(Framework(name), tmp_path / name) for name in (LIGHTNING, STRICT, RIGHT))
    assert strict == peer
    counted = {key: value for key, value in right.items() if not key.endswith("_step")}
    once = {"first": 4, "second": 4, "last": 4, "backward": 8, "step": 8, "val": 2, "val end": 2}
    assert counted == {f"{key}{fork}": value for key, value in once.items() for fork in ("", "_epoch")}
    assert {key: value for key, value in peer.items() if right[key] != value} != {}

"""What is logged, seen from every hook: `callback_metrics`, `logged_metrics`, `progress_bar_metrics`, and CSV rows.

The module and a callback log in every hook that allows it, in every combination of step and epoch that the hook
allows; after each hook all three dictionaries are kept. Keys must be equal, step values bit for bit, epoch values
within 1e-6.
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

from tests.parity.frameworks import LIGHTNING, STRICT, Framework, quiet
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
    for number, flags in enumerate(flags_of(RULES[hook])):
        module.log(f"{owner}.{hook}.{number}", value(), prog_bar=number % 2 == 0, logger=number != 1, **flags)


def snapshot(trainer: Any) -> dict[str, dict[str, float]]:
    return {
        kind: {name: float(value) for name, value in getattr(trainer, kind).items()}
        for kind in ("callback_metrics", "logged_metrics", "progress_bar_metrics")
    }


def make_module(L: Any, value: Counter) -> Any:
    def logging_hook(name: str) -> Callable[..., Any]:
        def hook(self: Any, *args: Any, **kwargs: Any) -> None:
            log_all("module", name, self, value)

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
            return loss if name == "training_step" else None

        return run

    def configure_optimizers(self: Any) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    hooks = {name: logging_hook(name) for name in RULES}
    steps = {name: step(name) for name in ("training_step", "validation_step", "test_step")}
    body = {"__init__": init, "configure_optimizers": configure_optimizers, **hooks, **steps}
    return type("LogsEverywhere", (L.LightningModule,), body)()


def make_callbacks(L: Any, seen: Seen, value: Counter) -> list[Any]:
    """One callback that logs and looks first, one that only looks, after the first."""

    def hook_of(name: str, *, log: bool) -> Callable[..., Any]:
        def hook(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
            if log and name in RULES:
                log_all("callback", name, pl_module, value)
            seen.append((f"{name} {'logging' if log else 'looking'}", snapshot(trainer)))

        return hook

    names = (*RULES, *SILENT_HOOKS)
    return [
        type("Logs", (L.Callback,), {name: hook_of(name, log=True) for name in names})(),
        type("Looks", (L.Callback,), {name: hook_of(name, log=False) for name in names})(),
    ]


class Walk:
    """A fit and a test of one framework: what every hook saw, results of the test, CSV rows."""

    def __init__(self, framework: Framework, root: Path, loaders: int) -> None:
        self.seen: Seen = []
        value = Counter()
        torch.manual_seed(3)
        with quiet():
            L = framework.L
            module = make_module(L, value)
            logger = framework.loggers.CSVLogger(str(root), name="csv")
            trainer = framework.trainer(
                root,
                logger=logger,
                callbacks=make_callbacks(L, self.seen, value),
                max_epochs=2,
                log_every_n_steps=2,
                val_check_interval=0.5,
                num_sanity_val_steps=1,
            )
            evaluation = [DataLoader(rows(10 + 3 * n, seed=n), batch_size=4) for n in range(loaders)]
            trainer.fit(module, DataLoader(rows(18), batch_size=4), evaluation)
            self.results = trainer.test(module, evaluation, verbose=False)
            logger.save()
        with (Path(logger.log_dir) / "metrics.csv").open() as file:
            self.rows = [{key: cell for key, cell in row.items() if cell} for row in csv.DictReader(file)]


Walks = Callable[[str, int], Walk]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Walks:
    @cache
    def walk(name: str, loaders: int) -> Walk:
        return Walk(Framework(name), tmp_path_factory.mktemp("walk"), loaders)

    return walk


def is_step_value(key: str) -> bool:
    return re.search(r"_step(/dataloader_idx_\d+)?$", key) is not None


def assert_same_numbers(peer: dict[str, float], ours: dict[str, float], where: str) -> None:
    assert sorted(ours) == sorted(peer), where
    for key, expected in peer.items():
        if is_step_value(key):
            assert ours[key] == expected, f"{where}: {key}"
        else:
            assert ours[key] == pytest.approx(expected, rel=1e-6, abs=1e-7), f"{where}: {key}"


@pytest.mark.feature("L-01", "L-02", "L-03", "L-05")
@pytest.mark.parametrize("loaders", [1, 2])
def test_every_hook_sees_what_lightnings_sees(loaders: int, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders), walks(STRICT, loaders)
    assert [where for where, _ in ours.seen] == [where for where, _ in peer.seen]
    for index, ((where, expected), (_, kept)) in enumerate(zip(peer.seen, ours.seen, strict=True)):
        for kind, values in expected.items():
            assert_same_numbers(values, kept[kind], f"{kind} in {where} ({index})")


@pytest.mark.feature("L-01", "T-09")
@pytest.mark.parametrize("loaders", [1, 2])
def test_the_test_returns_the_same(loaders: int, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders), walks(STRICT, loaders)
    assert len(ours.results) == len(peer.results) == loaders
    for index, (expected, result) in enumerate(zip(peer.results, ours.results, strict=True)):
        assert_same_numbers(expected, result, f"loader {index}")


@pytest.mark.feature("L-01", "G-01")
@pytest.mark.parametrize("loaders", [1, 2])
def test_csv_rows_are_the_same(loaders: int, walks: Walks) -> None:
    peer, ours = walks(LIGHTNING, loaders).rows, walks(STRICT, loaders).rows
    assert [(row.get("step"), row.get("epoch")) for row in ours] == [(r.get("step"), r.get("epoch")) for r in peer]
    for index, (expected, row) in enumerate(zip(peer, ours, strict=True)):
        numbers = [{key: float(cell) for key, cell in r.items()} for r in (expected, row)]
        assert_same_numbers(numbers[0], numbers[1], f"row {index}")

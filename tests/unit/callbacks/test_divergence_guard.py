"""A poisoned batch or a rate that explodes does not reach the weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.callbacks import DivergenceGuard
from fulmen.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FulmenWarning,
    MisconfigurationException,
    StepOutputError,
)

pytestmark = [pytest.mark.feature("S-05", "K-17"), pytest.mark.filterwarnings("ignore:.*W120")]


class Net(L.LightningModule):
    """Learns a line; may be given a rate per step, and optimizers of its own."""

    def __init__(self, lr: float = 0.1, explode_at: int = -1) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Linear(4, 1)
        self.lr, self.explode_at = lr, explode_at
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step == self.explode_at:
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = 50.0
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.5)


def data(poison: dict[int, float] | None = None, rows: int = 200) -> DataLoader[Any]:
    """A linear problem in batches of 4; batch k is multiplied by `poison[k]`."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(rows, 4, generator=generator)
    y = x.sum(1, keepdim=True) + 0.3 * torch.randn(rows, 1, generator=generator)
    for batch, factor in (poison or {}).items():
        y[4 * batch : 4 * batch + 4] *= factor
    return DataLoader(TensorDataset(x, y), batch_size=4)


def fit(module: L.LightningModule, loader: Any, guard: DivergenceGuard | None, **changes: Any) -> L.Trainer:
    arguments: dict[str, Any] = {
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
    }
    trainer = L.Trainer(**{**arguments, **changes}, callbacks=[guard] if guard is not None else None)
    trainer.fit(module, loader)
    return trainer


def error(module: Any) -> float:
    """Distance from the line."""
    return float((module.net.weight.detach() - 1).abs().max())


@pytest.mark.parametrize("factor", [math.nan, math.inf, 1000.0])
@pytest.mark.parametrize("action", ["skip", "lower", "rollback"])
def test_a_poisoned_batch_is_survived(factor: float, action: Any) -> None:
    spoilt = Net()
    fit(spoilt, data({20: factor}), None)
    assert not error(spoilt) < 1  # without the guard: NaN, or far away
    guard, module = DivergenceGuard(action, every=5), Net()
    fit(module, data({20: factor}), guard)
    assert guard.events == 1
    assert error(module) < 0.3
    rate = module.trainer.optimizers[0].param_groups[0]["lr"]
    assert rate == (0.1 if action == "skip" else 0.05)


def test_a_skipped_update_changes_no_weight_and_no_momentum() -> None:
    class Watch(L.Callback):
        before: Any = None

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            self.before = state(trainer, pl_module)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            same.append(torch.equal(self.before, state(trainer, pl_module)))

    def state(trainer: Any, module: Any) -> torch.Tensor:
        momentum = [v["momentum_buffer"] for v in trainer.optimizers[0].state.values()]
        return torch.cat([p.detach().flatten().clone() for p in (*module.parameters(), *momentum)])

    same: list[bool] = []
    trainer = L.Trainer(
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Watch(), DivergenceGuard()],
    )
    trainer.fit(Net(), data({20: math.nan}))
    assert [index for index, equal in enumerate(same) if equal] == [20]


def test_a_rate_that_explodes_is_lowered_and_rolled_back() -> None:
    spoilt = Net(explode_at=25)
    fit(spoilt, data(), None)
    assert not error(spoilt) < 10
    guard, module = DivergenceGuard("rollback", factor=0.03, every=5), Net(explode_at=25)
    fit(module, data(), guard, max_epochs=2)
    assert 1 <= guard.events <= 4
    assert error(module) < 0.3


def test_a_guard_that_stops() -> None:
    guard, module = DivergenceGuard("stop"), Net()
    fit(module, data({20: math.nan}), guard)
    assert len(module.losses) == 21
    assert error(module) < 1


def test_training_that_does_not_recover_ends_with_an_error() -> None:
    with pytest.raises(StepOutputError, match=r"3 updates in a row were bad \(the last loss was nan\)"):
        fit(Net(), data(dict.fromkeys(range(20, 40), math.nan)), DivergenceGuard(limit=3))


def test_healthy_training_has_no_event() -> None:
    for lr in (0.01, 0.05, 0.1):
        guard = DivergenceGuard()
        fit(Net(lr), data(), guard, max_epochs=3)
        assert guard.events == 0


def test_each_event_is_told_and_in_the_record(tmp_path: Path) -> None:
    guard = DivergenceGuard()
    with (
        pytest.warns(FulmenWarning, match=r"loss was nan \(usually .*\) in epoch 0, batch 30\. The update was dropped"),
        pytest.warns(FulmenWarning, match=r"loss was nan .* batch 20\."),
    ):
        fit(Net(), data({20: math.nan, 30: math.nan}), guard, logger=L.loggers.CSVLogger(tmp_path))
    lines = [json.loads(line) for path in tmp_path.rglob("run.jsonl") for line in path.read_text().splitlines()]
    found = [(line["batch"], line["action"], line["loss"]) for line in lines if line["kind"] == "divergence"]
    assert found == [(20, "skip", "NaN"), (30, "skip", "NaN")]


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_scaled_losses_are_judged_unscaled(precision: str) -> None:
    guard = DivergenceGuard()
    fit(Net(0.05), data({20: 1000.0}), guard, precision=precision)
    assert guard.events == 1


def test_windows_are_judged_whole() -> None:
    guard, module = DivergenceGuard(warmup=3), Net()
    fit(module, data({20: math.nan}), guard, accumulate_grad_batches=4)
    assert guard.events == 1
    assert error(module) < 0.5


@pytest.mark.feature("C-02")
def test_its_state_goes_over_a_resume() -> None:
    guard = DivergenceGuard()
    fit(Net(), data({20: math.nan}), guard)
    again = DivergenceGuard()
    again.load_state_dict(guard.state_dict())
    assert again.events == 1
    assert again.state_dict() == guard.state_dict()


def test_manual_optimization_is_refused() -> None:
    module = Net()
    module.automatic_optimization = False
    with pytest.raises(MisconfigurationException, match="DivergenceGuard: Net steps its optimizers itself"):
        fit(module, data(), DivergenceGuard())


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"action": "skipp"}, ArgumentValueError, r"action='skipp'\): must be one of .*Did you mean 'skip'"),
        ({"ratio": 1.0}, ArgumentValueError, r"ratio=1.0\): must be more than 1, or None"),
        ({"window": 0}, ArgumentValueError, r"window=0\): must be an int of at least 1"),
        ({"warmup": 1.5}, ArgumentTypeError, r"warmup=1.5"),
        ({"every": True}, ArgumentTypeError, r"every=True"),
        ({"limit": 0}, ArgumentValueError, r"limit=0"),
        ({"factor": 0.0}, ArgumentValueError, r"factor=0.0\): must be more than 0 and at most 1"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        DivergenceGuard(**arguments)

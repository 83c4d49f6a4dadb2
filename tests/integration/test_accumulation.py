"""Gradient accumulation: equal to the large batch, whatever the last window looks like."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import LBFGS

from fulmen.engine.runtime.policy import Policy
from tests.integration.toys import Toy, fit, loader, number_format, sgd_by_hand, stream, weights


def large(count: int, size: int) -> torch.Tensor:
    """Weights after plain SGD over batches of `size` rows."""
    return sgd_by_hand(list(loader(count, size)))


@pytest.mark.feature("O-05")
@pytest.mark.parametrize("data", [loader, stream])
@pytest.mark.parametrize("count", [24, 20, 28, 22])
@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_it_equals_the_large_batch(data: Any, count: int, precision: str) -> None:
    """22 rows: the last window has 1.5 batches of 4, so that rows are weighted by their batch, as documented."""
    module = Toy(lr=0.03)
    trainer = fit(module, data(count, 4), accumulate_grad_batches=3, precision=precision)
    batches = list(loader(count, 4))
    assert torch.allclose(weights(module).float(), sgd_by_hand(batches, lr=0.03, window=3), atol=1e-6)
    if count % 4 == 0:
        assert torch.allclose(sgd_by_hand(batches, window=3), large(count, 12), atol=1e-6)
    assert trainer.global_step == -(-len(batches) // 3)


@pytest.mark.feature("O-05")
@pytest.mark.parametrize("data", [loader, stream])
def test_lightnings_policy_divides_a_short_window_by_the_full_one(data: Any) -> None:
    module = Toy()
    fit(module, data(10), accumulate_grad_batches=3, policy=Policy.lightning)
    assert torch.allclose(weights(module), sgd_by_hand(list(loader(10)), window=3, divisor=lambda n: 3), atol=1e-6)


@pytest.mark.feature("O-05")
def test_limits_shorten_the_last_window_too() -> None:
    module = Toy()
    fit(module, accumulate_grad_batches=3, limit_train_batches=5)
    assert torch.allclose(weights(module), sgd_by_hand(list(loader())[:5], window=3), atol=1e-6)


@pytest.mark.feature("O-05")
def test_windows_do_not_reach_over_epochs() -> None:
    class Counting(Toy):
        steps = 0

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.steps += 1

    module = Counting()
    trainer = fit(module, loader(10), accumulate_grad_batches=4, max_epochs=3)
    assert module.steps == trainer.global_step == 6


@pytest.mark.feature("O-05")
def test_gradients_are_cleared_once_per_window() -> None:
    calls: list[str] = []

    class Watching(Toy):
        def on_before_zero_grad(self, optimizer: Any) -> None:
            calls.append("zero")

        def on_after_backward(self) -> None:
            calls.append("backward")

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            calls.append("step")

    fit(Watching(), loader(6), accumulate_grad_batches=2)
    assert calls == ["zero", "backward", "backward", "step", "zero", "backward", "step"]


@pytest.mark.feature("O-05", "M-01")
def test_the_reported_loss_is_that_of_lightning() -> None:
    class Ends(Toy):
        def __init__(self) -> None:
            super().__init__(lr=0.0)
            self.outputs: list[float] = []

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.outputs.append(float(outputs["loss"]) / self.loss(batch).item())

    module = Ends()
    fit(module, loader(8), accumulate_grad_batches=2)
    assert module.outputs == pytest.approx([0.5] * 4)  # divided by the window, as Lightning reports it


class Changing(Toy):
    """Changes the window at given batches."""

    def __init__(self, at: dict[int, int]) -> None:
        super().__init__()
        self.at = at

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if batch_idx in self.at:
            self.trainer.accumulate_grad_batches = self.at[batch_idx]


@pytest.mark.feature("O-05", "T-18")
@pytest.mark.parametrize("data", [loader, stream])
@pytest.mark.parametrize(
    ("first", "at", "windows"),
    [
        (1, {2: 2}, [1, 1, 2, 2]),
        (2, {2: 1}, [2, 1, 1, 1, 1]),
        (4, {2: 3}, [3, 3]),  # inside of a window
        (4, {2: 1}, [3, 1, 1, 1]),
        (2, {1: 4}, [4, 2]),
        (3, {1: 1}, [2, 1, 1, 1, 1]),
    ],
)
def test_the_window_may_change_during_an_epoch(data: Any, first: int, at: dict[int, int], windows: list[int]) -> None:
    module = Changing(at)
    trainer = fit(module, data(), accumulate_grad_batches=first)
    batches, reference = list(loader()), Toy()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for size in windows:
        part, batches = batches[:size], batches[size:]
        optimizer.zero_grad()
        for batch in part:
            (reference.loss(batch) / size).backward()
        optimizer.step()
    assert batches == []
    assert trainer.global_step == len(windows)
    assert torch.allclose(weights(module), weights(reference), atol=1e-6)


@pytest.mark.feature("O-05", "O-08")
def test_lbfgs_runs_its_closure_several_times() -> None:
    def configure(module: Any) -> Any:
        return LBFGS(module.parameters(), lr=0.5, max_iter=6)

    module = Toy(optimizers=configure)
    trainer = fit(module, loader(12, 12), max_epochs=3)
    assert trainer.global_step == 3
    assert len(module.seen) > 6
    reference = Toy()
    optimizer = configure(reference)
    batch = next(iter(loader(12, 12)))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = reference.loss(batch)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert torch.equal(weights(module), weights(reference))
    assert reference.loss(batch).item() < 0.02


@pytest.mark.feature("O-08", "M-01")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "64-true"])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("how", ["closure", "before", "wrapped", "every other"])
def test_overrides_of_optimizer_step(precision: str, window: int, how: str) -> None:
    class Own(Toy):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
            assert isinstance(optimizer, torch.optim.SGD)
            if how == "closure":
                optimizer.step(closure=optimizer_closure)
            elif how == "wrapped":
                optimizer.step(closure=lambda: optimizer_closure())
            elif how == "before":
                optimizer_closure()
                optimizer.step()
            else:
                optimizer_closure()
                if batch_idx % 2:
                    optimizer.step()

    module = Own()
    trainer = fit(module, accumulate_grad_batches=window, **number_format(precision))
    batches = list(loader())
    if how == "every other":
        batches = batches[1::2] if window == 1 else batches[3:]
    tolerance = 1e-6 if precision in ("32-true", "64-true") else 4e-2
    assert torch.allclose(weights(module).float(), sgd_by_hand(batches, window=window), atol=tolerance)
    assert trainer.global_step == len(batches) // window


@pytest.mark.feature("O-08")
def test_an_override_that_forgets_the_closure_is_an_error() -> None:
    class Own(Toy):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
            optimizer.step()

    with pytest.raises(Exception, match=r"Own.optimizer_step did not run the closure"):
        fit(Own())

"""Where numbers under `Policy.right` are not Lightning's, they are what the loop by hand gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet
from tests.parity.scenarios import (
    SCENARIOS,
    SEED,
    Kept,
    Scenario,
    Stream,
    classifier,
    loaders,
    rows,
    sgd,
    step_lr,
    train,
)
from tests.parity.test_numbers import assert_same_tensors, assert_same_values

PARTIAL = "accumulation, partial window"


def by_hand(make: Callable[[Any, list[Tensor]], Any], data: Any, window: int, epochs: int) -> Kept:
    """The same training in a plain loop: each window's gradient is the mean over the batches that are in it."""
    import fulmen as L

    kept = Kept()
    with quiet():
        L.seed_everything(SEED, workers=True, verbose=False)
        module = make(L, [])
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        loader = data()["train_dataloaders"]
    for _ in range(epochs):
        batches: list[Any] = []
        # A plain DataLoader draws its seeds from the global generator when it starts and at the first batch; then
        # dropout does. Losses are computed in the order in which batches come.
        iterator = iter(loader)
        length = len(loader)
        for index in range(length):
            batch = next(iterator)
            batches.append(batch)
            inside = min(window, length - (index - len(batches) + 1))
            loss = module.loss_of(batch)
            kept.losses.append(loss.detach().clone())
            if len(batches) == 1:
                optimizer.zero_grad()
            (loss / inside if inside > 1 else loss).backward()
            if len(batches) == inside:
                kept.gradients.append([p.grad.clone() for p in module.parameters()])
                optimizer.step()
                batches.clear()
        scheduler.step()
    kept.weights = {name: value.clone() for name, value in module.state_dict().items()}
    return kept


@pytest.mark.feature("O-05")
def test_a_partial_window_is_the_mean_of_its_batches(tmp_path: Path) -> None:
    ours = train(
        Framework(RIGHT), Scenario(classifier(configure=step_lr), _train_only, {"accumulate_grad_batches": 3}), tmp_path
    )
    hand = by_hand(classifier(configure=step_lr), _train_only, window=3, epochs=3)
    assert len(ours.gradients) == 12
    assert_same_tensors(hand.losses, ours.losses, "losses")
    assert_same_tensors(hand.gradients, ours.gradients, "gradients")
    assert_same_tensors(hand.weights, ours.weights, "weights")


def _train_only() -> dict[str, Any]:
    return {"train_dataloaders": loaders()()["train_dataloaders"]}


@pytest.mark.feature("O-05")
def test_lightnings_partial_window_is_too_small(tmp_path: Path) -> None:
    """The difference that the test above is about: one batch in a window of three has a third of the gradient."""
    peer = train(Framework(LIGHTNING), SCENARIOS[PARTIAL], tmp_path / "peer")
    ours = train(Framework(RIGHT), SCENARIOS[PARTIAL], tmp_path / "ours")
    assert_same_tensors(peer.losses[:10], ours.losses[:10], "losses of the first epoch")
    assert_same_tensors(peer.gradients[:3], ours.gradients[:3], "gradients of whole windows")
    for theirs, mine in zip(peer.gradients[3], ours.gradients[3], strict=True):
        torch.testing.assert_close(mine, theirs * 3)
    assert ours.rates == peer.rates and ours.counters == peer.counters


@pytest.mark.feature("O-05")
def test_a_partial_window_of_unknown_length_is_the_mean_too(tmp_path: Path) -> None:
    def stream() -> dict[str, Any]:
        return {"train_dataloaders": DataLoader(Stream(rows(20)), batch_size=4)}  # five batches, nobody knows

    def known() -> dict[str, Any]:
        return {"train_dataloaders": DataLoader(rows(20), batch_size=4)}

    settings = {"accumulate_grad_batches": 3, "max_epochs": 1}
    blind = train(Framework(RIGHT), Scenario(classifier(configure=sgd), stream, settings), tmp_path / "blind")
    told = train(Framework(RIGHT), Scenario(classifier(configure=sgd), known, settings), tmp_path / "told")
    assert len(blind.gradients) == len(told.gradients) == 2
    for mine, expected in zip(blind.gradients, told.gradients, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.feature("O-04", "O-01")
def test_a_gan_trains_the_same_and_counts_batches(tmp_path: Path) -> None:
    peer = train(Framework(LIGHTNING), SCENARIOS["GAN by hand"], tmp_path / "peer")
    ours = train(Framework(RIGHT), SCENARIOS["GAN by hand"], tmp_path / "ours")
    assert_same_tensors(peer.losses, ours.losses, "losses")
    assert_same_tensors(peer.weights, ours.weights, "weights")
    assert_same_values(peer.values, ours.values)
    assert ours.rates == peer.rates
    batches = [step for kind, _, step, *_ in (c for c in ours.counters if c[0] == "batch")]
    theirs = [step for kind, _, step, *_ in (c for c in peer.counters if c[0] == "batch")]
    assert batches == list(range(1, 31)) and theirs == list(range(2, 62, 2))


@pytest.mark.feature("O-01", "T-03")
@pytest.mark.parametrize(("name", "batches"), [(RIGHT, 7), (STRICT, 4)])
def test_max_steps_of_a_gan(name: str, batches: int, tmp_path: Path) -> None:
    scenario = SCENARIOS["GAN by hand"]
    kept = train(Framework(name), Scenario(scenario.module, scenario.data, {"max_steps": 7}), tmp_path)
    assert len(kept.losses) == 2 * batches


@pytest.mark.feature("H-02")
def test_half_precision_on_cpu_is_what_was_asked_for(tmp_path: Path) -> None:
    scenario = SCENARIOS["16-mixed on CPU"]
    ours = train(Framework(RIGHT), scenario, tmp_path / "ours")
    single = train(Framework(RIGHT), Scenario(scenario.module, scenario.data), tmp_path / "single")
    strict = train(Framework(STRICT), scenario, tmp_path / "strict")
    error = torch.stack(ours.losses) - torch.stack(single.losses)
    as_bfloat = torch.stack(strict.losses) - torch.stack(single.losses)
    assert 0 < error.abs().max() < 5e-3
    assert error.abs().mean() < as_bfloat.abs().mean() / 2

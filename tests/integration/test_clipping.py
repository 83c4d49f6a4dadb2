"""Gradient clipping in automatic optimization."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.errors import MisconfigurationException
from fulmen.utilities.grads import grad_norm
from tests.integration.toys import Toy, fit, loader, number_format, weights


class Large(Toy):
    """Gradients far above any limit; keeps them as the optimizer sees them and as the hook before it does."""

    def __init__(self) -> None:
        super().__init__(lr=0.01)
        self.unclipped: list[torch.Tensor] = []
        self.stepped: list[torch.Tensor] = []

    def grads(self) -> torch.Tensor:
        return torch.cat([p.grad.detach().clone().flatten() for p in self.parameters()])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return 50 * self.loss(batch)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.unclipped.append(self.grads())

    def on_before_zero_grad(self, optimizer: Any) -> None:
        if self.net.weight.grad is not None and self.unclipped:
            self.stepped.append(self.grads())


@pytest.mark.feature("O-07")
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("algorithm", [None, "norm", "value"])
def test_clipping(precision: str, window: int, algorithm: str | None) -> None:
    module = Large()
    before = weights(module)
    fit(
        module,
        loader(4 * window),
        gradient_clip_val=0.5,
        gradient_clip_algorithm=algorithm,
        accumulate_grad_batches=window,
        **number_format(precision),
    )
    assert all(float(g.norm()) > 20 for g in module.unclipped)
    (clipped,) = module.stepped[:1]
    if algorithm == "value":
        assert float(clipped.abs().max()) == 0.5
        assert float((weights(module) - before).abs().max()) <= 2 * 0.01 * 0.5 + 1e-6
    else:
        assert float(clipped.norm()) == pytest.approx(0.5, abs=1e-4)
        assert torch.allclose(clipped / clipped.norm(), module.unclipped[0] / module.unclipped[0].norm(), atol=1e-4)


@pytest.mark.feature("O-07")
@pytest.mark.parametrize("value", [None, 0, 0.0])
def test_none_and_zero_do_not_clip(value: Any) -> None:
    module = Large()
    fit(module, loader(4), gradient_clip_val=value)
    assert torch.equal(module.stepped[0], module.unclipped[0])


@pytest.mark.feature("O-07", "T-18")
def test_the_value_may_change_during_a_run() -> None:
    class Changing(Large):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if batch_idx == 1:
                self.trainer.gradient_clip_val = 0.5
                self.trainer.gradient_clip_algorithm = "value"

    module = Changing()
    fit(module, loader(6))
    assert torch.equal(module.stepped[0], module.unclipped[0])
    assert float(module.stepped[1].abs().max()) == 0.5


@pytest.mark.feature("O-07", "M-01")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_an_override_gets_unscaled_gradients_and_the_trainers_values(precision: str) -> None:
    got: list[Any] = []

    class Own(Large):
        def configure_gradient_clipping(
            self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
        ) -> None:
            got.append((gradient_clip_val, gradient_clip_algorithm))
            self.clip_gradients(optimizer, gradient_clip_val=0.1, gradient_clip_algorithm="norm")

    module = Own()
    fit(module, loader(4), **number_format(precision))
    assert got == [(None, None)] * 2
    assert float(module.stepped[0].norm()) == pytest.approx(0.1, abs=1e-4)
    got.clear()
    module = Own()
    fit(module, loader(4), gradient_clip_val=0.1, **number_format(precision))
    assert got == [(0.1, None)] * 2


@pytest.mark.feature("O-07")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gradient_clip_val": 0.1}, ("gradient_clip_val=0.1", "Trainer(gradient_clip_val=0.5)", "one of them only")),
        ({"gradient_clip_algorithm": "value"}, ("'value'", "'norm'", "one of them only")),
    ],
)
def test_values_that_contradict_the_trainers_are_errors(given: Any, words: tuple[str, ...]) -> None:
    class Own(Large):
        def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.clip_gradients(optimizer, **given)

    with pytest.raises(MisconfigurationException) as caught:
        fit(Own(), gradient_clip_val=0.5, gradient_clip_algorithm="norm")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.feature("O-07", "M-05")
def test_clip_gradients_outside_of_a_run_says_what_to_do() -> None:
    module = Large()
    with pytest.raises(MisconfigurationException, match="clip_grad_norm_"):
        module.clip_gradients(torch.optim.SGD(module.parameters(), lr=1), 0.5)


@pytest.mark.feature("O-07")
def test_grad_norm_names_parameters_and_the_total() -> None:
    norms: dict[str, float] = {}

    class Watch(L.Callback):
        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            norms.update(grad_norm(pl_module.net, norm_type=2))

    module = Large()
    fit(module, loader(2), callbacks=Watch())
    assert set(norms) == {"grad_2.0_norm/weight", "grad_2.0_norm/bias", "grad_2.0_norm_total"}
    assert float(norms["grad_2.0_norm_total"]) == pytest.approx(float(module.unclipped[0].norm()))

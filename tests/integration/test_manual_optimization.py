"""Manual optimization: `training_step` does backward and step itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from fulmen.engine.runtime.policy import Policy
from fulmen.errors import MisconfigurationException
from tests.integration.toys import Manual, Toy, fit, loader, number_format, sgd_by_hand, weights


def plain_step(module: Any, batch: Any, batch_idx: int) -> Any:
    optimizer = module.optimizers()
    optimizer.zero_grad()
    loss = module.loss(batch)
    module.manual_backward(loss)
    optimizer.step()
    return loss


def closure_step(module: Any, batch: Any, batch_idx: int) -> Any:
    optimizer = module.optimizers()

    def closure() -> Any:
        optimizer.zero_grad()
        loss = module.loss(batch)
        module.manual_backward(loss)
        return loss

    optimizer.step(closure=closure)


def accumulating_step(module: Any, batch: Any, batch_idx: int) -> None:
    optimizer = module.optimizers()
    module.manual_backward(module.loss(batch) / 2)
    if batch_idx % 2:
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.feature("O-04")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "64-true"])
@pytest.mark.parametrize(("step", "window"), [(plain_step, 1), (closure_step, 1), (accumulating_step, 2)])
def test_it_equals_the_loop_written_by_hand(precision: str, step: Any, window: int) -> None:
    module = Manual(step)
    trainer = fit(module, **number_format(precision))
    expected = sgd_by_hand(list(loader()), window=window)
    if precision == "32-true":
        assert torch.allclose(weights(module), expected, atol=1e-7)
    else:
        assert torch.allclose(weights(module).float(), expected, atol=3e-2)
    assert trainer.global_step == 6 // window


class Watching(Manual):
    """Writes down the hooks of a step."""

    def __init__(self, step: Any) -> None:
        super().__init__(step)
        self.calls: list[str] = []

    def on_before_backward(self, loss: Any) -> None:
        self.calls.append("before backward")

    def on_after_backward(self) -> None:
        self.calls.append("after backward")

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        assert type(optimizer) is SGD
        self.calls.append("before step")


@pytest.mark.feature("O-04", "M-01")
@pytest.mark.parametrize("step", [plain_step, closure_step])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_hooks_of_a_step(step: Any, precision: str) -> None:
    module = Watching(step)
    fit(module, loader(2), **number_format(precision))
    assert module.calls == ["before backward", "after backward", "before step"]


class Gan(Manual):
    """Two parts with an optimizer each; the discriminator steps `d_every` times as often."""

    def __init__(self, *, d_every: int = 1, raw: bool = False, toggle: bool = True) -> None:
        super().__init__()
        self.other = nn.Linear(4, 1)
        self.d_every = d_every
        self.raw = raw
        self.toggle = toggle
        self.needs: list[list[bool]] = []
        self.steps = 0

    def configure_optimizers(self) -> Any:
        return [SGD(self.net.parameters(), lr=0.01), SGD(self.other.parameters(), lr=0.01)]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for index, optimizer in enumerate(self.optimizers(use_pl_optimizer=not self.raw)):
            if index == 0 and batch_idx % self.d_every:
                continue
            if self.toggle:
                self.toggle_optimizer(optimizer)
            self.needs.append([p.requires_grad for p in self.parameters()])
            loss = (self.net(batch[0]) - self.other(batch[0])).pow(2).mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.steps += 1
            if self.toggle:
                self.untoggle_optimizer(optimizer)


@pytest.mark.feature("O-04", "M-04")
def test_two_optimizers_at_different_cadence() -> None:
    module = Gan(d_every=2)
    before = weights(module)
    trainer = fit(module, loader(8))
    assert module.steps == 6
    assert not torch.equal(weights(module), before)
    one, other = [True, True, False, False], [False, False, True, True]
    assert module.needs == [one, other, other] * 2
    assert all(p.requires_grad for p in module.parameters())
    assert trainer.global_step == 4  # batches with a step


@pytest.mark.feature("O-01", "O-04")
@pytest.mark.parametrize(
    ("policy", "raw", "steps"),
    [
        (Policy.right, False, 4),
        (Policy.right, True, 4),
        (Policy.lightning, False, 8),
        (Policy.lightning, True, 0),
    ],
)
def test_what_counts_as_a_step(policy: Policy, raw: bool, steps: int) -> None:
    trainer = fit(Gan(raw=raw), loader(8), policy=policy)
    assert trainer.global_step == steps


@pytest.mark.feature("O-01", "O-04")
def test_raw_steps_reach_max_steps_under_right() -> None:
    module = Gan(raw=True)
    trainer = fit(module, loader(8), max_epochs=-1, max_steps=3)
    assert (trainer.global_step, module.steps) == (3, 6)


@pytest.mark.feature("O-04")
def test_counting_hooks_are_taken_off_the_optimizers_after_the_run() -> None:
    optimizers: list[Any] = []

    class Keeping(Gan):
        def configure_optimizers(self) -> Any:
            optimizers.extend(super().configure_optimizers())
            return optimizers

    fit(Keeping(), loader(2))
    assert [len(o._optimizer_step_post_hooks) for o in optimizers] == [0, 0]


@pytest.mark.feature("O-04", "O-07")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_clip_gradients_clips_real_gradients(precision: str) -> None:
    norms: list[float] = []

    def step(module: Any, batch: Any, batch_idx: int) -> None:
        optimizer = module.optimizers()
        optimizer.zero_grad()
        module.manual_backward(100 * module.loss(batch))
        module.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        norms.append(float(torch.cat([p.grad.flatten() for p in module.parameters()]).norm()))
        optimizer.step()

    module = Manual(step)
    before = weights(module)
    fit(module, loader(2), **number_format(precision))
    assert norms == pytest.approx([0.5], abs=1e-3)
    assert float((weights(module) - before).norm()) == pytest.approx(0.05, abs=1e-3)


@pytest.mark.feature("O-04")
def test_toggled_optimizer_is_a_context_and_puts_flags_back_after_an_exception() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> None:
        module.net.bias.requires_grad = False
        flags = [p.requires_grad for p in module.parameters()]
        first, second = module.optimizers()
        with pytest.raises(ValueError, match="mine"), module.toggled_optimizer(first):
            assert [p.requires_grad for p in module.parameters()] == [True, False, False, False]
            raise ValueError("mine")
        assert [p.requires_grad for p in module.parameters()] == flags
        with second.toggle_model(sync_grad=False):
            assert [p.requires_grad for p in module.parameters()] == [False, False, True, True]
        assert [p.requires_grad for p in module.parameters()] == flags
        module.toggle_optimizer(first)
        module.toggle_optimizer(second)  # without untoggling first
        assert [p.requires_grad for p in module.parameters()] == [False, False, True, True]
        module.untoggle_optimizer(second)
        assert [p.requires_grad for p in module.parameters()] == flags

    class Two(Gan):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            step(self, batch, batch_idx)

    fit(Two(), loader(2))


@pytest.mark.feature("O-04", "M-04")
def test_shared_parameters_stay_needed_under_toggle() -> None:
    class Shared(Gan):
        def configure_optimizers(self) -> Any:
            return [SGD([*self.net.parameters(), *self.other.parameters()], lr=0.1), SGD(self.other.parameters(), lr=1)]

        def training_step(self, batch: Any, batch_idx: int) -> None:
            first, second = self.optimizers()
            with self.toggled_optimizer(first):
                assert all(p.requires_grad for p in self.parameters())
            with self.toggled_optimizer(second):
                assert [p.requires_grad for p in self.parameters()] == [False, False, True, True]

    fit(Shared(), loader(2))


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("O-04")
def test_manual_backward_in_automatic_optimization() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        loss = module.loss(batch)
        module.manual_backward(loss)
        return loss

    with pytest.raises(MisconfigurationException, match=r"Toy called `manual_backward`.*optimization = False"):
        fit(Toy(step))


@pytest.mark.feature("O-04")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_stepping_in_automatic_optimization(precision: str) -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        module.optimizers().step()
        return module.loss(batch)

    with pytest.raises(MisconfigurationException, match=r"Toy.training_step called `optimizer.step\(\)`.*Leave that"):
        fit(Toy(step), **number_format(precision))


@pytest.mark.feature("O-04")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"accumulate_grad_batches": 2}, ("accumulate_grad_batches=2", "step every 2 batches in `training_step`")),
        ({"gradient_clip_val": 0.5}, ("gradient_clip_val=0.5", "self.clip_gradients(optimizer, 0.5)")),
    ],
)
def test_arguments_that_do_nothing_in_manual_optimization(arguments: Any, words: tuple[str, ...]) -> None:
    module = Manual(plain_step)
    with pytest.raises(MisconfigurationException) as caught:
        fit(module, **arguments)
    for word in ("Trainer(", "Manual.automatic_optimization is False", *words):
        assert word in str(caught.value)
    assert module.seen == []


@pytest.mark.feature("O-04")
def test_a_loss_that_is_no_number_is_an_error_of_manual_backward() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> None:
        module.manual_backward(module.net(batch[0]))

    with pytest.raises(MisconfigurationException, match=r"Manual.*manual_backward.*shape \(2, 1\).*\.mean\(\)"):
        fit(Manual(step))


@pytest.mark.feature("O-04")
def test_backward_with_gradients_of_ones_own_takes_any_shape() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> None:
        module.manual_backward(module.net(batch[0]), torch.ones(2, 1))

    module = Manual(step)
    fit(module, loader(2))
    assert module.net.bias.grad is not None


@pytest.mark.feature("O-04", "M-05")
def test_manual_backward_outside_of_a_run_is_backward() -> None:
    module = Manual()
    module.manual_backward(module.loss(next(iter(loader()))))
    assert module.net.weight.grad is not None

"""Steps of Lightning 1.x, `training_step(batch, batch_idx, optimizer_idx)`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import fulmen as L
from fulmen.engine.precision import MixedPrecision
from fulmen.errors import MisconfigurationException, StepOutputError
from tests.integration.test_several_optimizers import Pair, named, optimizers_of
from tests.integration.toys import fit, loader, number_format, quiet, weights

pytestmark = pytest.mark.feature("M-08")


class Old(Pair):
    """Returns the loss of the optimizer asked for; keeps what it was asked."""

    def __init__(self, configure: Any = None) -> None:
        super().__init__(None, configure)
        self.asked: list[tuple[int, int]] = []
        self.needed: list[list[str]] = []

    def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:  # type: ignore[override]
        self.asked.append((batch_idx, optimizer_idx))
        self.needed.append([name for name, p in self.named_parameters() if p.requires_grad])
        return self.both(batch)["ab"[optimizer_idx]]


def by_hand(batches: list[Any], *, window: int, clip: float | None, epochs: int = 2) -> Tensor:
    """Each optimizer after the other: its loss at the weights of now, its parameters only."""
    module = Pair()
    optimizers = optimizers_of(module)
    for _ in range(epochs):
        for start in range(0, len(batches), window):
            part = batches[start : start + window]
            for i, batch in enumerate(part):
                for name, optimizer in zip("ab", optimizers, strict=True):
                    own = [p for group in optimizer.param_groups for p in group["params"]]
                    gradients = torch.autograd.grad(module.both(batch)[name] / len(part), own)
                    for param, gradient in zip(own, gradients, strict=True):
                        param.grad = gradient if i == 0 or param.grad is None else param.grad + gradient
                    if i == len(part) - 1:
                        if clip is not None:
                            nn.utils.clip_grad_norm_(own, clip)
                        optimizer.step()
    return weights(module)


@pytest.mark.feature("O-05", "O-07")
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_returned_losses_equal_the_loop_written_by_hand(window: int, clip: float | None) -> None:
    module = Old()
    trainer = fit(module, max_epochs=2, accumulate_grad_batches=window, gradient_clip_val=clip)
    expected = by_hand(list(loader()), window=window, clip=clip)
    torch.testing.assert_close(weights(module), expected, rtol=0, atol=1e-7)
    assert trainer.global_step == 2 * -(-6 // window)
    assert module.asked[:4] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert module.needed[:2] == [["a.weight", "a.bias"], ["b.weight", "b.bias"]]
    assert all(p.requires_grad for p in module.parameters())


def test_one_scale_in_a_window() -> None:
    """The scale grows after each update; gradients of one window must not have two scales."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1)
    module = Old()
    fit(module, accumulate_grad_batches=2, plugins=MixedPrecision("16-mixed", "cpu", scaler))
    expected = by_hand(list(loader()), window=2, clip=None, epochs=1)
    torch.testing.assert_close(weights(module), expected, rtol=0, atol=0.02)
    assert scaler.get_scale() >= 8.0


def with_frequency(*frequencies: int) -> Any:
    def configure(module: Any) -> Any:
        return [{**conf, "frequency": n} for conf, n in zip(named(module), frequencies, strict=True)]

    return configure


def test_frequency_takes_turns() -> None:
    module = Old(with_frequency(1, 2))
    rates: list[Any] = []

    def configure(m: Any) -> Any:
        configs = with_frequency(1, 2)(m)
        for conf in configs:
            scheduler = torch.optim.lr_scheduler.LambdaLR(conf["optimizer"], lambda n: 2.0**-n)
            conf["lr_scheduler"] = {"scheduler": scheduler, "interval": "step"}
            rates.append(conf["optimizer"])
        return configs

    module = Old(configure)
    trainer = fit(module, loader(14), max_epochs=2)
    turns = [0, 1, 1, 0, 1, 1, 0]
    assert [index for _, index in module.asked] == turns * 2  # each epoch begins anew
    assert trainer.global_step == 14
    # A scheduler per step follows its own optimizer.
    assert [o.param_groups[0]["lr"] for o in rates] == [0.1 * 2.0**-6, 0.05 * 2.0**-8]


def test_frequency_and_accumulation() -> None:
    """Each optimizer gets the mean over the batches of the window that were its own."""
    module = Old(lambda m: [{"optimizer": SGD(net.parameters(), lr=0.1), "frequency": 1} for net in (m.a, m.b)])
    fit(module, loader(6), accumulate_grad_batches=3)
    reference = Pair()
    batches = list(loader(6))
    optimizers = [SGD(net.parameters(), lr=0.1) for net in (reference.a, reference.b)]
    mean = (reference.both(batches[0])["a"] + reference.both(batches[2])["a"]) / 2
    ga = torch.autograd.grad(mean, list(reference.a.parameters()))
    gb = torch.autograd.grad(reference.both(batches[1])["b"], list(reference.b.parameters()))
    for param, gradient in zip(reference.parameters(), [*ga, *gb], strict=True):
        param.grad = gradient
    for optimizer in optimizers:
        optimizer.step()
    torch.testing.assert_close(weights(module), weights(reference), rtol=0, atol=1e-7)


def test_frequency_without_optimizer_idx_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="'frequency', which only counts for"):
        fit(Pair(None, with_frequency(1, 2)), loader(2))


class ByHand(Pair):
    """Does backward and step itself, as printed in many an article, in automatic mode."""

    def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:  # type: ignore[override]
        loss = self.both(batch)["ab"[optimizer_idx]]
        optimizer = self.optimizers()[optimizer_idx]
        optimizer.zero_grad()
        self.backward_of(loss)
        optimizer.step()
        return loss

    def backward_of(self, loss: Tensor) -> None:
        self.manual_backward(loss)


class AtOnce(ByHand):
    def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:  # type: ignore[override]
        loss = self.both(batch)["ab"[optimizer_idx]]
        optimizer = self.optimizers()[optimizer_idx]
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return loss


@pytest.mark.feature("O-04")
@pytest.mark.parametrize("kind", [AtOnce, ByHand], ids=["in the step", "in a method it calls"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_a_step_that_steps_itself_is_manual_with_one_warning(kind: Any, precision: str) -> None:
    module = kind()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = fit(module, max_epochs=2, **number_format(precision))
    said = [str(w.message) for w in caught if "taken as manual" in str(w.message)]
    assert len(said) == 1
    assert "automatic_optimization = False" in said[0]
    atol = 1e-7 if precision == "32-true" else 0.06
    expected = by_hand(list(loader()), window=1, clip=None)
    torch.testing.assert_close(weights(module), expected, rtol=0, atol=atol)
    assert trainer.global_step == 12
    assert trainer.progress.optimizer_steps == 24


@pytest.mark.feature("O-04")
def test_in_manual_optimization_it_is_called_once_per_optimizer() -> None:
    class Manual(AtOnce):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    module = Manual()
    fit(module, max_epochs=2)
    assert torch.equal(weights(module), by_hand(list(loader()), window=1, clip=None))


@pytest.mark.feature("O-04")
@pytest.mark.filterwarnings("ignore:.*taken as manual")
@pytest.mark.parametrize("kind", [AtOnce, ByHand])
@pytest.mark.parametrize(("argument", "value"), [("accumulate_grad_batches", 2), ("gradient_clip_val", 1.0)])
def test_arguments_that_do_nothing_then(kind: Any, argument: str, value: Any) -> None:
    with pytest.raises(MisconfigurationException, match=f"calls `manual_backward`, so that Trainer.{argument}={value}"):
        fit(kind(), **{argument: value})


def test_an_optimizer_step_of_lightning_1() -> None:
    got: list[Any] = []

    class Model(Old):
        def optimizer_step(  # type: ignore[override]
            self,
            epoch: int,
            batch_idx: int,
            optimizer: Any,
            optimizer_idx: int,
            optimizer_closure: Any,
            on_tpu: bool = False,
            using_lbfgs: bool = False,
        ) -> None:
            got.append((batch_idx, optimizer_idx))
            if optimizer_idx == 0 or batch_idx % 2:
                optimizer.step(closure=optimizer_closure)
            else:
                optimizer_closure()  # the second one only every other batch

    module = Model()
    trainer = fit(module, loader(4))
    assert got == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert trainer.progress.optimizer_steps == 3


def test_losses_left_out_and_wrong_ones() -> None:
    class Sparse(Old):
        def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:  # type: ignore[override]
            return None if optimizer_idx else self.loss(batch)

    module = Sparse()
    trainer = fit(module, loader(4))
    assert [len(o.state) for o in trainer.optimizers] == [2, 0]
    assert trainer.global_step == 2

    class Wrong(Old):
        def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:  # type: ignore[override]
            return 3.0

    with pytest.raises(StepOutputError, match=r"float 3\.0 where a loss tensor"):
        fit(Wrong())


@pytest.mark.feature("C-02")
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_resume_at_any_batch_is_exact(at: int, tmp_path: Path) -> None:
    class Saving(Old):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == at and self.current_epoch == 0:
                self.trainer.save_checkpoint(tmp_path / "here.ckpt")

    arguments: dict[str, Any] = {"max_epochs": 2, "accumulate_grad_batches": 4}
    whole = Saving(with_frequency(1, 2))
    fit(whole, **arguments)
    resumed = Old(with_frequency(1, 2))
    quiet(**arguments).fit(resumed, loader(), ckpt_path=tmp_path / "here.ckpt")
    assert torch.equal(weights(resumed), weights(whole))


def test_without_configure_optimizers_the_error_says_so() -> None:
    class Gan(L.LightningModule):
        def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:
            self.manual_backward(batch[0].mean())

    with pytest.raises(MisconfigurationException, match="Gan has no `configure_optimizers`; define it"):
        fit(Gan())

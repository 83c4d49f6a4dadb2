"""Closures of automatic optimization: optimizers that run them several times, or not at all; windows left open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD

import fulmen as L
from fulmen.engine.precision import MixedPrecision
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import MisconfigurationException, StepOutputError
from tests.integration.toys import Toy, fit, loader, number_format, quiet, weights

pytestmark = pytest.mark.feature("O-08")


def lbfgs(module: Any) -> LBFGS:
    return LBFGS(module.parameters(), lr=0.5, max_iter=4, tolerance_grad=0, tolerance_change=0)


class Twice(SGD):
    """Evaluates at two points and steps with the second gradient, as sharpness-aware minimisation does."""

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            closure()
            loss = closure()
        super().step()
        return loss


def window_by_hand(optimizer: Any, module: Toy, part: list[Any]) -> None:
    """Earlier batches once, the last one at each evaluation."""
    for param in module.parameters():
        param.grad = None
    for batch in part[:-1]:
        (module.loss(batch) / len(part)).backward()
    kept = [None if p.grad is None else p.grad.clone() for p in module.parameters()]

    def closure() -> Any:
        for param, gradient in zip(module.parameters(), kept, strict=True):
            param.grad = None if gradient is None else gradient.clone()
        loss = module.loss(part[-1]) / len(part)
        loss.backward()
        return loss

    optimizer.step(closure)


@pytest.mark.feature("O-05")
@pytest.mark.parametrize("make", [lbfgs, lambda m: Twice(m.parameters(), lr=0.1)], ids=["LBFGS", "two evaluations"])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_each_evaluation_counts_the_window_once(make: Any, window: int) -> None:
    module, reference = Toy(optimizers=make), Toy()
    trainer = fit(module, accumulate_grad_batches=window, max_epochs=2)
    optimizer, batches = make(reference), list(loader())
    for _ in range(2):
        for start in range(0, len(batches), window):
            window_by_hand(optimizer, reference, batches[start : start + window])
    torch.testing.assert_close(weights(module), weights(reference), rtol=0, atol=1e-6)
    assert trainer.global_step == 2 * -(-6 // window)


@pytest.mark.feature("C-02")
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_lbfgs_resumes_in_a_window(at: int, tmp_path: Path) -> None:
    class Saving(Toy):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == at and self.current_epoch == 0:
                self.trainer.save_checkpoint(tmp_path / "here.ckpt")

    whole, resumed = Saving(optimizers=lbfgs), Toy(optimizers=lbfgs)
    fit(whole, max_epochs=2, accumulate_grad_batches=4)
    quiet(max_epochs=2, accumulate_grad_batches=4).fit(resumed, loader(), ckpt_path=tmp_path / "here.ckpt")
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.feature("M-02")
def test_lbfgs_and_batches_without_loss() -> None:
    """The first window has a loss in its first batch only, the second none, the third in both."""
    module = Toy(lambda m, b, i: None if i in (1, 2, 3) else m.loss(b), lbfgs)
    trainer = fit(module, accumulate_grad_batches=2)
    assert trainer.global_step == 2
    assert torch.isfinite(weights(module)).all()


def test_a_loss_that_goes_missing_in_a_search() -> None:
    calls: list[int] = []

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        calls.append(batch_idx)
        return module.loss(batch) if len(calls) < 3 else None

    with pytest.raises(StepOutputError, match="returned no loss when LBFGS ran it again on the same batch"):
        fit(Toy(step, lbfgs))


# --- optimizers that take no closure --------------------------------------------------------------------------------


class NoClosure(SGD):
    def step(self) -> None:  # type: ignore[override]
        super().step()


class Stepping(Toy):
    def __init__(self) -> None:
        super().__init__(optimizers=lambda m: NoClosure(m.parameters(), lr=0.1))


def test_an_optimizer_without_closure_is_told_before_training() -> None:
    module = Stepping()
    with pytest.raises(MisconfigurationException) as caught:
        fit(module)
    for word in ("NoClosure.step(self)", "takes no `closure`", "override `optimizer_step` in Stepping"):
        assert word in str(caught.value)
    assert module.seen == []


def test_it_works_where_the_module_steps_it() -> None:
    class Own(Stepping):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
            optimizer_closure()
            optimizer.step()

    module, plain = Own(), Toy()
    assert fit(module).global_step == fit(plain).global_step == 6
    assert torch.equal(weights(module), weights(plain))


def test_it_works_with_a_loss_scaler() -> None:
    module = Stepping()
    fit(module, **number_format("16-mixed"))
    assert len(module.seen) == 6
    assert not torch.equal(weights(module), weights(Toy()))


# --- sparse gradients -----------------------------------------------------------------------------------------------


class Words(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(6, 3, sparse=True), nn.Linear(3, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.head(self.words(torch.tensor([batch_idx % 6, 1]))).square().mean()

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=0.1)


@pytest.mark.feature("O-07")
@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_clipping_sparse_gradients_says_which(algorithm: str) -> None:
    with pytest.raises(MisconfigurationException) as caught:
        fit(Words(), gradient_clip_val=0.5, gradient_clip_algorithm=algorithm)
    for word in (f"gradient_clip_algorithm='{algorithm}'", "shape (6, 3) is sparse", "sparse=False"):
        assert word in str(caught.value)


@pytest.mark.feature("O-05")
def test_sparse_gradients_accumulate() -> None:
    torch.manual_seed(0)
    module = Words()
    torch.manual_seed(0)
    reference = Words()
    fit(module, loader(8), accumulate_grad_batches=3)
    optimizer = reference.configure_optimizers()
    for part in ([0, 1, 2], [3]):
        optimizer.zero_grad()
        for index in part:
            (reference.training_step(None, index) / len(part)).backward()
        optimizer.step()
    torch.testing.assert_close(weights(module), weights(reference), rtol=0, atol=1e-6)


# --- a window that is left open -------------------------------------------------------------------------------------


@pytest.mark.feature("O-05", "T-03")
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning])
@pytest.mark.parametrize("how", ["on_train_batch_start", "should_stop"])
def test_a_window_left_open_is_dropped(policy: Policy, how: str) -> None:
    """An epoch that is left early does not step with the gradients at hand, and the next one does not get them."""

    class Leaving(Toy):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if how == "on_train_batch_start" and batch_idx == 3 else None

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if how == "should_stop" and batch_idx == 2:
                self.trainer.should_stop = True

    module, reference = Leaving(), Toy()
    trainer = fit(module, accumulate_grad_batches=2, max_epochs=2, policy=policy)
    epochs = 2 if how == "on_train_batch_start" else 1
    assert trainer.global_step == epochs
    assert len(module.seen) == 3 * epochs
    optimizer = SGD(reference.parameters(), lr=0.1)
    for _ in range(epochs):
        optimizer.zero_grad()
        for batch in list(loader())[:2]:
            (reference.loss(batch) / 2).backward()
        optimizer.step()
    torch.testing.assert_close(weights(module), weights(reference), rtol=0, atol=1e-7)


# --- overflow -------------------------------------------------------------------------------------------------------


@pytest.mark.feature("O-01", "O-03", "C-02")
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_overflow_clipping_and_accumulation_through_a_resume(at: int, tmp_path: Path) -> None:
    """Gradients of the second window overflow: no step, no scheduler, half the scale, also after a resume there."""

    class Infinite(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            return loss * float("inf") if batch_idx == 3 and self.current_epoch == 0 else loss

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == at and self.current_epoch == 0:
                self.trainer.save_checkpoint(tmp_path / f"{at}.ckpt")

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.norms = [p.grad.norm().item() for p in self.parameters() if p.grad is not None]

        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def arguments(scale: float) -> dict[str, Any]:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        plugin = MixedPrecision("16-mixed", "cpu", scaler)
        return {"max_epochs": 2, "accumulate_grad_batches": 2, "gradient_clip_val": 0.1, "plugins": plugin}

    whole, resumed = Infinite(), Infinite()
    first, second = quiet(**arguments(8.0)), quiet(**arguments(512.0))
    first.fit(whole, loader())
    second.fit(resumed, loader(), ckpt_path=tmp_path / f"{at}.ckpt")
    for trainer in (first, second):
        assert trainer.global_step == 5
        assert trainer.optimizers[0].param_groups[0]["lr"] == 0.1 * 0.5**5
        assert trainer.precision_plugin.state_dict()["scale"] == 4.0
    assert torch.equal(weights(resumed), weights(whole))
    assert max(whole.norms) > 0.1, "the hook before clipping must see unscaled, unclipped gradients"

"""Several optimizers in automatic optimization with an ordinary training step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

import fulmen as L
from fulmen.engine.precision import MixedPrecision
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException, StepOutputError
from tests.integration.toys import Toy, fit, loader, number_format, quiet, weights

pytestmark = pytest.mark.feature("O-15")


class Pair(L.LightningModule):
    """A trunk and a head, each with its optimizer.

    Args:
        step: What `training_step` returns, given module, batch and index; the shared loss if not given.
        configure: What `configure_optimizers` returns, given the module; momentum SGD and Adam if not given.
    """

    def __init__(self, step: Callable[..., Any] | None = None, configure: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 1)
        self.step, self.configure = step, configure

    def loss(self, batch: Any) -> Tensor:
        return nn.functional.mse_loss(self.b(self.a(batch[0]).tanh()), batch[1])

    def both(self, batch: Any) -> dict[str, Tensor]:
        """Two losses that share a graph."""
        hidden = self.a(batch[0]).tanh()
        return {"a": hidden.square().mean(), "b": nn.functional.mse_loss(self.b(hidden), batch[1])}

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch) if self.step is None else self.step(self, batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return optimizers_of(self) if self.configure is None else self.configure(self)


def optimizers_of(module: Any) -> list[Any]:
    return [SGD(module.a.parameters(), lr=0.1, momentum=0.9), Adam(module.b.parameters(), lr=0.05)]


def named(module: Any) -> list[dict[str, Any]]:
    return [{"optimizer": o, "name": n} for o, n in zip(optimizers_of(module), "ab", strict=True)]


def named_losses(module: Any, batch: Any, batch_idx: int) -> dict[str, Any]:
    return {"loss": module.both(batch)}


def by_hand(batches: list[Any], *, window: int, clip: float | None, separate: bool, epochs: int = 2) -> Tensor:
    module = Pair()
    optimizers = optimizers_of(module)
    for _ in range(epochs):
        for start in range(0, len(batches), window):
            part = batches[start : start + window]
            for optimizer in optimizers:
                optimizer.zero_grad()
            for batch in part:
                if separate:
                    losses = module.both(batch)
                    for name in "ab":
                        own = list(getattr(module, name).parameters())
                        gradients = torch.autograd.grad(losses[name] / len(part), own, retain_graph=True)
                        for param, gradient in zip(own, gradients, strict=True):
                            param.grad = gradient if param.grad is None else param.grad + gradient
                else:
                    (module.loss(batch) / len(part)).backward()
            for optimizer in optimizers:
                if clip is not None:
                    nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], clip)
                optimizer.step()
    return weights(module)


@pytest.mark.feature("O-05", "O-07")
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("separate", [False, True])
def test_it_equals_the_loop_written_by_hand(separate: bool, window: int, clip: float | None) -> None:
    module = Pair(named_losses, named) if separate else Pair()
    trainer = fit(module, max_epochs=2, accumulate_grad_batches=window, gradient_clip_val=clip)
    expected = by_hand(list(loader()), window=window, clip=clip, separate=separate)
    torch.testing.assert_close(weights(module), expected, rtol=0, atol=1e-7)
    assert trainer.global_step == 2 * -(-6 // window)  # batches with an update, not calls of `step`


@pytest.mark.feature("O-05")
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_number_formats(precision: str, separate: bool) -> None:
    module = Pair(named_losses, named) if separate else Pair()
    fit(module, max_epochs=2, accumulate_grad_batches=2, gradient_clip_val=0.05, **number_format(precision))
    expected = by_hand(list(loader()), window=2, clip=0.05, separate=separate)
    torch.testing.assert_close(weights(module), expected, rtol=0, atol=0.06)
    assert not torch.equal(weights(module), weights(Pair()))


class Traced(Pair):
    """Notes the hooks around an update."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls: list[str] = []

    def number(self, optimizer: Any) -> int:
        raw = getattr(optimizer, "optimizer", optimizer)
        return [o is raw for o in self.trainer.optimizers].index(True)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.calls.append("step")
        return super().training_step(batch, batch_idx)

    def on_before_zero_grad(self, optimizer: Any) -> None:
        self.calls.append(f"zero {self.number(optimizer)}")

    def on_before_backward(self, loss: Tensor) -> None:
        self.calls.append("backward")

    def on_after_backward(self) -> None:
        self.calls.append("after")

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.calls.append(f"before {self.number(optimizer)}")

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any, gradient_clip_algorithm: Any) -> None:
        self.calls.append(f"clip {self.number(optimizer)}")

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any) -> None:
        self.calls.append(f"update {self.number(optimizer)}")
        optimizer.step(closure=optimizer_closure)


SHARED = "step, zero 0, zero 1, backward, after, update 0, before 0, clip 0, update 1, before 1, clip 1"
SEPARATE = SHARED.replace("backward, after", "backward, after, backward, after")


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
@pytest.mark.parametrize(
    ("step", "window", "calls"),
    [
        (None, 1, SHARED),
        (named_losses, 1, SEPARATE),
        (None, 2, "step, zero 0, zero 1, backward, after, " + SHARED.replace("zero 0, zero 1, ", "")),
    ],
)
def test_order_of_hooks(step: Any, window: int, calls: str, precision: str) -> None:
    module = Traced(step, named)
    fit(module, loader(2 * window), accumulate_grad_batches=window, **number_format(precision))
    assert module.calls == calls.split(", ")


def test_outputs_of_named_losses() -> None:
    seen: list[Any] = []

    class Watch(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            seen.append(outputs)

    module = Pair(lambda m, b, i: {"loss": m.both(b), "more": 3}, named)
    expected = {name: value.item() for name, value in module.both(next(iter(loader(2)))).items()}
    fit(module, loader(2), callbacks=Watch())
    assert seen[0]["more"] == 3
    assert {name: value.item() for name, value in seen[0]["loss"].items()} == pytest.approx(expected)
    assert not any(value.requires_grad for value in seen[0]["loss"].values())


def test_flags_come_back_and_losses_may_be_left_out() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        losses = module.both(batch)
        return {"loss": {"a": losses["a"], "b": None}} if batch_idx == 0 else {"loss": {"b": losses["b"]}}

    counts: list[list[int]] = []

    class Counts(Pair):
        def on_train_batch_end(self, *args: Any) -> None:
            states = [o.state for o in self.trainer.optimizers]
            counts.append([len(state) for state in states])

    module = Counts(step, named)
    trainer = fit(module, loader(4))
    assert counts == [[2, 0], [2, 2]]  # parameters that the optimizers have stepped
    assert trainer.global_step == 2
    assert all(p.requires_grad for p in module.parameters())


@pytest.mark.feature("O-03")
def test_each_scheduler_has_its_own_rhythm() -> None:
    rates: list[tuple[float, float]] = []

    class Watched(Pair):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            first, second = (o.param_groups[0]["lr"] for o in self.trainer.optimizers)
            rates.append((round(-torch.tensor(first).log2().item()), round(second, 6)))

    def configure(module: Any) -> Any:
        a, b = SGD(module.a.parameters(), lr=1.0), SGD(module.b.parameters(), lr=1.0)
        by_step = {"scheduler": LambdaLR(a, lambda n: 2.0**-n), "interval": "step", "frequency": 2}
        plateau = {"scheduler": ReduceLROnPlateau(b, patience=0, factor=0.1, threshold=10.0), "monitor": "val_loss"}
        return [{"optimizer": a, "lr_scheduler": by_step}, {"optimizer": b, "lr_scheduler": plateau}]

    module = Watched(lambda m, b, i: 0 * m.loss(b), configure)
    fit(module, loader(8), loader(2), max_epochs=3)
    assert [a for a, _ in rates] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [b for _, b in rates] == [1.0] * 4 + [0.1] * 4 + [0.01] * 4


def rhythms(module: Any) -> Any:
    """Three schedulers of two optimizers: each two updates, each three, each second epoch."""
    optimizers = [SGD(net.parameters(), lr=1.0) for net in (module.a, module.b)]
    return optimizers, [
        {"scheduler": LambdaLR(optimizers[0], lambda n: 2.0**-n), "interval": "step", "frequency": 2},
        {"scheduler": LambdaLR(optimizers[1], lambda n: 2.0**-n), "interval": "step", "frequency": 3},
        {"scheduler": LambdaLR(optimizers[1], lambda n: 2.0**-n), "interval": "epoch", "frequency": 2},
    ]


@pytest.mark.feature("O-03", "O-02")
@pytest.mark.parametrize(
    ("window", "skipped", "calls"),
    [
        (1, (), [10, 6, 2]),  # 20 updates, 4 epochs
        (2, (), [6, 4, 2]),  # 12 updates: two windows of two and one of one in an epoch
        (1, (0, 3), [10, 4, 2]),  # the second optimizer has 12 updates
    ],
)
def test_schedulers_count_updates_of_their_own_optimizer(window: int, skipped: Any, calls: list[int]) -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        losses = {name: 0 * loss for name, loss in module.both(batch).items()}
        return {"loss": {"0": losses["a"], "1": None if batch_idx in skipped else losses["b"]}}

    trainer = fit(Pair(step, rhythms), loader(10), max_epochs=4, accumulate_grad_batches=window)
    assert [config.scheduler.last_epoch for config in trainer.lr_scheduler_configs] == calls


def scaled(scale: float = 8.0) -> dict[str, Any]:
    return {"plugins": MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))}


def halving(module: Any) -> Any:
    configs = []
    for name, net in (("a", module.a), ("b", module.b)):
        optimizer = SGD(net.parameters(), lr=0.1)
        scheduler = LambdaLR(optimizer, lambda n: 2.0**-n)
        configs.append(
            {"optimizer": optimizer, "name": name, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
        )
    return configs


class Overflowing(Pair):
    """The loss of `b` overflows in some batches."""

    def __init__(self, at: tuple[int, ...]) -> None:
        super().__init__(None, halving)
        self.at = at

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        losses = self.both(batch)
        if batch_idx in self.at:
            losses["b"] = losses["b"] * float("inf")
        return {"loss": losses}


@pytest.mark.feature("O-03")
@pytest.mark.parametrize(
    ("right", "calls"), [(True, [6, 4]), (False, [6, 6])], ids=["schedulers skipped", "schedulers moved"]
)
def test_an_overflow_of_one_optimizer_skips_its_update_only(right: bool, calls: list[int]) -> None:
    module = Overflowing((1, 3))
    policy = Policy.right.replace(skip_scheduler_on_overflow=right)
    trainer = fit(module, policy=policy, **scaled())
    assert torch.isfinite(weights(module)).all()
    rates = [o.param_groups[0]["lr"] for o in trainer.optimizers]
    assert rates == [0.1 * 2.0**-n for n in calls]
    assert trainer.global_step == 6
    trainer.precision_plugin.state_dict()
    assert trainer.scaler.get_scale() == 2.0  # halved twice


def test_an_overflow_inside_of_a_window() -> None:
    module = Overflowing((2,))
    trainer = fit(module, accumulate_grad_batches=2, **scaled())
    assert [o.param_groups[0]["lr"] for o in trainer.optimizers] == [0.1 * 2.0**-3, 0.1 * 2.0**-2]
    assert torch.isfinite(weights(module)).all()


@pytest.mark.feature("C-02")
@pytest.mark.parametrize("step", [None, named_losses])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_resume_at_any_batch_is_exact(step: Any, at: int, tmp_path: Path) -> None:
    class Saving(Pair):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == at and self.current_epoch == 0:
                self.trainer.save_checkpoint(tmp_path / "here.ckpt")

    def configure(module: Any) -> Any:
        found = named(module)
        for conf in found:
            scheduler = LambdaLR(conf["optimizer"], lambda n: 0.9**n)
            conf["lr_scheduler"] = {"scheduler": scheduler, "interval": "step", "frequency": 2}
        return found

    whole = Saving(step, configure)
    first = quiet(accumulate_grad_batches=4, max_epochs=2, gradient_clip_val=0.5)
    first.fit(whole, loader())
    resumed = Pair(step, configure)
    second = quiet(accumulate_grad_batches=4, max_epochs=2, gradient_clip_val=0.5)
    second.fit(resumed, loader(), ckpt_path=tmp_path / "here.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert second.global_step == first.global_step
    rates = [[o.param_groups[0]["lr"] for o in t.optimizers] for t in (first, second)]
    assert rates[0] == rates[1]


def unknown_name(module: Any, batch: Any, batch_idx: int) -> Any:
    return {"loss": {"a": module.loss(batch), "bb": module.loss(batch)}}


def not_scalar(module: Any, batch: Any, batch_idx: int) -> Any:
    return {"loss": {"a": module.a(batch[0])}}


def twice(module: Any) -> Any:
    return [{**conf, "name": "a"} for conf in named(module)]


# step, optimizers, error, words
WRONG: list[tuple[Any, Any, type[Exception], tuple[str, ...]]] = [
    (unknown_name, named, StepOutputError, ("'bb'", "Names: ['a', 'b']")),
    (unknown_name, optimizers_of, StepOutputError, ("'a'", "Names: ['0', '1']")),
    (not_scalar, named, StepOutputError, ("shape (2, 3)", "one number")),
    (lambda m, b, i: 3, named, StepOutputError, ("int 3", "loss tensor")),
    (lambda m, b, i: {"los": 3}, named, StepOutputError, ("without 'loss'",)),
    (lambda m, b, i: m.loss(b).detach(), named, StepOutputError, ("needs no gradient",)),
    (None, twice, ArgumentValueError, ("2 optimizers with the name 'a'",)),
    (None, lambda m: [{**c, "name": 3} for c in named(m)], ArgumentTypeError, ("name=3", "a string")),
    (None, lambda m: [{**c, "frequency": "often"} for c in named(m)], ArgumentTypeError, ("frequency='often'",)),
    (None, lambda m: [{**c, "frequency": 0} for c in named(m)], ArgumentValueError, ("frequency=0", "at least 1")),
    (
        None,
        lambda m: [{**named(m)[0], "frequency": 1}, named(m)[1]],
        ArgumentValueError,
        ("1 of 2 optimizers", "all of them or to none"),
    ),
    (None, lambda m: [{**c, "nam": "a"} for c in named(m)], ArgumentValueError, ("Did you mean 'name'?",)),
]


@pytest.mark.feature("O-02")
@pytest.mark.parametrize(("step", "configure", "error", "words"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said(step: Any, configure: Any, error: type[Exception], words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        fit(Pair(step, configure))
    for word in words:
        assert word in str(caught.value)


def test_an_override_that_forgets_the_closure_of_the_second() -> None:
    class Forgetful(Pair):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any) -> None:
            optimizer.step(closure=optimizer_closure if isinstance(optimizer, SGD) else None)

    with pytest.raises(MisconfigurationException, match="did not run the closure"):
        fit(Forgetful())


def test_stepping_in_the_step_is_still_an_error() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        module.optimizers()[0].step()
        return module.loss(batch)

    with pytest.raises(MisconfigurationException, match="each batch would step twice"):
        fit(Pair(step))


@pytest.mark.feature("O-08")
def test_lbfgs_beside_another_one() -> None:
    def configure(module: Any) -> Any:
        return [torch.optim.LBFGS(module.b.parameters(), lr=0.5, max_iter=3), SGD(module.a.parameters(), lr=0.1)]

    module = Pair(None, configure)
    fit(module, loader(4))
    reference = Pair()
    lbfgs, sgd = configure(reference)
    for batch in loader(4):
        sgd.zero_grad()
        lbfgs.zero_grad()
        reference.loss(batch).backward()
        kept = [p.grad.clone() for p in reference.a.parameters() if p.grad is not None]

        def closure(batch: Any = batch) -> Tensor:
            lbfgs.zero_grad()
            loss = reference.loss(batch)
            loss.backward()
            return loss

        lbfgs.step(closure)
        for param, gradient in zip(reference.a.parameters(), kept, strict=True):
            param.grad = gradient  # those of before L-BFGS moved
        sgd.step()
    torch.testing.assert_close(weights(module), weights(reference), rtol=0, atol=1e-6)


@pytest.mark.feature("O-15")
def test_an_own_backward_must_hand_on_what_it_is_given() -> None:
    class Own(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return {"loss": {"0": self.loss(batch), "1": self.loss(batch)}}

        def backward(self, loss: Any) -> None:
            loss.backward()

    module = Own(optimizers=lambda m: [torch.optim.SGD([p], lr=0.1) for p in m.parameters()])
    with pytest.raises(
        MisconfigurationException, match=r"Own\.backward takes no further arguments.*\*args, \*\*kwargs"
    ):
        fit(module, loader(4))

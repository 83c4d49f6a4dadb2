"""Contexts, conversions, and one owner of the optimizer step."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fulmen.engine.precision import (
    PRECISION_NAMES,
    DoublePrecision,
    HalfPrecision,
    MixedPrecision,
    Precision,
    resolve_precision,
)
from fulmen.engine.precision.closure import FunctionClosure
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException


class Run:
    """One weight per entry; the loss's gradient is `slope` for each."""

    def __init__(self, precision: Precision, optimizer: Callable[..., Any] = torch.optim.SGD, **kwargs: Any) -> None:
        self.precision = precision
        self.weight = nn.Parameter(torch.zeros(4))
        self.optimizer = optimizer([self.weight], lr=1.0, **kwargs)
        self.seen: list[Tensor] = []

    def closure(self, slope: float | None = 1.0, manual: bool = False) -> FunctionClosure:
        def compute() -> Tensor | None:
            self.optimizer.zero_grad()
            if slope is None:
                return None
            loss = (self.weight * slope).sum()
            self.precision.scale(loss).backward()
            return None if manual else loss

        def ready() -> None:
            assert self.weight.grad is not None
            self.seen.append(self.weight.grad.clone())

        return FunctionClosure(compute, ready, manual)

    def step(self, slope: float | None = 1.0, manual: bool = False) -> Any:
        return self.precision.step(self.optimizer, self.closure(slope, manual))


def scaler(**kwargs: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, **kwargs)


# ------------------------------------------------------------------------------------------------------------- plain
@pytest.mark.feature("H-02")
def test_full_precision_is_plain_and_does_nothing() -> None:
    precision = Precision()
    net, batch = nn.Linear(2, 1), [torch.rand(2)]
    assert precision.plain
    assert precision.precision == "32-true"
    assert precision.convert(net) is net
    assert precision.convert_input(batch) is batch
    assert precision.convert_output(batch) is batch
    loss = torch.rand(1)
    assert precision.scale(loss) is loss
    assert precision.state_dict() == {}
    with precision.context(), precision.init_context():
        assert torch.get_default_dtype() is torch.float32
    run = Run(precision)
    run.step(2.0)
    assert run.weight.tolist() == [-2.0] * 4
    assert precision.stepped


def test_full_precision_gives_the_optimizer_the_whole_closure() -> None:
    run = Run(Precision(), torch.optim.LBFGS, max_iter=3)
    run.step()
    assert len(run.seen) == 3  # LBFGS evaluates several times, and gradients are final each time


@pytest.mark.feature("H-02")
def test_subclasses_that_override_are_not_plain() -> None:
    class Named(Precision):
        precision = "mine"

    class Doubling(Precision):
        def scale(self, loss: Tensor) -> Tensor:
            return loss * 2

    assert Named().plain
    assert not Doubling().plain
    for other in (MixedPrecision("bf16-mixed", "cpu"), HalfPrecision(), DoublePrecision()):
        assert not other.plain


# ------------------------------------------------------------------------------------------------------------- mixed
@pytest.mark.feature("H-02")
@pytest.mark.parametrize(("name", "dtype"), [("16-mixed", torch.float16), ("bf16-mixed", torch.bfloat16)])
def test_autocast(name: str, dtype: torch.dtype) -> None:
    precision = MixedPrecision(name, "cpu")
    net = nn.Linear(3, 3)
    with precision.context():
        assert net(torch.rand(2, 3)).dtype is dtype
        with precision.context(), torch.autocast("cpu", enabled=False):
            assert net(torch.rand(2, 3)).dtype is torch.float32
        assert net(torch.rand(2, 3)).dtype is dtype
    assert net(torch.rand(2, 3)).dtype is torch.float32
    assert net.weight.dtype is torch.float32


@pytest.mark.feature("H-02")
def test_a_forward_under_no_grad_does_not_take_the_graph_away() -> None:
    precision = MixedPrecision("bf16-mixed", "cpu")
    net = nn.Linear(3, 3)
    with precision.context():
        with torch.no_grad():
            net(torch.rand(2, 3))
        net(torch.rand(2, 3)).sum().backward()
    assert net.weight.grad is not None


@pytest.mark.feature("H-02", "O-07")
def test_gradients_are_true_when_they_are_reported_final() -> None:
    run = Run(MixedPrecision("16-mixed", "cpu", scaler()))
    run.step(2.0)
    assert run.seen[0].tolist() == [2.0] * 4
    assert run.weight.tolist() == [-2.0] * 4


@pytest.mark.feature("H-02")
def test_an_overflowed_step_is_skipped_and_said() -> None:
    precision = MixedPrecision("16-mixed", "cpu", scaler())
    run = Run(precision)
    run.step(float("inf"))
    assert not precision.stepped
    assert run.weight.tolist() == [0.0] * 4
    assert len(run.seen) == 1  # hooks before the step come all the same
    assert precision.state_dict()["scale"] == 4.0
    run.step(1.0)
    assert precision.stepped
    assert run.weight.tolist() == [-1.0] * 4


@pytest.mark.feature("H-02")
def test_a_fused_optimizer_is_stepped_and_skipped_too() -> None:
    precision = MixedPrecision("16-mixed", "cpu", scaler())
    run = Run(precision, torch.optim.SGD, fused=True)
    run.step(2.0)
    assert precision.stepped
    assert run.seen[0].tolist() == [2.0] * 4  # clipping would work on true gradients
    assert run.weight.tolist() == [-2.0] * 4
    run.step(float("nan"))
    assert not precision.stepped
    assert run.weight.tolist() == [-2.0] * 4


@pytest.mark.feature("H-02")
def test_the_scale_grows_as_in_a_hand_written_loop() -> None:
    precision, theirs = MixedPrecision("16-mixed", "cpu", scaler()), scaler()
    run, other = Run(precision), Run(Precision())
    for slope in (1.0, 1.0, float("inf"), 1.0, 1.0, 1.0):
        run.step(slope)
        other.optimizer.zero_grad()
        theirs.scale((other.weight * slope).sum()).backward()
        theirs.step(other.optimizer)
        theirs.update()
        assert precision.state_dict() == theirs.state_dict()
        assert torch.equal(run.weight, other.weight)


@pytest.mark.feature("H-02")
def test_two_optimizers_of_one_batch_see_one_scale() -> None:
    precision = MixedPrecision("16-mixed", "cpu", scaler())
    first, second = Run(precision), Run(precision)
    # Both backwards before both steps: an update in between would unscale the second's gradients with another scale.
    for _ in range(2):
        closures = [first.closure(1.0), second.closure(1.0)]
        for closure in closures:
            closure.compute()
        for run, closure in zip((first, second), closures, strict=True):
            precision.step(run.optimizer, FunctionClosure(ready=closure.ready, manual=True))
    assert first.weight.tolist() == second.weight.tolist() == [-2.0] * 4
    assert precision.state_dict()["scale"] == 16.0  # grown once after two batches


def test_stepping_again_without_a_new_loss_works() -> None:
    run = Run(MixedPrecision("16-mixed", "cpu", scaler()))
    run.step()
    run.weight.grad = torch.full((4,), 8.0)  # by hand, with the scale in it
    run.precision.step(run.optimizer, FunctionClosure(ready=lambda: None, manual=True))
    assert run.weight.tolist() == [-2.0] * 4


@pytest.mark.feature("H-02", "O-07")
def test_unscaling_before_the_step_is_not_done_twice() -> None:
    run = Run(MixedPrecision("16-mixed", "cpu", scaler()))
    run.closure(2.0).compute()
    for _ in range(2):
        run.precision.unscale(run.optimizer)
    assert run.weight.grad is not None
    assert run.weight.grad.tolist() == [2.0] * 4
    run.precision.clip(run.optimizer, 0.5, "value")
    run.precision.step(run.optimizer, FunctionClosure(manual=True))
    assert run.weight.tolist() == [-0.5] * 4


@pytest.mark.feature("H-02")
def test_no_loss_means_no_step_unless_gradients_were_made_by_hand() -> None:
    precision = MixedPrecision("16-mixed", "cpu", scaler())
    run = Run(precision)
    assert run.step(None) is None
    assert not precision.stepped
    assert run.seen == []
    run.step(1.0, manual=True)
    assert precision.stepped
    assert run.weight.tolist() == [-1.0] * 4


@pytest.mark.feature("H-02")
def test_scaler_state_goes_on(tmp_path: Any) -> None:
    precision = MixedPrecision("16-mixed", "cpu", scaler())
    run = Run(precision)
    for slope in (1.0, float("inf"), 1.0):
        run.step(slope)
    torch.save(precision.state_dict(), tmp_path / "scaler.pt")
    fresh = MixedPrecision("16-mixed", "cpu", scaler())
    fresh.load_state_dict(torch.load(tmp_path / "scaler.pt", weights_only=True))
    assert fresh.state_dict() == precision.state_dict()
    fresh.load_state_dict({})  # from a run without a scaler
    assert fresh.state_dict() == precision.state_dict()
    assert MixedPrecision("bf16-mixed", "cpu").state_dict() == {}
    MixedPrecision("bf16-mixed", "cpu").load_state_dict(precision.state_dict())


def test_a_disabled_scaler_is_left_alone() -> None:
    precision = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", enabled=False))
    run = Run(precision)
    precision.unscale(run.optimizer)
    run.step(2.0)
    assert precision.stepped
    assert run.weight.tolist() == [-2.0] * 4


@pytest.mark.feature("H-02")
def test_lbfgs_with_a_scaler_is_refused_by_name() -> None:
    run = Run(MixedPrecision("16-mixed", "cpu"), torch.optim.LBFGS)
    with pytest.raises(MisconfigurationException, match=r"precision='16-mixed' and torch\.optim\.LBFGS"):
        run.step()
    Run(MixedPrecision("bf16-mixed", "cpu"), torch.optim.LBFGS).step()


@pytest.mark.feature("H-02")
def test_training_in_real_float16_on_the_cpu() -> None:
    torch.manual_seed(0)
    precision = resolve_precision("16-mixed", "cpu")
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    x = torch.rand(64, 4)
    y = x.sum(1, keepdim=True)
    losses = []

    def compute() -> Tensor:
        optimizer.zero_grad()
        with precision.context():
            loss = nn.functional.mse_loss(net(x), y)
        precision.scale(loss).backward()
        losses.append(loss.item())
        return loss

    for _ in range(60):
        precision.step(optimizer, FunctionClosure(compute))
    assert losses[-1] < 0.1 * losses[0]


# -------------------------------------------------------------------------------------------------------- true formats
@pytest.mark.feature("H-02")
@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (HalfPrecision(), torch.float16),
        (HalfPrecision("bf16-true"), torch.bfloat16),
        (DoublePrecision(), torch.float64),
    ],
)
def test_true_formats_convert_everything(precision: Precision, dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net.register_buffer("counter", torch.zeros((), dtype=torch.int64))
    assert precision.convert(net) is net
    assert net[0].weight.dtype is dtype
    assert net[1].running_mean.dtype is dtype
    assert net.counter.dtype is torch.int64
    batch = precision.convert_input({"x": torch.rand(2), "i": torch.arange(2), "n": ["text"]})
    assert batch["x"].dtype is dtype
    assert batch["i"].dtype is torch.int64
    assert precision.convert_output([batch["x"]])[0].dtype is torch.float32
    for context in (precision.context, precision.init_context):
        with pytest.raises(KeyError), context():
            assert torch.rand(1).dtype is dtype
            raise KeyError
        assert torch.get_default_dtype() is torch.float32
    with precision.init_context():
        assert nn.Linear(1, 1).weight.dtype is dtype


# ----------------------------------------------------------------------------------------------------------- arguments
@pytest.mark.feature("H-02")
@pytest.mark.parametrize(
    ("value", "kind", "name"),
    [
        (None, Precision, "32-true"),
        ("32-true", Precision, "32-true"),
        (32, Precision, "32-true"),
        ("32", Precision, "32-true"),
        (64, DoublePrecision, "64-true"),
        ("64-true", DoublePrecision, "64-true"),
        ("16-mixed", MixedPrecision, "16-mixed"),
        ("BF16-mixed", MixedPrecision, "bf16-mixed"),
        ("16-true", HalfPrecision, "16-true"),
        ("bf16-true", HalfPrecision, "bf16-true"),
        ("auto", Precision, "32-true"),
    ],
)
def test_names(value: Any, kind: type, name: str) -> None:
    precision = resolve_precision(value, "cpu")
    assert type(precision) is kind
    assert precision.precision == name
    assert name in PRECISION_NAMES
    assert resolve_precision(precision, "cpu") is precision


@pytest.mark.feature("H-02")
@pytest.mark.parametrize(("old", "new"), [(16, "16-mixed"), ("16", "16-mixed"), ("bf16", "bf16-mixed")])
def test_old_spellings_are_mapped_with_a_warning(old: Any, new: str) -> None:
    with pytest.warns(FutureWarning, match=f"old spelling; write '{new}'"):
        assert resolve_precision(old, "cpu").precision == new


@pytest.mark.feature("H-02")
def test_what_16_mixed_on_the_cpu_is_depends_on_the_policy(caplog: pytest.LogCaptureFixture) -> None:
    right = resolve_precision("16-mixed", "cpu", cpu_fp16_is_fp16=True)
    assert isinstance(right, MixedPrecision)
    assert right.dtype is torch.float16
    assert right.scaler is not None
    assert caplog.text == ""
    other = resolve_precision("16-mixed", "cpu", cpu_fp16_is_fp16=False)
    assert isinstance(other, MixedPrecision)
    assert other.precision == "bf16-mixed"
    assert other.scaler is None
    assert "taken as 'bf16-mixed'" in caplog.text


@pytest.mark.feature("H-02")
def test_auto_looks_at_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert resolve_precision("auto", "cuda").precision == "bf16-mixed"


@pytest.mark.feature("H-02")
@pytest.mark.parametrize(
    ("value", "device", "error", "words"),
    [
        ("32-mixed", "cpu", ArgumentValueError, r"'32-mixed' is not possible.*'32-true'.*'16-mixed'"),
        ("fp16", "cpu", ArgumentValueError, r"'fp16'.*'16-mixed' \(autocast\) or '16-true'"),
        ("O2", "cpu", ArgumentValueError, "apex is gone.*'16-mixed'"),
        ("bf16-mixd", "cpu", ArgumentValueError, "'bf16-mixd' is not known.*Did you mean 'bf16-mixed'"),
        (8, "cpu", ArgumentValueError, "precision=8 is not known; give one of 32-true"),
        ("", "cpu", ArgumentValueError, "precision='' is not known"),
        (True, "cpu", ArgumentTypeError, "precision=True.*not a bool"),
        (1.5, "cpu", ArgumentTypeError, "precision=1.5.*not a float"),
        (torch.float16, "cpu", ArgumentTypeError, "torch.float16.*give a name"),
        (MixedPrecision, "cpu", ArgumentTypeError, "precision object"),
        ("64-true", "mps", ArgumentValueError, "MPS devices have no float64"),
    ],
)
def test_bad_precisions(value: Any, device: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve_precision(value, device)


@pytest.mark.feature("H-02")
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: MixedPrecision("32-true", "cpu"), ArgumentValueError, "'32-true'.*'16-mixed' or 'bf16-mixed'"),
        (lambda: MixedPrecision("16-mixed", 0), ArgumentTypeError, "device=0"),  # type: ignore[arg-type]
        (lambda: MixedPrecision("bf16-mixed", "cpu", scaler()), ArgumentValueError, "needs no loss scaling"),
        (lambda: MixedPrecision("16-mixed", "cpu", 128.0), ArgumentTypeError, "128.0.*GradScaler"),
        (lambda: HalfPrecision("16-mixed"), ArgumentValueError, "'16-true' or 'bf16-true'"),
    ],
)
def test_bad_constructor_arguments(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_they_are_picklable() -> None:
    for precision in (Precision(), MixedPrecision("16-mixed", "cpu"), HalfPrecision(), DoublePrecision()):
        assert pickle.loads(pickle.dumps(precision)).precision == precision.precision
        assert repr(precision) == f"{type(precision).__name__}({precision.precision!r})"

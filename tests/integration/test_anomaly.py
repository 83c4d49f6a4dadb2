"""`detect_anomaly` names layer, hook, step and batch of the first NaN; dtype errors name layer and dtypes."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.errors import FulmenWarning
from tests.integration.toys import QUIET, Manual, Toy, fit, loader, number_format, quiet, rows

pytestmark = pytest.mark.filterwarnings("ignore:Error detected in:UserWarning", "ignore:Anomaly Detection:UserWarning")


class Root(nn.Module):
    """Finite forward, NaN in backward where the input is 0."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 0).sqrt() * 0


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.abs().neg().sub(1).log()


class Divide(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / (x * 0 + 0) if x.requires_grad else x


class Deep(Toy):
    """`bad` sits inside of a block and acts from batch `start` on."""

    def __init__(self, bad: nn.Module, start: int = 0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"bad": bad, "ok": nn.Identity()})["ok"])
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), bad), nn.Linear(4, 1))
        self.start = start

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        head = self.block if batch_idx >= self.start else self.net
        return nn.functional.mse_loss(head(self.body(x)), y)


def notes(call: Callable[[], Any], kind: Any = (RuntimeError, ValueError)) -> str:
    """The message and the notes of what `call` raises."""
    with pytest.raises(kind) as caught:
        call()
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


@pytest.mark.feature("O-10")
def test_a_nan_of_forward_names_layer_hook_step_and_batch() -> None:
    text = notes(lambda: fit(Deep(Log(), start=3), detect_anomaly=True))
    assert "returned nan values" in text  # torch's own error
    assert "detect_anomaly: global step 3, batch 3 of epoch 0." in text
    line = "The first NaN of forward came out of layer 'body.1.x' (Log)"
    assert line.replace("body.1.x", "block.1.1") + " in `training_step`: its inputs were finite." in text
    assert "While Fulmen ran" in text


@pytest.mark.feature("O-10")
def test_a_nan_of_backward_names_function_and_layer() -> None:
    text = notes(lambda: fit(Deep(Root(), start=2), detect_anomaly=True, accumulate_grad_batches=2))
    assert "global step 1, batch 2 of epoch 0" in text
    assert "The first NaN of backward came out of `SqrtBackward0` of layer 'block.1.1' (Root)" in text
    assert "The first NaN of forward" not in text


@pytest.mark.feature("O-10")
def test_a_nan_made_outside_of_layers_is_said_to_be_so() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Tensor:
        return (module.net(batch[0] * 1.0) * 0).sqrt().mul(0).mean()

    text = notes(lambda: fit(Toy(step), detect_anomaly=True))
    assert "The first NaN of backward came out of `SqrtBackward0`, in code of `Toy` outside of its layers." in text
    assert "layer 'net'" not in text


@pytest.mark.feature("O-10")
def test_a_function_before_a_layer_is_not_put_on_it() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last((self.first(x) * 0).sqrt() * 0)

    module = Toy(lambda module, batch, _: module.block(batch[0]).mean())
    module.block = Block()
    text = notes(lambda: fit(module, detect_anomaly=True))
    assert "came out of `SqrtBackward0` of layer 'block' (Block)" in text


@pytest.mark.feature("O-10")
def test_manual_optimization_activation_checkpointing_and_inner_infinities() -> None:
    def manual(module: Any, batch: Any, batch_idx: int) -> None:
        optimizer = module.optimizers()
        optimizer.zero_grad()
        module.manual_backward(module.bad(module.net(batch[0])).square().mean())
        optimizer.step()

    module: Toy = Manual(manual)
    module.bad = Log()
    assert "came out of layer 'bad' (Log) in `training_step`" in notes(lambda: fit(module, detect_anomaly=True))

    def recomputed(module: Any, batch: Any, batch_idx: int) -> Tensor:
        out: Tensor = checkpoint(module.bad, module.net(batch[0]), use_reentrant=False)
        return out.mean()

    module = Toy(recomputed)
    module.bad = Root()
    text = notes(lambda: fit(module, detect_anomaly=True))
    assert "`SqrtBackward0`" in text

    def infinite(module: Any, batch: Any, batch_idx: int) -> Tensor:
        big = module.big(module.net(batch[0]))
        return (big - big).mean()

    class Big(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(x * 0 + 1e4)

    module = Toy(infinite)
    module.big = Big()
    text = notes(lambda: fit(module, detect_anomaly=True))
    assert "The first Inf of forward came out of layer 'big' (Big) in `training_step`" in text


@pytest.mark.feature("O-10")
def test_a_nan_that_backward_does_not_meet_is_a_warning() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Tensor:
        out: Tensor = module.net(batch[0])
        return out.mean() + module.bad(batch[0]).mean() if batch_idx in (2, 5) else out.mean()

    module = Toy(step)
    module.bad = Log()
    with pytest.warns(FulmenWarning) as caught:
        fit(module, detect_anomaly=True)
    text = [str(w.message) for w in caught if "W610" in str(w.message)]
    assert len(text) == 1
    assert "layer 'bad' (Log) in `training_step`: its inputs were finite. That was in batch 2" in text[0]


@pytest.mark.feature("O-10")
def test_spoilt_weights_and_spoilt_batches_are_told_apart() -> None:
    module = Toy()
    with torch.no_grad():
        module.net.weight[0, 0] = float("nan")
    text = notes(lambda: fit(module, detect_anomaly=True))
    assert "layer 'net' (Linear) in `training_step`: its 'weight' holds NaN, so that an earlier step spoilt it" in text
    assert "The batch itself" not in text


@pytest.mark.feature("O-10")
def test_a_nan_label_is_named_with_loader_and_batch_and_files_stay(tmp_path: Path) -> None:
    data = rows()
    data.tensors[1][7, 0] = float("nan")
    trainer = quiet(
        detect_anomaly=True,
        default_root_dir=tmp_path,
        logger=True,
        log_every_n_steps=1,
        callbacks=L.callbacks.ModelCheckpoint(every_n_train_steps=1, save_top_k=-1, dirpath=tmp_path / "kept"),
        enable_checkpointing=True,
    )
    module = Toy(lambda module, batch, _: (loss := module.loss(batch), module.log("loss", loss))[0])
    text = notes(lambda: trainer.fit(module, DataLoader(data, batch_size=2)))
    assert "The batch itself is bad: batch[1] (1 NaN in 2 entries), from train_dataloader." in text
    assert "batch 3 of epoch 0" in text
    files = sorted((tmp_path / "kept").glob("*.ckpt"))
    assert len(files) == 3
    resumed = Toy()
    again = quiet(default_root_dir=tmp_path / "again")
    with pytest.warns(FulmenWarning, match="states of callbacks"):
        again.fit(resumed, loader(), ckpt_path=files[-1])
    assert again.global_step == 6
    assert torch.isfinite(resumed.net.weight).all()


@pytest.mark.feature("O-10")
def test_hooks_are_there_only_while_the_flag_is_on() -> None:
    seen: list[tuple[int, bool]] = []

    class Looks(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            hooks = len(torch_module._global_forward_hooks) + len(torch_module._global_forward_pre_hooks)
            seen.append((hooks, torch.is_anomaly_enabled()))
            return super().training_step(batch, batch_idx)

    fit(Looks(), detect_anomaly=False)
    assert set(seen) == {(0, False)}
    seen.clear()
    fit(Looks(), detect_anomaly=True)
    assert set(seen) == {(2, True)}
    notes(lambda: fit(Deep(Log()), detect_anomaly=True))
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_forward_pre_hooks
    assert not torch.is_anomaly_enabled()


@pytest.mark.feature("O-10")
def test_the_numbers_are_the_same_with_the_flag() -> None:
    plain, watched = Toy(), Toy()
    fit(plain, max_epochs=2)
    fit(watched, max_epochs=2, detect_anomaly=True)
    assert torch.equal(plain.net.weight, watched.net.weight)


@pytest.fixture
def torch_switches() -> Iterator[None]:
    """Put torch's switches back."""
    before = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    benchmark, workspace = torch.backends.cudnn.benchmark, os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    torch.backends.cudnn.benchmark = benchmark
    if workspace is None:
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.feature("O-10")
@pytest.mark.usefixtures("torch_switches")
@pytest.mark.parametrize(
    ("deterministic", "benchmark", "expected"),
    [
        (True, None, (True, False, False)),
        ("warn", None, (True, True, False)),
        (False, None, (False, False, True)),
        (None, None, (False, False, True)),
        (None, False, (False, False, False)),
    ],
)
def test_deterministic_and_benchmark(deterministic: Any, benchmark: Any, expected: tuple[bool, bool, bool]) -> None:
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = True
    L.Trainer(**QUIET, max_epochs=1, deterministic=deterministic, benchmark=benchmark)
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    assert (enabled, warn_only, torch.backends.cudnn.benchmark) == expected
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) == bool(deterministic)


@pytest.mark.feature("O-10")
@pytest.mark.usefixtures("torch_switches")
def test_deterministic_refuses_what_has_no_deterministic_way() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Tensor:
        spread = torch.zeros(4).put_(torch.tensor([0]), module.net.weight[0, :1], accumulate=False)
        return spread.sum()

    text = notes(lambda: fit(Toy(step), deterministic=True))
    assert "does not have a deterministic implementation" in text
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(Toy(step), deterministic="warn")
    assert any("does not have a deterministic implementation" in str(w.message) for w in caught)


@pytest.mark.feature("O-10")
@pytest.mark.parametrize("inference_mode", [True, False])
def test_inference_mode_decides_what_evaluation_runs_under(inference_mode: bool) -> None:
    seen: set[tuple[bool, bool]] = set()

    class Looks(Toy):
        def look(self, *args: Any) -> None:
            seen.add((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))

        validation_step = test_step = predict_step = look  # type: ignore[assignment]

    module = Looks()
    trainer = quiet(inference_mode=inference_mode)
    trainer.fit(module, loader(), loader())
    trainer.validate(module, loader(), verbose=False)
    trainer.test(module, loader(), verbose=False)
    trainer.predict(module, loader(), return_predictions=False)
    assert seen == {(inference_mode, False)}


# --- dtypes ----------------------------------------------------------------------------------------------------------


class Typed(Toy):
    def __init__(self, layer: nn.Module, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.encoder = nn.Sequential(layer)
        self.make = make

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        out = self.encoder(self.make(batch[0]))
        return (out[0] if isinstance(out, tuple) else out).mean()


LAYERS: list[tuple[nn.Module, Callable[[Tensor], Any], str, str]] = [
    (nn.Linear(4, 1), Tensor.double, "32-true", "(Linear) has weights of float32 and got float64"),
    (nn.Linear(4, 1), Tensor.long, "32-true", "(Linear) has weights of float32 and got int64"),
    (nn.Conv1d(1, 1, 1), lambda x: x.double().unsqueeze(1), "32-true", "(Conv1d) has weights of float32 and got"),
    (nn.LSTM(4, 2), Tensor.double, "32-true", "(LSTM) has weights of float32 and got float64"),
    (nn.LayerNorm(4), Tensor.double, "32-true", "(LayerNorm) has weights of float32 and got float64"),
    (nn.Linear(4, 1), Tensor.float, "64-true", "(Linear) has weights of float64 and got float32"),
    (nn.Linear(4, 1), Tensor.float, "bf16-true", "(Linear) has weights of bfloat16 and got float32"),
    (nn.Linear(4, 1), Tensor.long, "bf16-mixed", "(Linear) has weights of float32 and got int64"),
    (nn.Embedding(9, 1), Tensor.float, "32-true", "(Embedding) got float32; it looks up rows by number"),
]


@pytest.mark.feature("H-02")
@pytest.mark.parametrize(("layer", "make", "precision", "words"), LAYERS)
def test_a_layer_that_met_another_dtype_is_named(layer: nn.Module, make: Any, precision: str, words: str) -> None:
    module = Typed(copy.deepcopy(layer), make)
    text = notes(lambda: fit(module, **number_format(precision)))
    assert f"Layer 'encoder.0' {words}" in text
    if "weights" in words:
        assert f"precision='{precision}'" in text
        assert "Bring the input to the weights' dtype" in text
    assert ("NumPy makes float64 arrays" in text) == ("got float64" in text or "got float32 and float64" in text)


@pytest.mark.feature("H-02")
def test_evaluation_and_losses_get_the_note_too() -> None:
    class InValidation(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.net(batch[0].double())

    text = notes(lambda: quiet().validate(InValidation(), loader()))
    assert "Layer 'net' (Linear) has weights of float32 and got float64" in text

    data = TensorDataset(torch.randn(4, 4), torch.randn(4, 1, dtype=torch.float64))
    module = Toy(
        lambda module, batch, _: nn.functional.binary_cross_entropy(module.net(batch[0]).sigmoid(), batch[1].sigmoid())
    )
    text = notes(lambda: fit(module, DataLoader(data, batch_size=2)))
    assert "No layer failed, so that a loss or other code of Toy mixes dtypes" in text
    assert "batch[0] is float32, batch[1] is float64; the weights are float32, with precision='32-true'" in text


@pytest.mark.feature("H-02")
def test_errors_about_other_things_get_no_note_about_dtypes() -> None:
    text = notes(lambda: fit(Typed(nn.Linear(3, 1), Tensor.double)))
    assert "shapes" not in text or "has weights of" not in text
    text = notes(lambda: fit(Typed(nn.Linear(3, 1), Tensor.float)))
    assert "has weights of" not in text

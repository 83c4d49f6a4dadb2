"""Training in every number format: it learns, types are right, the loss scaler's state survives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fulmen.callbacks import ModelCheckpoint
from fulmen.engine.precision import MixedPrecision
from fulmen.engine.runtime.policy import Policy
from tests.integration.toys import Toy, fit, loader, number_format, quiet, weights

HALF, BF, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64

# precision, dtype of weights, of the batch in the step, of the layer's output, of a new tensor in the step
FORMATS = [
    ("32-true", SINGLE, SINGLE, SINGLE, SINGLE),
    ("64-true", DOUBLE, DOUBLE, DOUBLE, DOUBLE),
    ("16-mixed", SINGLE, SINGLE, HALF, SINGLE),
    ("bf16-mixed", SINGLE, SINGLE, BF, SINGLE),
    ("bf16-true", BF, BF, BF, BF),
    ("16-true", HALF, HALF, HALF, HALF),
]


class Typed(Toy):
    """Keeps the types that its steps see."""

    def __init__(self) -> None:
        super().__init__(lr=0.02)
        self.types: dict[str, tuple[torch.dtype, ...]] = {}

    def look(self, stage: str, batch: Any) -> None:
        types = (self.net.weight.dtype, batch[0].dtype, self.net(batch[0]).dtype, torch.ones(1).dtype)
        assert self.types.setdefault(stage, types) == types

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.look("train", batch)
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        self.look("val", batch)
        self.log("val_loss", self.loss(batch))

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        self.look("predict", batch)
        return self.net(batch[0])


@pytest.mark.feature("O-01", "T-02")
@pytest.mark.parametrize(("precision", "weight", "batch", "output", "new"), FORMATS)
def test_every_format_trains_with_its_types(precision: str, weight: Any, batch: Any, output: Any, new: Any) -> None:
    module = Typed()
    data = loader(24, 8)
    first = module.loss(next(iter(data))).item()
    trainer = fit(module, data, loader(8, 8), max_epochs=5, **number_format(precision))
    assert trainer.callback_metrics["val_loss"].item() < first / 3
    predictions = trainer.predict(module, loader(8, 8))
    assert module.types == dict.fromkeys(("train", "val", "predict"), (weight, batch, output, new))
    assert module.dtype == weight
    assert trainer.precision == precision
    assert torch.get_default_dtype() == SINGLE
    assert trainer.global_step == 15
    assert predictions is not None
    assert predictions[0].dtype == output  # as the step returned it


class Infinite(Toy):
    """Gradients that overflow in some batches."""

    def __init__(self, at: tuple[int, ...]) -> None:
        super().__init__()
        self.at = at

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        return loss * float("inf") if batch_idx in self.at else loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def scaled(scale: float = 8.0) -> dict[str, Any]:
    return {"plugins": MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))}


@pytest.mark.feature("O-01", "O-03")
@pytest.mark.parametrize(
    ("policy", "steps", "rate"),
    [(Policy.right, 4, 0.1 * 0.5**4), (Policy.lightning.replace(cpu_fp16_is_fp16=True), 6, 0.1 * 0.5**6)],
)
def test_an_overflow_skips_the_update(policy: Policy, steps: int, rate: float) -> None:
    module = Infinite((1, 3))
    trainer = fit(module, policy=policy, **scaled())
    assert torch.isfinite(weights(module)).all()
    assert not torch.equal(weights(module), weights(Toy()))
    assert trainer.global_step == steps
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(rate)
    trainer.precision_plugin.state_dict()
    assert trainer.scaler.get_scale() == 2.0  # halved twice


@pytest.mark.feature("O-01", "O-05")
def test_an_overflow_inside_of_a_window_skips_its_update() -> None:
    module = Infinite((2,))
    trainer = fit(module, accumulate_grad_batches=2, **scaled())
    assert trainer.global_step == 2
    assert torch.isfinite(weights(module)).all()


@pytest.mark.feature("O-01", "C-02")
def test_the_scalers_state_is_saved_and_comes_back(tmp_path: Path) -> None:
    callback = ModelCheckpoint(dirpath=tmp_path, save_top_k=-1)
    arguments = {"max_epochs": 2, "enable_checkpointing": True}
    whole = Infinite((1,))
    trainer = fit(whole, callbacks=callback, **arguments, **scaled(64.0))
    files = sorted(tmp_path.glob("*.ckpt"))
    stored = torch.load(files[0], weights_only=True)["MixedPrecision"]
    assert stored["scale"] == 32.0
    resumed = Infinite((1,))
    second = quiet(callbacks=ModelCheckpoint(dirpath=tmp_path, save_top_k=-1), **arguments, **scaled(1024.0))
    second.fit(resumed, loader(), ckpt_path=files[0])
    assert second.precision_plugin.state_dict() == trainer.precision_plugin.state_dict()
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.feature("O-01")
def test_init_module_makes_weights_in_the_format() -> None:
    trainer = quiet(precision="bf16-true")
    with trainer.init_module():
        module = torch.nn.Linear(2, 2)
    assert module.weight.dtype == BF
    assert torch.get_default_dtype() == SINGLE


@pytest.mark.feature("O-01")
def test_an_exception_gives_the_default_dtype_back() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        assert torch.get_default_dtype() == DOUBLE
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fit(Toy(step), precision="64-true")
    assert torch.get_default_dtype() == SINGLE


@pytest.mark.feature("C-02", "H-02")
def test_a_window_that_goes_on_without_a_loss_steps_with_the_scale_of_the_file() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx == 1 else module.loss(batch)

    class Saves(Toy):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 0:
                self.trainer.save_checkpoint("a.ckpt")

    arguments: dict[str, Any] = {"precision": "16-mixed", "accumulate_grad_batches": 2, "gradient_clip_val": 1.0}
    whole, parts = Saves(step), Toy(step)
    fit(whole, loader(8), **arguments)
    quiet(**arguments).fit(parts, loader(8), ckpt_path="a.ckpt")
    assert torch.equal(parts.net.weight, whole.net.weight)

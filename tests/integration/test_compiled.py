"""Compiled modules in a run: hooks, logged values, keys of checkpoints; compiled as a whole, in place or in parts."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fulmen as L
from tests.integration.toys import Toy, loader, quiet

pytestmark = pytest.mark.feature("M-12")


class Frames:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.compiled = 0
        self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.compiled += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


@pytest.fixture(autouse=True)
def _own_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        # The compiler reads `.grad` of tensors that are no leaves, and warns of that itself.
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        yield
    torch._dynamo.reset()


class Model(Toy):
    """Logs in its steps, and has hooks that count."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(self(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("epoch", self.current_epoch, reduce_fx="max")
        return loss

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0])

    def on_train_batch_end(self, *args: Any) -> None:
        self.hooks.append("batch")

    def on_train_epoch_end(self) -> None:
        self.hooks.append("epoch")


class Manual(Model):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.manual_backward(loss)
        optimizer.step()


class InConfigureModel(Model):
    def configure_model(self) -> None:
        if not isinstance(self.net, torch._dynamo.OptimizedModule):  # the hook runs before each call
            self.net = torch.compile(self.net, backend="eager")


class InPlace(Model):
    def configure_model(self) -> None:
        self.compile(backend="eager")


def run(module: Any, original: Model) -> tuple[Any, ...]:
    trainer = quiet(max_epochs=2)
    trainer.fit(module, loader(), loader())
    metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
    found = trainer.test(module, loader(), verbose=False)
    predicted = torch.cat(trainer.predict(module, loader()))
    weights = [p.detach().clone() for p in original.parameters()]
    return metrics, found, predicted.tolist(), original.hooks, trainer.global_step, weights


def assert_same_run(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    for left, right in zip(first[:-1], second[:-1], strict=True):
        assert left == right
    assert all(map(torch.equal, first[-1], second[-1]))


@pytest.mark.parametrize("kind", [Model, Manual])
def test_a_compiled_module_given_to_the_trainer(kind: type[Model]) -> None:
    frames, module = Frames(), kind()
    compiled: Any = torch.compile(module, backend=frames)
    plain = kind()
    assert_same_run(run(compiled, module), run(plain, plain))
    # The steps themselves ran compiled: 12 of training, 12 of validation, 6 of test, 6 of prediction.
    assert frames.runs >= 12 + 12 + 6 + 6
    assert frames.compiled < frames.runs


@pytest.mark.parametrize("kind", [InConfigureModel, InPlace])
def test_compiled_inside_of_configure_model(kind: type[Model]) -> None:
    module, plain = kind(), Model()
    assert_same_run(run(module, module), run(plain, plain))


def test_the_plain_module_afterwards_is_not_compiled() -> None:
    frames, module = Frames(), Model()
    trainer = quiet(max_steps=2)
    trainer.fit(torch.compile(module, backend=frames), loader())
    runs = frames.runs
    assert runs
    quiet(max_steps=2).fit(module, loader())
    assert frames.runs == runs
    trainer.validate(dataloaders=loader(), verbose=False)  # without a module: that of the last call
    assert frames.runs == runs


def test_the_last_module_stays_compiled_in_calls_without_one() -> None:
    frames = Frames()
    trainer = quiet(max_steps=2)
    trainer.fit(torch.compile(Model(), backend=frames), loader())
    runs = frames.runs
    trainer.validate(dataloaders=loader(), verbose=False)
    assert frames.runs > runs


def test_a_step_that_the_user_compiles_logs_every_batch() -> None:
    """Traced, `self.log` would be replayed with one batch's bookkeeping: the mean would be one batch's value."""

    class Own(Model):
        training_step = torch.compile(Model.training_step, backend="eager")

    module, plain = Own(), Model()
    assert_same_run(run(module, module), run(plain, plain))


@pytest.mark.parametrize("writes", ["plain", "whole", "part", "in place"])
def test_checkpoints_have_plain_keys_and_fit_both_ways(tmp_path: Path, writes: str) -> None:
    kinds: dict[str, Any] = {"part": InConfigureModel, "in place": InPlace}
    module = kinds.get(writes, Model)()
    trainer = quiet(max_epochs=1)
    trainer.fit(torch.compile(module, backend="eager") if writes == "whole" else module, loader())
    path = tmp_path / "a.ckpt"
    trainer.save_checkpoint(path)
    state = torch.load(path, weights_only=True)["state_dict"]
    assert list(state) == ["net.weight", "net.bias"]
    weight = dict(module.named_parameters())["net._orig_mod.weight" if writes == "part" else "net.weight"]
    assert torch.equal(state["net.weight"], weight)
    for reader in (Model, InConfigureModel, InPlace):
        loaded = reader.load_from_checkpoint(path)
        (found, _) = loaded.parameters()
        assert torch.equal(found, weight)
        again = quiet(max_epochs=2)
        again.fit(reader(), loader(), ckpt_path=path)
        assert again.global_step == 12
    again = quiet(max_epochs=2)
    again.fit(torch.compile(Model(), backend="eager"), loader(), ckpt_path=path)
    assert again.global_step == 12


@pytest.mark.parametrize(("writer", "reader"), [(InConfigureModel, Model), (Model, InConfigureModel)])
def test_gradients_of_an_open_window_come_back(tmp_path: Path, writer: Any, reader: Any) -> None:
    class Saves(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 1:
                trainer.save_checkpoint(tmp_path / "a.ckpt")

    whole, rest = writer(), reader()
    quiet(max_epochs=1, accumulate_grad_batches=3, callbacks=Saves()).fit(whole, loader())
    quiet(max_epochs=1, accumulate_grad_batches=3).fit(rest, loader(), ckpt_path=tmp_path / "a.ckpt")
    assert all(map(torch.equal, whole.parameters(), rest.parameters()))


def test_checkpoints_with_compiled_keys_of_others_are_read(tmp_path: Path) -> None:
    trainer = quiet(max_epochs=1)
    trainer.fit(Model(), loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    checkpoint = torch.load(tmp_path / "a.ckpt", weights_only=True)
    checkpoint["state_dict"] = {f"_orig_mod.{k}": v for k, v in checkpoint["state_dict"].items()}
    torch.save(checkpoint, tmp_path / "b.ckpt")
    loaded = Model.load_from_checkpoint(tmp_path / "b.ckpt")
    assert torch.equal(loaded.net.weight, checkpoint["state_dict"]["_orig_mod.net.weight"])
    again = quiet(max_epochs=2)
    again.fit(Model(), loader(), ckpt_path=tmp_path / "b.ckpt")
    assert again.global_step == 12


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
@pytest.mark.parametrize("how", ["whole", "in place"])
def test_copies_leave_the_compiler_behind(again: Any, how: str) -> None:
    module: Any = Model() if how == "whole" else InPlace()
    trainer = quiet(max_steps=2)
    trainer.fit(torch.compile(module, backend="eager") if how == "whole" else module, loader())
    other = again(module)
    assert torch.equal(other.net.weight, module.net.weight)
    assert other.dynamo_ctx is None and other._compiled_call_impl is None
    quiet(max_steps=2).fit(other, loader())


def test_what_is_no_lightning_module() -> None:
    compiled: Any = torch.compile(torch.nn.Linear(4, 1), backend="eager")
    with pytest.raises(TypeError, match="must be a LightningModule, but OptimizedModule was given"):
        L.Trainer(logger=False, max_epochs=1).fit(compiled, loader())

"""What a subclass overrides under Lightning's names has its effect; each default does what its verb does."""

from __future__ import annotations

import copy
import pickle
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from fulmen.engine.precision import MixedPrecision, Precision
from fulmen.engine.precision.closure import FunctionClosure
from fulmen.engine.precision.face import as_step_closure
from fulmen.strategies import SingleDeviceStrategy, StrategyRegistry, overridden_hooks, route_overrides

pytestmark = pytest.mark.feature("H-03")


class Net(nn.Module):
    automatic_optimization = True

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.backwards = 0
        self.trainer = "the trainer"

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return (self.weight * batch).sum()

    def validation_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return torch.mm(torch.ones(1, 1), torch.ones(1, 1))

    test_step = predict_step = validation_step

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        self.backwards += 1
        loss.backward(*args, **kwargs)


class Run:
    """What the engine does with a strategy, in its order."""

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self.net = Net()
        strategy.connect(self.net)
        self.routed = route_overrides(strategy)
        strategy.setup_environment()
        strategy.setup_module(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0)
        self.optimizers = strategy.setup_optimizers([self.optimizer])
        self.ready = 0

    def step(self, batch: Tensor | None = None, manual: bool = False) -> Any:
        step = self.strategy.bind(self.net, "training_step")
        precision = self.strategy.precision_plugin

        def compute() -> Tensor | None:
            self.optimizer.zero_grad()
            with precision.context():
                loss = step(torch.ones(2) if batch is None else batch, 0)
            self.strategy.backward(precision.scale(loss), self.net)
            return loss

        def ready() -> None:
            self.ready += 1
            self.strategy.clip(self.optimizer, 0.5, "value")

        return self.strategy.step(self.optimizer, FunctionClosure(compute, ready, manual))


def test_nothing_overridden_routes_nothing() -> None:
    run = Run(SingleDeviceStrategy())
    assert run.routed == ()
    assert run.strategy.step == run.strategy.precision_plugin.step
    assert run.strategy.steps_plainly
    assert run.strategy.precision_plugin.plain
    assert overridden_hooks(run.strategy) == {}
    transfer = Mock()
    assert run.strategy.bind_transfer(transfer) is transfer
    run.step()
    assert run.net.weight.tolist() == [-0.5, -0.5]


@pytest.mark.parametrize("name", ["training_step", "validation_step", "test_step", "predict_step"])
def test_steps(name: str) -> None:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(SingleDeviceStrategy, name)(self, *args, **kwargs) + 10

    mine = type("Mine", (SingleDeviceStrategy,), {name: step})
    run = Run(mine())
    bound = run.strategy.bind(run.net, name)
    assert bound(torch.ones(2), 0).item() == getattr(run.net, name)(torch.ones(2), 0).item() + 10
    others = {"training_step", "validation_step", "test_step", "predict_step"} - {name}
    assert all(run.strategy.bind(run.net, other) == getattr(run.net, other) for other in others)


def test_a_step_patched_on_the_instance() -> None:
    strategy: Any = SingleDeviceStrategy()
    strategy.training_step = Mock(return_value=7)
    run = Run(strategy)
    assert run.strategy.bind(run.net, "training_step")(torch.ones(2), 0) == 7


def test_old_steps_run_in_the_precisions_context() -> None:
    strategy = SingleDeviceStrategy(precision_plugin=MixedPrecision("bf16-mixed", "cpu"))
    Run(strategy)
    for step in (strategy.validation_step, strategy.test_step, strategy.predict_step):
        assert step(torch.ones(2), 0).dtype is torch.bfloat16


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_optimizer_step_through_super(precision: str) -> None:
    calls = []

    class Mine(SingleDeviceStrategy):
        def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **kwargs: Any) -> Any:
            calls.append((optimizer, model, kwargs))
            return super().optimizer_step(optimizer, closure, model, **kwargs)

    plugin = Precision() if precision == "32-true" else MixedPrecision("16-mixed", "cpu")
    run = Run(Mine(precision_plugin=plugin))
    assert run.routed == ("step",)
    assert not run.strategy.steps_plainly
    run.step()
    assert calls == [(run.optimizer, None, {})]
    assert run.net.weight.tolist() == [-0.5, -0.5]
    assert run.ready == 1


def test_optimizer_step_around_the_closure() -> None:
    class Mine(SingleDeviceStrategy):
        def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **kwargs: Any) -> Any:
            def twice() -> Any:
                self.losses = [closure(), closure()]
                return self.losses[-1]

            return super().optimizer_step(optimizer, twice, model, **kwargs)

    run = Run(Mine())
    run.step()
    assert len(run.strategy.losses) == 2
    assert run.ready == 1  # hooks and clipping come once, after the user's own closure
    assert run.net.weight.tolist() == [-0.5, -0.5]


def test_optimizer_step_without_super() -> None:
    class Mine(SingleDeviceStrategy):
        def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **kwargs: Any) -> Any:
            return optimizer.step(closure=closure, **kwargs)

    run = Run(Mine())
    run.step()
    assert run.ready == 0  # nobody told that gradients are final, as in Lightning
    assert run.net.weight.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("automatic", [True, False])
def test_backward(automatic: bool) -> None:
    seen = []

    class Mine(SingleDeviceStrategy):
        def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            seen.append(args)
            return super().backward(closure_loss * 0.25, *args, **kwargs)

    run = Run(Mine())
    run.net.automatic_optimization = automatic
    run.step()
    assert seen == [(run.optimizer,)]
    assert run.net.backwards == 1
    assert run.net.weight.tolist() == [-0.25, -0.25]
    run.strategy.backward(run.net.training_step(torch.ones(2), 0), run.net)  # outside of a step
    assert seen[1] == ((run.optimizer,) if automatic else (None,))


def test_hooks_around_backward() -> None:
    order: list[str] = []

    class Mine(SingleDeviceStrategy):
        def pre_backward(self, closure_loss: Tensor) -> None:
            order.append("pre")

        def post_backward(self, closure_loss: Tensor) -> None:
            order.append("post")

    class Numbers(Precision):
        def backward(self, tensor: Tensor, model: Any, optimizer: Any = None, *args: Any, **kwargs: Any) -> None:
            order.append(f"backward {type(optimizer).__name__}")
            super().backward(tensor, model, optimizer, *args, **kwargs)

        def pre_backward(self, tensor: Tensor, module: Any) -> Tensor:
            order.append("scale")
            return super().pre_backward(tensor, module) * 0.25

        def post_backward(self, tensor: Tensor, module: Any) -> Tensor:
            order.append("done")
            return super().post_backward(tensor, module)

    run = Run(Mine(precision_plugin=Numbers()))
    run.step()
    assert order == ["scale", "pre", "backward SGD", "done", "post"]
    assert run.net.weight.tolist() == [-0.25, -0.25]


def test_batch_to_device() -> None:
    class Mine(SingleDeviceStrategy):
        def batch_to_device(self, batch: Any, device: Any = None, dataloader_idx: int = 0) -> Any:
            self.seen = (device, dataloader_idx)
            return [super().batch_to_device(batch, device, dataloader_idx)]

    run = Run(Mine())
    transfer = run.strategy.bind_transfer(lambda batch, dataloader_idx: batch + dataloader_idx)
    assert transfer(torch.zeros(1), 2)[0].item() == 2  # the module's own hooks ran inside
    assert run.strategy.seen == (torch.device("cpu"), 2)
    batch = [torch.zeros(1)]
    assert SingleDeviceStrategy().batch_to_device(batch) is batch
    assert SingleDeviceStrategy().batch_to_device(batch, torch.device("meta"))[0].device.type == "meta"


def test_setup_and_teardown() -> None:
    order: list[Any] = []

    class Mine(SingleDeviceStrategy):
        def connect(self, model: Any) -> None:
            order.append("connect")
            super().connect(model)

        def setup(self, trainer: Any) -> None:
            order.append(("setup", trainer))
            super().setup(trainer)
            assert self.model is self.lightning_module

        def setup_optimizers(self, trainer: Any) -> Any:
            order.append(("optimizers", trainer, len(self.optimizers)))
            super().setup_optimizers(trainer)
            self.optimizers = [torch.optim.Adam(self.model.parameters())]

        def setup_precision_plugin(self) -> None:
            order.append("precision")

        def model_to_device(self) -> None:
            order.append("move")
            super().model_to_device()

        def setup_environment(self) -> None:
            order.append("environment")
            super().setup_environment()

        def teardown(self) -> None:
            order.append("teardown")
            super().teardown()

    run = Run(Mine())
    run.strategy.teardown()
    assert order == [
        "connect",
        "environment",
        ("setup", "the trainer"),
        "move",
        ("optimizers", "the trainer", 1),
        "precision",
        "teardown",
    ]
    assert [type(o).__name__ for o in run.optimizers] == ["Adam"]


def test_setup_of_a_module_without_a_trainer() -> None:
    class Detached(Net):
        @property
        def trainer(self) -> Any:  # type: ignore[override]  # as LightningModule has it
            raise RuntimeError("not attached")

        @trainer.setter
        def trainer(self, value: Any) -> None:
            pass

    class Mine(SingleDeviceStrategy):
        def setup(self, trainer: Any) -> None:
            self.seen = trainer
            super().setup(trainer)

    strategy = Mine()
    net = Detached()
    strategy.connect(net)
    route_overrides(strategy)
    assert strategy.setup_module(net) is net
    assert strategy.seen is None


def test_state_under_old_names() -> None:
    class Mine(SingleDeviceStrategy):
        def lightning_module_state_dict(self) -> dict[str, Any]:
            return {f"x.{key}": value for key, value in super().lightning_module_state_dict().items()}

        def load_model_state_dict(self, checkpoint: Any, strict: bool = True) -> None:
            state = {key[2:]: value for key, value in checkpoint["state_dict"].items()}
            super().load_model_state_dict({"state_dict": state}, strict)

        def load_optimizer_state_dict(self, checkpoint: Any) -> None:
            self.loaded = len(checkpoint["optimizer_states"])
            super().load_optimizer_state_dict(checkpoint)

    run = Run(Mine())
    state = run.strategy.module_state(run.net)
    assert list(state) == ["x.weight"]
    run.strategy.load_module_state(run.net, {"x.weight": torch.ones(2)})
    assert run.net.weight.tolist() == [1.0, 1.0]
    saved = run.strategy.optimizer_state(run.optimizer)
    saved["param_groups"][0]["lr"] = 0.5
    run.strategy.load_optimizer_state(run.optimizer, saved)
    assert run.optimizer.param_groups[0]["lr"] == 0.5
    assert run.strategy.loaded == 1
    assert run.strategy.optimizers == [run.optimizer]


def test_init_contexts() -> None:
    class Mine(SingleDeviceStrategy):
        @contextmanager
        def tensor_init_context(self, empty_init: bool | None = None) -> Any:
            self.entered = empty_init
            with super().tensor_init_context(empty_init):
                yield

    run = Run(Mine())
    with run.strategy.init_context(True):
        nn.Linear(1, 1)
    assert run.strategy.entered is True
    with SingleDeviceStrategy().model_sharded_context():
        nn.Linear(1, 1)


def test_hooks_of_a_strategy_are_found() -> None:
    class Mine(SingleDeviceStrategy):
        def on_train_start(self) -> None:
            self.started = True

    strategy = Mine()
    hooks = overridden_hooks(strategy)
    assert list(hooks) == ["on_train_start"]
    hooks["on_train_start"]()
    assert strategy.started


def test_own_verbs_are_taken_as_they_are() -> None:
    class Mine(SingleDeviceStrategy):
        def step(self, optimizer: Any, closure: Any, **kwargs: Any) -> Any:
            self.stepped = True
            return super().step(optimizer, closure, **kwargs)

    run = Run(Mine())
    assert not run.strategy.steps_plainly
    run.step()
    assert run.strategy.stepped


# ----------------------------------------------------------------------------------------------------------- precision
def test_precision_under_old_names() -> None:
    calls: list[str] = []

    class Numbers(Precision):
        @contextmanager
        def forward_context(self) -> Any:
            calls.append("context")
            with super().forward_context():
                yield

        def convert_module(self, module: Any) -> Any:
            calls.append("convert")
            return super().convert_module(module)

        def tensor_init_context(self) -> Any:
            calls.append("init")
            return super().tensor_init_context()

        def optimizer_step(self, optimizer: Any, model: Any = None, closure: Any = None, **kwargs: Any) -> Any:
            calls.append(f"step {type(model).__name__}")
            return super().optimizer_step(optimizer, model, closure, **kwargs)

        def unscale_gradients(self, optimizer: Any) -> None:
            calls.append("unscale")
            super().unscale_gradients(optimizer)

        def clip_grad_by_value(self, optimizer: Any, clip_val: float) -> None:
            calls.append("clip")
            super().clip_grad_by_value(optimizer, clip_val)

        def connect(self, model: Any, optimizers: Any, lr_schedulers: Any) -> Any:
            calls.append("connect")
            return model, optimizers, lr_schedulers

    run = Run(SingleDeviceStrategy(precision_plugin=Numbers()))
    assert not run.strategy.precision_plugin.plain
    run.step()
    run.strategy.precision_plugin.unscale(run.optimizer)
    with run.strategy.init_context():
        pass
    assert calls == ["convert", "connect", "step Net", "context", "clip", "unscale", "init"]
    assert run.net.weight.tolist() == [-0.5, -0.5]


def test_a_context_for_one_kind_of_step() -> None:
    class Numbers(Precision):
        entered = 0

        @contextmanager
        def val_step_context(self) -> Any:
            self.entered += 1
            yield

    strategy = SingleDeviceStrategy(precision_plugin=Numbers())
    run = Run(strategy)
    strategy.bind(run.net, "validation_step")(torch.ones(2), 0)
    strategy.bind(run.net, "training_step")(torch.ones(2), 0)
    assert strategy.precision_plugin.entered == 1  # type: ignore[attr-defined]  # of the class above


def test_old_names_of_a_precision_can_be_called() -> None:
    precision = Precision()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = precision.pre_backward(net.training_step(torch.ones(2), 0), net)
        precision.backward(loss, net, optimizer)
        assert not precision.post_backward(loss, net).requires_grad
        return loss

    for context in (
        precision.train_step_context,
        precision.val_step_context,
        precision.test_step_context,
        precision.predict_step_context,
        precision.module_init_context,
        precision.tensor_init_context,
    ):
        with context():
            pass
    precision.optimizer_step(optimizer, net, closure)
    assert net.weight.tolist() == [-1.0, -1.0]
    precision.clip_gradients(optimizer, 0.5, "value")
    assert net.weight.grad is not None
    assert net.weight.grad.tolist() == [0.5, 0.5]
    precision.clip_gradients(optimizer, 0.0)
    precision.clip_gradients(optimizer, 0.1)
    assert net.weight.grad.norm().item() == pytest.approx(0.1, rel=1e-5)
    precision.backward((net.weight * 2).sum(), None)
    checkpoint: dict[str, Any] = {}
    precision.on_save_checkpoint(checkpoint)
    precision.on_load_checkpoint(checkpoint)
    assert precision.connect(net, [optimizer], []) == (net, [optimizer], [])


def test_a_mixed_precision_of_ones_own_keeps_its_scaler() -> None:
    class Numbers(MixedPrecision):
        def optimizer_step(self, optimizer: Any, model: Any = None, closure: Any = None, **kwargs: Any) -> Any:
            return super().optimizer_step(optimizer, model=model, closure=closure, **kwargs)

    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    run = Run(SingleDeviceStrategy(precision_plugin=Numbers("16-mixed", "cpu", scaler)))
    run.step()
    assert run.net.weight.tolist() == [-0.5, -0.5]
    run.step(torch.full((2,), float("inf")))
    assert not run.strategy.precision_plugin.stepped
    assert run.net.weight.tolist() == [-0.5, -0.5]


def test_closures_of_any_kind() -> None:
    running = FunctionClosure(ready=Mock(), manual=True)
    assert as_step_closure(running) is running
    made: Any = as_step_closure(lambda: 3, running)
    assert made.both() == made() == 3
    assert made.manual
    running.ready.assert_called_once_with()  # type: ignore[attr-defined]  # the mock above
    assert as_step_closure(None).both() is None
    assert as_step_closure(None).manual  # type: ignore[attr-defined]  # a FunctionClosure


# --------------------------------------------------------------------------------------------------------------- rest
class _Pickled(SingleDeviceStrategy):
    def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **kwargs: Any) -> Any:
        return super().optimizer_step(optimizer, closure, model, **kwargs)


def test_routes_are_looked_up_anew() -> None:
    strategy: Any = _Pickled()
    run = Run(strategy)
    for made in (copy.deepcopy(strategy), pickle.loads(pickle.dumps(strategy))):
        assert "step" not in vars(made)
        Run(made).step()
    strategy.training_step = lambda *args: 1
    assert route_overrides(strategy) == ("step",)
    del strategy.training_step
    assert route_overrides(strategy) == ("step",)
    run.step()
    plain: Any = SingleDeviceStrategy()
    plain.optimizer_step = Mock(side_effect=lambda optimizer, closure: closure())
    assert Run(plain).routed == ("step",)
    del plain.optimizer_step
    assert Run(plain).routed == ()
    assert plain.steps_plainly


def test_what_the_old_face_answers() -> None:
    strategy = SingleDeviceStrategy()
    assert not strategy.restore_checkpoint_after_setup
    assert strategy.lightning_restore_optimizer
    assert not strategy.handles_gradient_accumulation
    loader = [1]
    assert strategy.process_dataloader(loader) is loader
    strategy.post_training_step()
    for name in ("on_train_start", "on_train_end", "on_validation_start", "on_validation_end", "on_test_start"):
        getattr(strategy, name)()
    for name in ("on_test_end", "on_predict_start", "on_predict_end"):
        getattr(strategy, name)()
    strategy.on_train_batch_start(None, 0)
    strategy.on_exception(ValueError())
    table = StrategyRegistry()
    SingleDeviceStrategy.register_strategies(table)
    assert table.available_strategies() == ["single_device"]

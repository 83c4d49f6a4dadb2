"""One device: placing, stepping, state, and nothing to say to other ranks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from fulmen.accelerators import CPUAccelerator
from fulmen.engine.precision import DoublePrecision, MixedPrecision, Precision
from fulmen.engine.precision.closure import FunctionClosure
from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.strategies import STRATEGY_REGISTRY, SingleDeviceStrategy, Strategy, resolve_strategy, route_overrides

CPU = torch.device("cpu")


@pytest.fixture
def registered() -> Iterator[str]:
    @STRATEGY_REGISTRY.register("mine")
    class Mine(SingleDeviceStrategy):
        pass

    yield "mine"
    STRATEGY_REGISTRY.remove("mine")


def trained(optimizer_class: Any = torch.optim.Adam, **kwargs: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Linear(3, 2)
    optimizer = optimizer_class(net.parameters(), lr=0.1, **kwargs)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.rand(4, 3)).sum().backward()
        optimizer.step()
    return net, optimizer


@pytest.mark.feature("H-03")
def test_what_it_is() -> None:
    strategy = SingleDeviceStrategy()
    assert strategy.root_device == CPU
    assert (strategy.world_size, strategy.global_rank, strategy.local_rank, strategy.node_rank) == (1, 0, 0, 0)
    assert strategy.is_global_zero
    assert strategy.launcher is None
    assert strategy.accelerator.name() == "cpu"
    assert type(strategy.precision_plugin) is Precision
    assert SingleDeviceStrategy(torch.device("cpu")).root_device == CPU
    assert SingleDeviceStrategy("cuda").root_device == torch.device("cuda", 0)
    assert SingleDeviceStrategy("mps").root_device == torch.device("mps", 0)
    assert repr(strategy) == "SingleDeviceStrategy(device='cpu', precision='32-true')"


@pytest.mark.feature("H-05")
def test_one_process_talks_to_itself() -> None:
    strategy = SingleDeviceStrategy()
    x = torch.rand(3, requires_grad=True)
    assert strategy.all_gather(x, sync_grads=True) is x
    assert strategy.reduce(x, reduce_op="sum") is x
    marker = object()
    assert strategy.broadcast(marker, src=0) is marker
    strategy.barrier("here")
    assert strategy.reduce_boolean_decision(True, all=False)
    assert not strategy.reduce_boolean_decision(False)
    assert strategy.no_sync(nn.Linear(1, 1)) is None


@pytest.mark.feature("H-03")
def test_set_up_and_one_step_by_hand() -> None:
    strategy = SingleDeviceStrategy()
    net = nn.Linear(2, 1, bias=False)
    strategy.connect(net)
    assert route_overrides(strategy) == ()
    strategy.setup_environment()
    assert strategy.setup_module(net) is net
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    assert strategy.setup_optimizers([optimizer]) == [optimizer]
    assert strategy.steps_plainly
    step = strategy.bind(net, "forward")
    assert step == net.forward  # the bound method itself, nothing around it
    before = net.weight.detach().clone()
    seen = []

    def compute() -> torch.Tensor:
        loss = step(torch.ones(1, 2)).sum() * 3
        strategy.backward(loss)
        return loss

    def ready() -> None:
        seen.append(strategy.clip(optimizer, 1.0, "value"))

    strategy.step(optimizer, FunctionClosure(compute, ready))
    torch.testing.assert_close(net.weight, before - 1.0)
    assert seen == [None]
    strategy.teardown()
    assert strategy.optimizers == []


@pytest.mark.feature("H-03")
def test_backward_is_the_modules_own_and_passes_arguments_on() -> None:
    class Net(nn.Module):
        calls = 0

        def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            self.calls += 1
            loss.backward(*args, **kwargs)

    strategy = SingleDeviceStrategy()
    net, x = Net(), torch.ones(2, requires_grad=True)
    y = x * 2
    assert strategy.backward(y, torch.tensor([1.0, 3.0]), retain_graph=True) is y
    strategy.backward(y, nn.Linear(1, 1), torch.tensor([1.0, 3.0]), retain_graph=True)
    strategy.connect(net)
    strategy.backward(y, None, gradient=torch.ones(2), retain_graph=True)
    strategy.backward(y, torch.optim.SGD([x], lr=1.0), torch.ones(2), retain_graph=True)
    strategy.backward(y, net, torch.ones(2))
    assert x.grad is not None
    assert x.grad.tolist() == [10.0, 18.0]
    assert net.calls == 3


@pytest.mark.feature("H-02", "H-03")
def test_precision_converts_the_module_and_creation() -> None:
    strategy = SingleDeviceStrategy(precision_plugin=DoublePrecision())
    net = strategy.setup_module(nn.Linear(1, 1))
    assert net.weight.dtype is torch.float64
    with strategy.init_context():
        assert nn.Linear(1, 1).weight.dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.feature("H-03")
def test_empty_init_leaves_weights_and_the_generator_alone() -> None:
    strategy = SingleDeviceStrategy()
    before = torch.get_rng_state()
    with strategy.init_context(empty_init=True):
        nn.Linear(64, 64)
        nn.init.constant_(tensor=torch.zeros(1), val=5.0)
    assert torch.equal(torch.get_rng_state(), before)
    with strategy.init_context(empty_init=False):
        nn.Linear(2, 2)
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.feature("H-03")
def test_a_module_that_is_there_is_not_moved() -> None:
    class Counting(nn.Linear):
        moves = 0

        def to(self, *args: Any, **kwargs: Any) -> Any:
            Counting.moves += 1
            return super().to(*args, **kwargs)

    SingleDeviceStrategy().setup_module(Counting(1, 1))
    assert Counting.moves == 0
    net = Counting(1, 1)
    assert SingleDeviceStrategy("meta", CPUAccelerator()).setup_module(net) is net
    assert Counting.moves == 1
    assert net.weight.device.type == "meta"


# --------------------------------------------------------------------------------------------------------------- state
@pytest.mark.feature("M-12")
def test_compiled_modules_are_saved_and_loaded_by_plain_keys() -> None:
    strategy = SingleDeviceStrategy()

    class Net(nn.Module):
        def __init__(self, compiled: bool) -> None:
            super().__init__()
            inner: Any = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
            self.inner = torch.compile(inner, backend="eager") if compiled else inner
            self.head = nn.Linear(2, 1)

    compiled, plain = Net(True), Net(False)
    whole = torch.compile(Net(True), backend="eager")
    assert any("_orig_mod" in key for key in compiled.state_dict())
    keys = list(plain.state_dict())
    for source in (compiled, plain, whole):
        state = strategy.module_state(source)
        assert list(state) == keys
        assert all("_orig_mod" not in key for key in getattr(state, "_metadata", {}))
        for target in (Net(True), Net(False), torch.compile(Net(False), backend="eager")):
            strategy.load_module_state(target, state)
            for key, value in strategy.module_state(target).items():
                assert torch.equal(value, state[key])
            strategy.load_module_state(target, source.state_dict())  # with the compiled keys, as others write them


@pytest.mark.feature("M-12")
def test_wrong_keys_are_said_unless_not_strict() -> None:
    strategy = SingleDeviceStrategy()
    net = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match=r"Missing key.*bias"):
        strategy.load_module_state(net, {"weight": torch.zeros(2, 2)})
    result = strategy.load_module_state(net, {"weight": torch.zeros(2, 2), "other": torch.zeros(1)}, strict=False)
    assert result.missing_keys == ["bias"]
    assert result.unexpected_keys == ["other"]


@pytest.mark.feature("M-12")
def test_a_module_compiled_as_a_whole_runs_its_step_compiled() -> None:
    frames = []

    def backend(graph: Any, inputs: Any) -> Any:
        frames.append(graph)
        return graph.forward

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            return self(batch).sum()

    compiled: Any = torch.compile(Net(), backend=backend)
    step = SingleDeviceStrategy().bind(compiled, "training_step")
    x = torch.rand(3, 2)
    torch.testing.assert_close(step(x, 0), compiled._orig_mod.training_step(x, 0))
    assert frames


@pytest.mark.feature("H-03")
@pytest.mark.parametrize(
    ("kind", "kwargs", "step_device"),
    [
        (torch.optim.Adam, {}, "cpu"),
        (torch.optim.Adam, {"capturable": True}, "meta"),
        (torch.optim.SGD, {"momentum": 0.9}, None),
    ],
)
def test_optimizer_state_goes_where_the_optimizer_wants_it(kind: Any, kwargs: Any, step_device: str | None) -> None:
    strategy = SingleDeviceStrategy()
    _, optimizer = trained(kind, **{key: value for key, value in kwargs.items() if key != "capturable"})
    state = copy.deepcopy(strategy.optimizer_state(optimizer))
    net = nn.Linear(3, 2, device="meta")  # stands for a GPU
    fresh = kind(net.parameters(), lr=0.1, **kwargs)
    for group in state["param_groups"]:
        group.update(kwargs)
    strategy.load_optimizer_state(fresh, state)
    for entry in fresh.state.values():
        for key, value in entry.items():
            if key == "step":
                assert value.device.type == step_device
            elif torch.is_tensor(value):
                assert value.device.type == "meta"


@pytest.mark.feature("H-03")
def test_a_step_counter_that_came_on_another_device_goes_back_to_the_cpu() -> None:
    # What a checkpoint read with map_location="cuda" looks like; torch keeps such a counter where it is.
    _, optimizer = trained()
    state = optimizer.state_dict()
    for entry in state["state"].values():
        entry["step"] = entry["step"].to("meta")
    net = nn.Linear(3, 2, device="meta")
    fresh = torch.optim.Adam(net.parameters())
    fresh.load_state_dict(copy.deepcopy(state))
    assert {entry["step"].device.type for entry in fresh.state.values()} == {"meta"}
    for entry in fresh.state.values():  # a meta counter has no value to copy back: give it one
        entry["step"] = torch.tensor(2.0)
    SingleDeviceStrategy("meta", CPUAccelerator()).setup_optimizers([fresh])
    assert {entry["step"].device.type for entry in fresh.state.values()} == {"cpu"}
    assert {entry["exp_avg"].device.type for entry in fresh.state.values()} == {"meta"}


@pytest.mark.feature("H-03")
def test_training_goes_on_bit_for_bit_after_loading() -> None:
    strategy = SingleDeviceStrategy()
    net, optimizer = trained()
    other = copy.deepcopy(net)
    fresh = torch.optim.Adam(other.parameters(), lr=0.1)
    strategy.load_optimizer_state(fresh, copy.deepcopy(strategy.optimizer_state(optimizer)))
    x = torch.rand(4, 3)
    for module, stepper in ((net, optimizer), (other, fresh)):
        stepper.zero_grad()
        module(x).sum().backward()
        stepper.step()
    assert torch.equal(net.weight, other.weight)  # type: ignore[arg-type]  # a Linear's


def test_sharded_optimizers_are_asked_to_gather() -> None:
    class Sharded(torch.optim.SGD):
        gathered = False

        def consolidate_state_dict(self) -> None:
            self.gathered = True

    optimizer = Sharded(nn.Linear(1, 1).parameters(), lr=0.1)
    SingleDeviceStrategy().optimizer_state(optimizer)
    assert optimizer.gathered


class RecordingIO:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        self.calls.append(("save", checkpoint, path, storage_options))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: Any = None) -> Any:
        self.calls.append(("load", path, weights_only))
        return {"a": 1}

    def remove_checkpoint(self, path: Any) -> None:
        self.calls.append(("remove", path))

    def teardown(self) -> None:
        self.calls.append("teardown")


@pytest.mark.feature("H-03")
def test_files_go_through_the_checkpoint_io() -> None:
    io = RecordingIO()
    strategy = SingleDeviceStrategy(checkpoint_io=io)
    strategy.save_checkpoint({"a": 1}, "x.ckpt", storage_options=3)
    assert strategy.load_checkpoint("x.ckpt", weights_only=True) == {"a": 1}
    strategy.remove_checkpoint("x.ckpt")
    strategy.teardown()
    assert io.calls == [("save", {"a": 1}, "x.ckpt", 3), ("load", "x.ckpt", True), ("remove", "x.ckpt"), "teardown"]


def test_an_open_wrapper_around_a_checkpoint_io_is_closed() -> None:
    io: Any = RecordingIO()
    io.checkpoint_io = None
    strategy = SingleDeviceStrategy(checkpoint_io=io)
    assert strategy.checkpoint_io is io
    assert type(io.checkpoint_io).__name__ == "TorchCheckpointIO"
    assert type(SingleDeviceStrategy().checkpoint_io).__name__ == "TorchCheckpointIO"


@pytest.mark.feature("M-12")
def test_it_pickles_without_the_module() -> None:
    strategy = SingleDeviceStrategy(precision_plugin=MixedPrecision("16-mixed", "cpu"))
    net = nn.Linear(1, 1)
    net.unpicklable = lambda: None
    strategy.connect(net)
    route_overrides(strategy)
    strategy.setup_module(net)
    strategy.setup_optimizers([torch.optim.SGD(net.parameters(), lr=1.0)])
    for made in (pickle.loads(pickle.dumps(strategy)), copy.deepcopy(strategy)):
        assert made.lightning_module is None
        assert made.model is None
        assert made.optimizers == []
        assert made.precision_plugin.precision == "16-mixed"
        made.connect(net)
        assert route_overrides(made) == ()
        assert made.step == made.precision_plugin.step
    assert strategy.lightning_module is net


# ----------------------------------------------------------------------------------------------------------- arguments
@pytest.mark.feature("H-03")
@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"device": "gpu0"}, ArgumentValueError, r"SingleDeviceStrategy\(device='gpu0'\)"),
        ({"device": None}, ArgumentTypeError, r"device=None"),
        ({"device": True}, ArgumentTypeError, r"device=True"),
        ({"accelerator": "cpu"}, ArgumentTypeError, r"accelerator='cpu'.*Accelerator object"),
        ({"precision_plugin": "16-mixed"}, ArgumentTypeError, r"precision_plugin='16-mixed'.*MixedPrecision"),
        ({"checkpoint_io": "here"}, ArgumentTypeError, r"checkpoint_io='here'.*CheckpointIO"),
    ],
)
def test_bad_constructor_arguments(kwargs: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        SingleDeviceStrategy(**kwargs)


@pytest.mark.feature("H-03")
@pytest.mark.parametrize("value", ["auto", None, "single_device", "Single_Device"])
def test_names_of_the_single_device(value: Any) -> None:
    precision = MixedPrecision("bf16-mixed", "cpu")
    io = RecordingIO()
    made = resolve_strategy(value, [CPU], accelerator=CPUAccelerator(), precision=precision, checkpoint_io=io)
    assert type(made) is SingleDeviceStrategy
    assert made.root_device == CPU
    assert made.precision_plugin is precision
    assert made.checkpoint_io is io


@pytest.mark.feature("H-03")
def test_strategies_of_ones_own(registered: str) -> None:
    made = resolve_strategy(registered, [CPU])
    assert type(made).__name__ == "Mine"
    assert registered in STRATEGY_REGISTRY.available_strategies()
    assert resolve_strategy(made, [CPU], precision=DoublePrecision()) is made
    assert made.precision_plugin.precision == "64-true"
    with pytest.raises(TypeError, match="abstract"):
        Strategy()  # type: ignore[abstract]  # the error is the test


@pytest.mark.feature("H-03")
@pytest.mark.parametrize(
    ("value", "devices", "error", "words"),
    [
        ("dp", 1, ArgumentValueError, "strategy='dp' is not possible.*strategy='ddp'"),
        ("horovod", 1, ArgumentValueError, "Horovod"),
        ("single_devise", 1, ArgumentValueError, "'single_devise' is not registered.*Did you mean 'single_device'"),
        ("single_device", 2, ArgumentValueError, "trains on one device, but 2 were asked for"),
        (3, 1, ArgumentTypeError, "strategy=3.*not a int"),
        (SingleDeviceStrategy, 1, ArgumentTypeError, "Strategy object"),
        (SingleDeviceStrategy("meta"), 1, ArgumentValueError, "no accelerator 'meta' is registered"),
    ],
)
def test_bad_strategies(value: Any, devices: int, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve_strategy(value, [CPU] * devices, accelerator=CPUAccelerator())


def test_a_strategy_on_other_hardware_than_asked_for_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match=r"is on cuda:1, but accelerator='cpu'"):
        resolve_strategy(SingleDeviceStrategy("cuda:1"), [CPU], accelerator=CPUAccelerator())

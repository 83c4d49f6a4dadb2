"""Activation checkpointing: less kept, the same numbers, the same names."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.activation_checkpointing import compare, saved_bytes, transformer
from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.utilities import checkpoint_activations, checkpoint_wrapper, is_checkpointed
from tests.ids import plain

pytestmark = pytest.mark.feature("M-09")


class Block(nn.Module):
    def __init__(self, width: int = 8, norm: type[nn.Module] | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.Identity() if norm is None else norm(width)
        self.dropout = nn.Dropout(dropout)
        self.calls: int | None = 0

    def forward(self, x: Tensor, *, scale: float | Tensor = 1.0) -> Tensor:
        if self.calls is not None:  # a compiler would stop at it
            self.calls += 1
        return x + scale * self.dropout(torch.tanh(self.norm(self.linear(x))))


class Net(nn.Module):
    def __init__(self, depth: int = 3, **kwargs: Any) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(Block(**kwargs) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x)


def twins(**kwargs: Any) -> tuple[Net, Net]:
    torch.manual_seed(0)
    plain = Net(**kwargs)
    return plain, copy.deepcopy(plain)


def backward(net: nn.Module, seed: int = 1, inputs: Tensor | None = None) -> Tensor:
    torch.manual_seed(seed)
    loss = net(torch.randn(16, 4) if inputs is None else inputs).square().mean()
    loss.backward()
    return loss.detach()


def assert_same(plain: nn.Module, other: nn.Module) -> None:
    for (name, a), (other_name, b) in zip(plain.named_parameters(), other.named_parameters(), strict=True):
        assert name == other_name
        assert a.grad is not None and b.grad is not None and torch.equal(a.grad, b.grad), name
    for (name, a), (other_name, b) in zip(plain.named_buffers(), other.named_buffers(), strict=True):
        assert name == other_name and torch.equal(a, b), name


# --- what it does --------------------------------------------------------------------------------------------------


def test_bytes_and_gradients_of_a_transformer() -> None:
    plain, less = (transformer(width=64) for _ in range(2))
    assert checkpoint_activations(less) == [f"1.layers.{i}" for i in range(12)]
    tokens = torch.randint(0, 512, (4, 33))
    assert saved_bytes(less, tokens) <= 0.40 * saved_bytes(plain, tokens)
    for net in (plain, less):
        net(tokens).square().mean().backward()
    for a, b in zip(plain.parameters(), less.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None and torch.equal(a.grad, b.grad)


@pytest.mark.slow
def test_time_of_a_transformer() -> None:
    found = compare(rounds=7)
    assert found["bytes"] <= 0.40 and found["gradients"] == 0
    assert found["time"] <= 1.35


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("norm", [None, nn.BatchNorm1d])
def test_same_gradients_random_numbers_and_statistics(norm: Any, use_reentrant: bool) -> None:
    plain, less = twins(norm=norm, dropout=0.5)
    if use_reentrant:

        def run(net: Net) -> None:
            torch.manual_seed(3)
            x = net.stem(torch.randn(16, 4))
            for block in net.blocks:
                x = block(x)
            net.head(x).square().mean().backward()
    else:

        def run(net: Net) -> None:
            backward(net, seed=3)

    checkpoint_activations(less, use_reentrant=use_reentrant)
    for _ in range(2):
        run(plain)
        run(less)
    assert [block.calls for block in less.blocks] == [4, 4, 4]  # computed twice, each time
    assert_same(plain, less)


def test_without_the_random_state_dropout_differs() -> None:
    plain, less = twins(dropout=0.5)
    checkpoint_activations(less, preserve_rng_state=False)
    backward(plain)
    backward(less)
    with pytest.raises(AssertionError):
        assert_same(plain, less)


def test_nothing_is_computed_twice_without_gradients() -> None:
    _, net = twins()
    checkpoint_activations(net)
    with torch.no_grad():
        net(torch.randn(2, 4))
    assert [block.calls for block in net.blocks] == [1, 1, 1]


def test_inputs_that_need_no_gradient_and_keywords_with_tensors() -> None:
    plain, less = (copy.deepcopy(net.blocks[0]) for net in twins())
    checkpoint_wrapper(less)
    scales = [torch.tensor(0.5, requires_grad=True) for _ in range(2)]
    x = torch.randn(4, 8)
    for block, scale in zip((plain, less), scales, strict=True):
        block(x, scale=scale).sum().backward()
    assert scales[0].grad is not None and torch.equal(scales[0].grad, scales[1].grad)  # type: ignore[arg-type]
    assert_same(plain, less)


def test_inputs_go_to_the_host_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[tuple[int, ...]] = []

    @contextmanager
    def recorder(pin_memory: bool) -> Iterator[None]:
        assert pin_memory is False  # there is no GPU in it

        def pack(tensor: Tensor) -> Tensor:
            packed.append(tuple(tensor.shape))
            return tensor.clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield

    monkeypatch.setattr(torch.autograd.graph, "save_on_cpu", recorder)
    plain, less = twins()
    checkpoint_activations(less, offload_to_cpu=True)
    backward(plain)
    backward(less)
    assert packed == [(16, 8)] * 3  # the input of each block, and nothing of its inside
    assert_same(plain, less)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_statistics_are_updated_once_per_step(layer: Any) -> None:
    block = nn.Sequential(nn.Conv1d(3, 3, 3), layer(3, track_running_stats=True), nn.ReLU())
    twin = copy.deepcopy(block)
    checkpoint_wrapper(twin)
    x = torch.randn(4, 3, 9)
    for net in (block, twin):
        net(x).square().sum().backward()
        net(x).square().sum().backward()
    assert_same(block, twin)
    assert float(twin[1].running_mean.abs().max()) > 0


# --- names, copies -------------------------------------------------------------------------------------------------


def test_names_classes_and_state_dicts_are_unchanged() -> None:
    plain, less = twins()
    checkpoint_activations(less)
    assert list(plain.state_dict()) == list(less.state_dict())
    assert [n for n, _ in plain.named_modules()] == [n for n, _ in less.named_modules()]
    assert repr(plain) == repr(less)
    assert isinstance(less.blocks[0], Block) and type(less.blocks[0]).__name__ == "Block"
    assert type(less.blocks[0]) is type(less.blocks[1])  # one class for all, as compilers like it
    assert is_checkpointed(less.blocks[0]) and not is_checkpointed(plain.blocks[0]) and not is_checkpointed(less)
    less.load_state_dict(plain.state_dict())
    plain.load_state_dict(less.state_dict())


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_copies_checkpoint_their_own_weights(again: Callable[[Any], Any]) -> None:
    _, net = twins()
    checkpoint_activations(net)
    other = again(net)
    assert is_checkpointed(other.blocks[0]) and isinstance(other.blocks[0], Block)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    backward(other)
    assert any(bool(p.grad.any()) for p in other.parameters())
    assert [block.calls for block in other.blocks] == [2, 2, 2]


def test_a_second_call_changes_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    _, net = twins()
    first = checkpoint_activations(net)
    assert checkpoint_activations(net, preserve_rng_state=False) == first
    backward(net)
    assert [block.calls for block in net.blocks] == [2, 2, 2]  # not nested
    assert checkpoint_activations(net, select=Block) == first


@pytest.mark.parametrize("norm", [None, nn.BatchNorm1d])
def test_compiled_in_one_graph(norm: Any) -> None:
    plain, less = twins(norm=norm)
    for block in (*plain.blocks, *less.blocks):
        block.calls = None
    checkpoint_activations(less)
    compiled: Any = torch.compile(less, backend="aot_eager", fullgraph=True)
    x = torch.randn(16, 4)
    backward(plain, inputs=x)
    backward(compiled, inputs=x)
    for a, b in zip(plain.parameters(), less.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        torch.testing.assert_close(a.grad, b.grad)
    for c, d in zip(plain.buffers(), less.buffers(), strict=True):
        torch.testing.assert_close(c, d)


# --- which ---------------------------------------------------------------------------------------------------------


class Deep(nn.Module):
    """Two stacks, one inside of containers, and layers that are no blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Sequential(Block(), Block()), nn.Sequential(Block(), Block()))
        self.decoder = nn.ModuleDict({"a": Block(), "b": Block()})
        self.single = Block()
        self.many = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))


DECODER = ["decoder.a", "decoder.b"]
ENCODER = ["encoder.0.0", "encoder.0.1", "encoder.1.0", "encoder.1.1"]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (None, [*ENCODER, *DECODER]),
        (Block, [*ENCODER, *DECODER, "single"]),
        ((Block, nn.Sequential), ["encoder", *DECODER, "single"]),
        ("single", ["single"]),
        ("decoder.*", DECODER),
        (["decoder.b", "encoder.?.1"], ["encoder.0.1", "encoder.1.1", "decoder.b"]),
        (lambda m: isinstance(m, nn.Linear) and m.out_features == 8, None),
        (lambda m: isinstance(m, Block) and m.calls == 0, [*ENCODER, *DECODER, "single"]),
    ],
    ids=plain,
)
def test_selection(select: Any, expected: list[str] | None) -> None:
    net = Deep()
    chosen = checkpoint_activations(net, select=select)
    if expected is None:
        expected = [name for name, m in net.named_modules() if isinstance(m, nn.Linear)]
    assert chosen == expected
    assert [name for name, m in net.named_modules() if is_checkpointed(m)] == expected


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"select": 3}, ArgumentTypeError, r"select=3\): give a class"),
        ({"select": []}, ArgumentTypeError, r"select=\[\]"),
        ({"select": int}, ArgumentTypeError, "int is no torch.nn.Module class"),
        ({"select": "blok"}, ArgumentValueError, r"no submodule of Net fits\. Did you mean 'blocks'.*stem, blocks"),
        ({"select": nn.Conv2d}, ArgumentValueError, "no submodule of Net fits"),
        ({"select": lambda m: False}, ArgumentValueError, "no submodule of Net fits"),
        ({"select": "blocks"}, ArgumentValueError, "'blocks' is a ModuleList, which has no `forward`"),
        ({"offload_to_cpu": 1}, ArgumentTypeError, r"offload_to_cpu=1\): must be True or False"),
        ({"preserve_rng_state": None}, ArgumentTypeError, "preserve_rng_state=None"),
        ({"use_reentrant": "no"}, ArgumentTypeError, "use_reentrant='no'"),
    ],
)
def test_wrong_arguments(kwargs: dict[str, Any], error: type[Exception], words: str) -> None:
    net = Net()
    with pytest.raises(error, match=words):
        checkpoint_activations(net, **kwargs)
    assert not any(is_checkpointed(m) for m in net.modules())


def test_no_blocks_no_module_and_modules_that_cannot() -> None:
    with pytest.raises(ArgumentValueError, match=r"Linear has no repeated blocks.*select="):
        checkpoint_activations(nn.Linear(2, 2))
    for function in (checkpoint_activations, checkpoint_wrapper):
        with pytest.raises(ArgumentTypeError, match=r"module=int\): give a torch\.nn\.Module"):
            function(3)  # type: ignore[type-var]
    net = Net()
    patched: Any = net.blocks[1]
    patched.forward = lambda x, scale: x
    with pytest.raises(ArgumentValueError, match=r"'blocks\.1': the object of Block has a `forward` of its own"):
        checkpoint_activations(net)
    assert not is_checkpointed(net.blocks[0])  # all or none
    with pytest.raises(ArgumentValueError, match="TorchScript"):
        checkpoint_wrapper(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)))

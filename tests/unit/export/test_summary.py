"""Summaries of plain modules: counts, shapes, FLOPs, and that looking changes nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning
from fulmen.export import LayerSummary, ModelSummary, summarize
from fulmen.export.summary import get_human_readable_count, parse_batch_shape

pytestmark = pytest.mark.feature("K-05")


class Net(nn.Module):
    def __init__(self, example: Any = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)
        self.scale = nn.Parameter(torch.ones(3))
        self.example_input_array = example

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def test_numbers_of_a_plain_module() -> None:
    net = Net()
    net.head.requires_grad_(False)
    net.head.eval()
    summary = summarize(net)
    assert summary.layer_names == ["body", "head"]
    assert summary.layer_types == ["Sequential", "Linear"]
    assert summary.param_nums == [56, 18]
    assert summary.training_modes == [True, False]
    assert summary.total_parameters == 77
    assert summary.trainable_parameters == 59
    assert summary.total_layer_params == 74
    assert summary.total_training_modes == {"train": 4, "eval": 1}
    assert summary.model_size == pytest.approx(77 * 4e-6)
    assert summary.in_sizes == ["?", "?"]
    assert summary.total_flops == 0
    assert ModelSummary(net.double()).model_size == pytest.approx(77 * 8e-6)


@pytest.mark.parametrize(
    ("depth", "names"),
    [
        (0, []),
        (1, ["body", "head"]),
        (2, ["body", "body.0", "body.1", "body.2", "head"]),
        (-1, ["body", "body.0", "body.1", "body.2", "head"]),
    ],
)
def test_depth(depth: int, names: list[str]) -> None:
    assert ModelSummary(Net(), max_depth=depth).layer_names == names


def test_table_as_text() -> None:
    assert str(summarize(Net(torch.zeros(5, 4)))).splitlines() == [
        "  | Name         | Type       | Params | Mode  | FLOPs | In sizes | Out sizes",
        "-" * 83,
        "0 | body         | Sequential | 56     | train | 320   | [5, 4]   | [5, 8]",
        "1 | head         | Linear     | 18     | train | 160   | [5, 8]   | [5, 2]",
        "  | other params | n/a        | 3      | n/a   | n/a   | n/a      | n/a",
        "-" * 83,
        "77        Trainable params",
        "0         Non-trainable params",
        "77        Total params",
        "0.000     Total estimated model params size (MB)",
        "5         Modules in train mode",
        "0         Modules in eval mode",
        "480       Total FLOPs",
    ]


@pytest.mark.filterwarnings("ignore:.*FULMEN-W063")
@pytest.mark.parametrize("example", [None, torch.zeros(5, 3)], ids=["no example", "one that cannot be sent"])
def test_unknown_flops_are_not_called_zero(example: Any) -> None:
    summary = summarize(Net(example))
    assert summary.total_flops == 0
    assert dict(summary.columns())["FLOPs"] == ["-", "-", "n/a"]
    assert str(summary).splitlines()[-1] == "-         Total FLOPs"
    # A layer that was looked at and counts nothing has 0.
    assert dict(ModelSummary(Net(torch.zeros(5, 4)), 2).columns())["FLOPs"][2].strip() == "0"


@pytest.mark.parametrize(
    "example", [torch.zeros(5, 4), (torch.zeros(5, 4),), [torch.zeros(5, 4)], {"x": torch.zeros(5, 4)}]
)
def test_examples_of_all_forms(example: Any) -> None:
    summary = ModelSummary(Net(example), max_depth=-1)
    assert summary.in_sizes[1] == [5, 4]
    assert summary.out_sizes == [[5, 8], [5, 8], [5, 8], [5, 8], [5, 2]]
    assert summary.total_flops == 2 * 5 * (4 * 8 + 8 * 2)
    assert sum(summary.flop_counts["body.0"].values()) == 2 * 5 * 4 * 8
    assert summary.flop_counts["body.2"] == {}


def test_looking_changes_nothing() -> None:
    class Noisy(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x + torch.randn_like(x))

    net = Noisy(torch.zeros(5, 4))
    net.body[1].eval()
    modes = [module.training for module in net.modules()]
    state = {name: value.clone() for name, value in net.state_dict().items()}
    rng = torch.get_rng_state()
    assert ModelSummary(net).total_flops > 0
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert not any(module._forward_hooks for module in net.modules())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_shared_parameters_count_once() -> None:
    net = nn.ModuleDict({"a": nn.Linear(4, 4, bias=False), "b": nn.Linear(4, 4, bias=False)})
    net["b"].weight = net["a"].weight  # type: ignore[assignment]  # tied on purpose
    net.register_parameter("free", nn.Parameter(torch.zeros(5)))
    summary = ModelSummary(net)
    assert summary.param_nums == [16, 16]
    assert summary.total_layer_params == 16
    assert summary.total_parameters == 21
    assert dict(summary.columns())["Params"][-1].strip() == "5"  # not hidden by counting 32 in the layers


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_lazy_parameters() -> None:
    class Lazy(nn.Module):
        example_input_array: Any = None

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    lazy = Lazy()
    with pytest.warns(FulmenWarning, match="leaves out lazy ones"):
        summary = summarize(lazy)
        assert summary.total_parameters == 0
        assert summary.model_size == 0
        assert "0         Total params" in str(summary)
    lazy.example_input_array = torch.zeros(3, 7)
    assert summarize(lazy).total_parameters == 16


def test_an_example_that_does_not_fit_is_a_warning() -> None:
    net = Net(torch.zeros(5, 3))
    with pytest.warns(FulmenWarning, match=r"Net's `example_input_array` could not be sent .*RuntimeError"):
        summary = summarize(net)
    assert summary.in_sizes[1] == "?"
    assert net.training and not any(module._forward_hooks for module in net.modules())


def test_batch_transfer_hooks_of_the_module_are_used() -> None:
    calls: list[str] = []

    class WithHooks(Net):
        device = torch.device("cpu")

        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            calls.append("before")
            return batch

        def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
            calls.append("transfer")
            return batch.to(device)

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            calls.append("after")
            return batch

    summarize(WithHooks(torch.zeros(5, 4)))
    assert calls == ["before", "transfer", "after"]


def test_a_layer_alone() -> None:
    conv = nn.Conv2d(3, 8, 3)
    layer = LayerSummary(conv)
    assert (layer.num_parameters, layer.layer_type, layer.in_size) == (224, "Conv2d", "?")
    output = conv(torch.rand(1, 3, 5, 5))
    conv(torch.rand(2, 3, 9, 9))  # only the first call counts
    assert layer.in_size == [1, 3, 5, 5]
    assert layer.out_size == list(output.shape)


def test_a_compiled_module_is_looked_into() -> None:
    net = torch.compile(Net(torch.zeros(5, 4)), backend="eager")
    summary = summarize(net)  # type: ignore[arg-type]  # `compile` is typed as a function
    assert summary.layer_names == ["body", "head"]
    assert summary.in_sizes == [[5, 4], [5, 8]]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0  "),
        (123, "123  "),
        (1234, "1.2 K"),
        (131_584, "131 K"),
        (2_000_000, "2.0 M"),
        (3_000_000_000, "3.0 B"),
        (400_000_000_000_000, "400 T"),
        (5_000_000_000_000_000, "5,000 T"),
    ],
)
def test_counts_in_words(number: int, text: str) -> None:
    assert get_human_readable_count(number) == text


def test_shapes_of_nested_batches() -> None:
    assert parse_batch_shape([torch.zeros(1, 2), (torch.zeros(3), "x")]) == [[1, 2], [[3], "?"]]


@pytest.mark.parametrize(
    ("model", "depth", "error", "words"),
    [
        ("x", 1, ArgumentTypeError, "model=str"),
        (nn.Linear(1, 1), 1.0, ArgumentTypeError, "max_depth=1.0"),
        (nn.Linear(1, 1), -2, ArgumentValueError, "max_depth=-2"),
    ],
)
def test_wrong_arguments(model: Any, depth: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ModelSummary(model, depth)
    with pytest.raises(ArgumentValueError, match="-1"):
        get_human_readable_count(-1)


def test_the_compiler_is_imported_for_flops_only() -> None:
    code = (
        "import sys, torch; from fulmen.export import summarize; str(summarize(torch.nn.Linear(2, 2)));"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

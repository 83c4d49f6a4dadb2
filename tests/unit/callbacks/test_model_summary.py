"""The callbacks ModelSummary and RichModelSummary."""

from __future__ import annotations

import contextlib
import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fulmen.callbacks import ModelSummary, RichModelSummary, model_summary
from fulmen.callbacks.model_summary import default_model_summary
from fulmen.errors import ArgumentTypeError, ArgumentValueError
from tests.unit.callbacks.fakes import make_trainer

pytestmark = pytest.mark.feature("K-05")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.example_input_array: Any = None

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(model_summary, "rank_zero_info", lines.append)
    return lines


def test_the_table_is_logged_when_fit_begins(logged: list[str]) -> None:
    ModelSummary().on_fit_start(make_trainer(), Model())  # type: ignore[arg-type]  # any module will do
    assert "0 | net  | Sequential | 40" in logged[0]
    assert "Total params" in logged[0]


def test_depth_zero_and_other_ranks_show_nothing(logged: list[str]) -> None:
    ModelSummary(max_depth=0).on_fit_start(make_trainer(), Model())  # type: ignore[arg-type]  # any module will do
    ModelSummary().on_fit_start(make_trainer(is_global_zero=False), Model())  # type: ignore[arg-type]  # the same
    assert logged == []


def test_the_message_goes_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fulmen"):
        ModelSummary(max_depth=-1).on_fit_start(make_trainer(), Model())  # type: ignore[arg-type]  # any module will do
    assert "net.0" in caplog.text


def test_rich_prints_the_same_numbers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    RichModelSummary(max_depth=2, header_style="bold").on_fit_start(make_trainer(), Model())  # type: ignore[arg-type]
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)  # another test may have asked rich for colours
    assert "net.0" in out
    assert "Linear" in out
    assert "Trainable params: 40" in out


def test_the_precisions_context_and_types_are_used(logged: list[str]) -> None:
    entered: list[str] = []

    @contextlib.contextmanager
    def context() -> Any:
        entered.append("context")
        yield

    def convert(batch: torch.Tensor) -> torch.Tensor:
        entered.append("convert")
        return batch.double()

    model = Model().double()
    model.example_input_array = torch.zeros(2, 4)
    trainer = make_trainer(precision_plugin=SimpleNamespace(context=context, convert_input=convert))
    ModelSummary().on_fit_start(trainer, model)  # type: ignore[arg-type]  # any module will do
    assert entered == ["convert", "context"]
    assert "[2, 8]" in logged[0]


def test_a_subclass_shows_it_elsewhere() -> None:
    seen: dict[str, Any] = {}

    class Own(ModelSummary):
        @staticmethod
        def summarize(summary_data: Any, *args: Any, **kwargs: Any) -> None:
            seen.update(kwargs, names=dict(summary_data)["Name"], totals=args)

    Own(1, flavour="plain").on_fit_start(make_trainer(), Model())  # type: ignore[arg-type]  # any module will do
    assert seen["flavour"] == "plain"
    assert seen["names"] == ["net"]
    assert seen["totals"][:2] == (40, 40)
    assert seen["total_flops"] == 0


@pytest.mark.parametrize(("output", "kind"), [("terminal", RichModelSummary), ("plain", ModelSummary)])
def test_the_default_fits_the_output(output: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_summary, "output_kind", lambda: output)
    callback = default_model_summary(3)
    assert type(callback) is kind
    assert callback.max_depth == 3


@pytest.mark.parametrize(
    ("depth", "error"), [("1", ArgumentTypeError), (True, ArgumentTypeError), (-2, ArgumentValueError)]
)
def test_wrong_depths(depth: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"RichModelSummary\(max_depth="):
        RichModelSummary(depth)

"""Validation, test and prediction: several loaders, outputs, limits, what is returned and printed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.errors import MisconfigurationException
from tests.integration.toys import Toy, fit, loader, quiet, stream


class Several(Toy):
    """Takes the loader's number in all steps."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        loss = self.loss(batch)
        self.log("val", loss)
        self.log("number", float(dataloader_idx), add_dataloader_idx=False)
        return {"loss": loss, "where": (batch_idx, dataloader_idx)}

    test_step = validation_step  # type: ignore[assignment]  # the same

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return self.net(batch[0])


class Hears(L.Callback):
    """Keeps what batch hooks get."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.outputs: list[Any] = []

    def hear(self, name: str, outputs: Any, *rest: Any) -> None:
        self.calls.append((name, *rest))
        self.outputs.append(outputs)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *rest: Any) -> None:
        self.calls.append(("start", *rest))

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        self.hear("end", outputs, *rest)

    def on_test_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        self.hear("test", outputs, *rest)

    def on_predict_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        self.hear("predict", outputs, *rest)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        self.hear("train", outputs, *rest)


@pytest.mark.feature("T-09", "L-01")
@pytest.mark.parametrize("call", ["validate", "test"])
@pytest.mark.parametrize("kind", [list, tuple, lambda loaders: dict(zip(["a", "b"], loaders, strict=True))])
def test_several_loaders(call: str, kind: Any) -> None:
    module = Several()
    trainer = quiet()
    result = getattr(trainer, call)(module, kind([loader(4), loader(6, seed=2)]), verbose=False)
    names = list(result[0].keys() - {"number"}) + list(result[1].keys() - {"number"})
    assert names in (["val/dataloader_idx_0", "val/dataloader_idx_1"], ["val/a", "val/b"])
    assert [part["number"] for part in result] == pytest.approx([0.6, 0.6])  # one name in both: the mean over all rows
    for index, data in enumerate((loader(4), loader(6, seed=2))):
        expected = torch.stack([module.loss(batch) for batch in data]).mean().item()
        assert result[index][names[index]] == pytest.approx(expected, abs=1e-6)
    number = trainer.num_val_batches if call == "validate" else trainer.num_test_batches
    assert number == [2, 3]


@pytest.mark.feature("M-01", "M-03")
def test_the_number_of_the_loader_is_given_if_there_are_several() -> None:
    one, two = Hears(), Hears()
    quiet(callbacks=one).validate(Several(), loader(4), verbose=False)
    assert one.calls == [("start", 0), ("end", 0), ("start", 1), ("end", 1)]
    quiet(callbacks=two).validate(Several(), [loader(2), loader(4)], verbose=False)
    assert two.calls == [
        ("start", 0, 0), ("end", 0, 0), ("start", 0, 1), ("end", 0, 1), ("start", 1, 1), ("end", 1, 1),
    ]  # fmt: skip


@pytest.mark.feature("M-03")
def test_a_step_without_the_number_is_told_so_before_it_runs() -> None:
    with pytest.raises(MisconfigurationException, match=r"Toy\.validation_step.*dataloader_idx"):
        quiet().validate(Toy(), [loader(2), loader(4)], verbose=False)


@pytest.mark.feature("M-01")
@pytest.mark.parametrize("value", [None, 3, "text", [1, 2], {"a": 1}, object()])
@pytest.mark.parametrize("call", ["validate", "test", "predict"])
def test_outputs_of_evaluation_are_what_the_step_returned(value: Any, call: str) -> None:
    class Returns(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return value

        test_step = predict_step = validation_step  # type: ignore[assignment]  # the same

    hears = Hears()
    getattr(quiet(callbacks=hears), call)(Returns(), loader(2))
    assert len(hears.outputs) == 1
    assert hears.outputs[0] is value


@pytest.mark.feature("M-01")
def test_a_tensor_with_graph_stays_what_it_is() -> None:
    kept: list[Tensor] = []

    class Returns(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            kept.append(self.loss(batch))
            return kept[-1]

    hears = Hears()
    quiet(callbacks=hears).validate(Returns(), loader(2), verbose=False)
    assert hears.outputs[0] is kept[0]


@pytest.mark.feature("M-01", "M-02")
@pytest.mark.filterwarnings("ignore:.*with graph .* and somebody keeps it")
@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize(
    ("form", "keys"),
    [
        ("tensor", {"loss"}), ("dict", {"loss", "extra", "graph"}), ("none", set()),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*returned no loss in the whole epoch")
def test_outputs_of_training(form: str, keys: set[str], manual: bool) -> None:
    graphs: list[Tensor] = []

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        loss = module.loss(batch)
        graph = loss * 2
        graphs.append(graph)
        if manual:
            optimizer = module.optimizers()
            optimizer.zero_grad()
            module.manual_backward(loss, retain_graph=True)
            optimizer.step()
        return {"tensor": loss, "dict": {"loss": loss, "extra": 7, "graph": graph}, "none": None}[form]

    module = Toy(step)
    module.automatic_optimization = not manual
    hears = Hears()
    fit(module, callbacks=hears, limit_train_batches=2)
    for output, graph in zip(hears.outputs, graphs, strict=True):
        assert set(output) == keys
        if keys:
            assert not output["loss"].requires_grad
            assert output["loss"].item() == pytest.approx(graph.item() / 2)
        if "extra" in keys:
            assert output["extra"] == 7
            assert output["graph"] is graph  # as returned
    assert hears.calls == [("train", 0), ("train", 1)]


@pytest.mark.feature("M-01", "O-05")
def test_the_loss_of_an_accumulation_window_is_the_divided_one() -> None:
    hears = Hears()
    losses: list[float] = []

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        losses.append(module.loss(batch).item())
        return module.loss(batch)

    fit(Toy(step), callbacks=hears, accumulate_grad_batches=3)
    assert [output["loss"].item() for output in hears.outputs] == pytest.approx([loss / 3 for loss in losses])


# --- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(
    ("limit", "batches"), [(None, 6), (1.0, 6), (2, 2), (100, 6), (0.5, 3), (0.34, 2), (0, 0), (0.0, 0)]
)
@pytest.mark.parametrize("call", ["fit", "validate", "test", "predict"])
def test_limits(limit: Any, batches: int, call: str) -> None:
    hears = Hears()
    name = {"fit": "train", "validate": "val"}.get(call, call)
    trainer = quiet(callbacks=hears, **{f"limit_{name}_batches": limit})
    getattr(trainer, call)(Several(), loader())
    assert len(hears.outputs) == batches


@pytest.mark.feature("T-04")
def test_limits_of_several_loaders_and_of_unknown_length() -> None:
    hears = Hears()
    trainer = quiet(callbacks=hears, limit_val_batches=2)
    trainer.validate(Several(), [loader(2), loader(), stream()], verbose=False)
    assert trainer.num_val_batches == [1, 2, 2]
    assert len(hears.outputs) == 5
    with pytest.raises(MisconfigurationException, match=r"limit_val_batches=0\.5"):
        quiet(limit_val_batches=0.5).validate(Several(), stream(), verbose=False)


# --- prediction ----------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-02")
def test_prediction_returns_lists_per_loader() -> None:
    module = Several()
    one = quiet().predict(module, loader(6))
    expected = [module.net(x) for x, _ in loader(6)]
    assert one is not None
    assert [torch.equal(a, b) for a, b in zip(one, expected, strict=True)] == [True] * 3
    assert not any(part.requires_grad for part in one)
    two = quiet().predict(module, [loader(6), loader(4)])
    assert two is not None
    assert [len(part) for part in two] == [3, 2]
    assert len(quiet().predict(module, [loader(6)]) or []) == 3
    assert quiet().predict(module, loader(6), return_predictions=False) is None
    assert quiet(limit_predict_batches=0).predict(module, loader(6)) == []


@pytest.mark.feature("T-02", "M-01")
def test_prediction_by_default_is_the_modules_call() -> None:
    class Plain(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    module = Plain()
    got = quiet().predict(module, DataLoader(torch.ones(4, 4), batch_size=2))
    assert got is not None
    assert torch.equal(torch.cat(got), module(torch.ones(4, 4)))


# --- what is shown -------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-09")
@pytest.mark.parametrize("verbose", [True, False])
def test_the_table(verbose: bool, capsys: pytest.CaptureFixture[str]) -> None:
    result = quiet().test(Toy(), loader(4), verbose=verbose)
    shown = capsys.readouterr().out
    assert ("test_loss" in shown) is verbose
    if verbose:
        assert str(result[0]["test_loss"])[:8] in shown


@pytest.mark.feature("T-06")
@pytest.mark.parametrize("inference_mode", [True, False])
def test_modes_and_gradients_in_evaluation(inference_mode: bool) -> None:
    seen: list[tuple[bool, ...]] = []

    class Looks(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            seen.append((self.training, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            assert self.training and torch.is_grad_enabled()
            return self.loss(batch)

    fit(Looks(), None, loader(4), inference_mode=inference_mode, val_check_interval=2)
    assert set(seen) == {(False, False, inference_mode)}
    assert len(seen) == 6
    module = Looks()
    module.eval()
    quiet(inference_mode=inference_mode).validate(module, loader(4), verbose=False)
    assert not module.training
    assert torch.is_grad_enabled()

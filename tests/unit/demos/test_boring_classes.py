"""The demo classes are what Lightning's of these names are: the same numbers from the same seed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.demos import boring_classes as ours


@pytest.fixture(scope="module")
def theirs() -> Any:
    with warnings.catch_warnings():  # of the peer's own import
        warnings.simplefilter("ignore")
        return pytest.importorskip("lightning.pytorch.demos.boring_classes")


def test_public_classes_are_the_same(theirs: Any) -> None:
    own = {n for n, v in vars(theirs).items() if isinstance(v, type) and v.__module__ == theirs.__name__}
    assert own == set(ours.__all__)


@pytest.mark.feature("P-08")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("RandomDataset", (4, 6)),
        ("RandomDictDataset", (4, 6)),
        ("RandomIterableDataset", (4, 6)),
        ("RandomIterableDatasetWithLen", (4, 6)),
    ],
)
def test_data_sets_draw_the_same_numbers(theirs: Any, name: str, arguments: tuple[int, ...]) -> None:
    def rows(module: Any) -> list[Any]:
        torch.manual_seed(3)
        data = getattr(module, name)(*arguments)
        both = [list(data), list(data)] if hasattr(data, "__iter__") else [data[i] for i in range(len(data))]
        return [torch.stack(r) if isinstance(r, list) else r for r in both]

    torch.testing.assert_close(rows(ours), rows(theirs), rtol=0, atol=0)
    assert hasattr(getattr(ours, name), "__len__") == hasattr(getattr(theirs, name), "__len__")


@pytest.mark.feature("P-08")
@pytest.mark.parametrize("name", ["BoringModel", "ManualOptimBoringModel", "DemoModel", "Net"])
def test_modules_compute_the_same(theirs: Any, name: str) -> None:
    def outcome(module: Any) -> Any:
        torch.manual_seed(5)
        model = getattr(module, name)()
        return dict(model.state_dict()), model(torch.randn(*((2, 1, 28, 28) if name == "Net" else (2, 32))))

    torch.testing.assert_close(outcome(ours), outcome(theirs), rtol=0, atol=0)


@pytest.mark.feature("P-08")
@pytest.mark.parametrize("name", ["BoringDataModule", "BoringDataModuleNoLen", "IterableBoringDataModule"])
@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
def test_data_modules_give_the_same_batches(theirs: Any, name: str, stage: str) -> None:
    hooks = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}[stage]

    def batches(module: Any) -> list[Any]:
        torch.manual_seed(7)
        data = getattr(module, name)()
        data.setup(stage)
        found = [getattr(data, f"{hook}_dataloader")() for hook in hooks]
        flat = [loader for item in found for loader in (item if isinstance(item, list) else [item])]
        return [torch.cat(list(loader)) for loader in flat]

    torch.testing.assert_close(batches(ours), batches(theirs), rtol=0, atol=0)


@pytest.mark.feature("P-08")
@pytest.mark.parametrize("model", ["BoringModel", "ManualOptimBoringModel"])
def test_they_train_evaluate_and_predict(model: str) -> None:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = L.Trainer(**quiet, enable_model_summary=False, max_epochs=1, limit_train_batches=3, limit_val_batches=2)
    module = getattr(ours, model)()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trainer.fit(module, datamodule=ours.BoringDataModule())
    assert trainer.global_step == 3
    assert any(not torch.equal(before[name], value) for name, value in module.state_dict().items())
    trainer.test(module, verbose=False)
    assert len(trainer.predict(module)) == 64

"""Data modules, loader hooks and the way of batches to the device, in real runs."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import fulmen as L
from fulmen.callbacks import ModelCheckpoint
from fulmen.errors import ArgumentTypeError, DataError, MisconfigurationException
from tests.integration.toys import Toy, fit, loader, quiet


class Data(L.LightningDataModule):
    """Writes down what is called."""

    def __init__(self, calls: list[Any] | None = None) -> None:
        super().__init__()
        self.calls = calls if calls is not None else []
        self.epochs_given = 0

    def prepare_data(self) -> None:
        self.calls.append("dm.prepare_data")

    def setup(self, stage: str) -> None:
        self.calls.append(f"dm.setup({stage})")

    def teardown(self, stage: str) -> None:
        self.calls.append(f"dm.teardown({stage})")

    def on_exception(self, exception: BaseException) -> None:
        self.calls.append(f"dm.on_exception({exception})")

    def train_dataloader(self) -> Any:
        self.calls.append("dm.train_dataloader")
        return loader()

    def val_dataloader(self) -> Any:
        self.calls.append("dm.val_dataloader")
        return loader(4)

    def test_dataloader(self) -> Any:
        self.calls.append("dm.test_dataloader")
        return loader(6)

    def predict_dataloader(self) -> Any:
        self.calls.append("dm.predict_dataloader")
        return loader(8)


class Told(Toy):
    """A module with loaders and data hooks of its own, that tells of them."""

    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.calls = calls

    def prepare_data(self) -> None:
        self.calls.append("lm.prepare_data")

    def setup(self, stage: str) -> None:
        self.calls.append(f"lm.setup({stage})")

    def teardown(self, stage: str) -> None:
        self.calls.append(f"lm.teardown({stage})")

    def train_dataloader(self) -> Any:
        self.calls.append("lm.train_dataloader")
        return loader()

    def val_dataloader(self) -> Any:
        self.calls.append("lm.val_dataloader")
        return loader(4)


@pytest.mark.feature("D-01")
def test_order_and_number_of_calls() -> None:
    calls: list[Any] = []
    trainer = quiet(max_epochs=3)
    data, module = Data(calls), Told(calls)
    trainer.fit(module, datamodule=data)
    assert calls == [
        "dm.prepare_data", "lm.prepare_data", "dm.setup(fit)", "lm.setup(fit)", "dm.train_dataloader",
        "dm.val_dataloader", "dm.teardown(fit)", "lm.teardown(fit)",
    ]  # fmt: skip
    for call, stage, hook in (
        ("validate", "validate", "val"),
        ("test", "test", "test"),
        ("predict", "predict", "predict"),
    ):
        del calls[:]
        getattr(trainer, call)(module, data)
        assert calls == [
            "dm.prepare_data", "lm.prepare_data", f"dm.setup({stage})", f"lm.setup({stage})", f"dm.{hook}_dataloader",
            f"dm.teardown({stage})", f"lm.teardown({stage})",
        ]  # fmt: skip
    assert data.trainer is trainer


@pytest.mark.feature("D-01", "T-02")
def test_a_data_module_may_come_second_and_is_kept_for_calls_without_a_module() -> None:
    trainer, data = quiet(), Data()
    trainer.fit(Toy(), data)
    assert trainer.datamodule is data
    assert trainer.train_dataloader is not None
    trainer.test(verbose=False)
    assert data.calls[-2:] == ["dm.test_dataloader", "dm.teardown(test)"]
    assert len(trainer.predict() or []) == 4


@pytest.mark.feature("D-01")
def test_loaders_that_are_given_win_over_the_modules() -> None:
    calls: list[Any] = []
    fit(Told(calls), loader(4), loader(4))
    assert not [call for call in calls if "dataloader" in call]
    calls.clear()
    quiet().fit(Told(calls))
    assert [call for call in calls if "dataloader" in call] == ["lm.train_dataloader", "lm.val_dataloader"]


@pytest.mark.feature("D-01", "T-02")
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"datamodule": Data(), "train_dataloaders": [1]}, MisconfigurationException, "loaders or a data module, not"),
        ({"datamodule": object()}, ArgumentTypeError, "must be a LightningDataModule, but object was given"),
        ({"datamodule": loader()}, ArgumentTypeError, "must be a LightningDataModule, but DataLoader was given"),
        ({}, DataError, r"no `train_dataloader`.*three ways.*train_dataloaders=.*LightningDataModule.*define"),
        ({"train_dataloaders": 3}, MisconfigurationException, r"3"),
        ({"train_dataloaders": TensorDataset(torch.ones(2, 4))}, MisconfigurationException, "DataLoader"),
    ],
)  # fmt: skip
def test_wrong_data(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"(?s){words}"):
        quiet().fit(Toy(), **arguments)


@pytest.mark.feature("D-01")
@pytest.mark.parametrize("where", ["training_step", "validation_step", "setup"])
def test_the_data_module_hears_of_exceptions(where: str) -> None:
    class Fails(Toy):
        pass

    def fail(self: Any, *args: Any) -> None:
        raise ValueError("broken")

    setattr(Fails, where, fail)
    data = Data()
    with pytest.raises(ValueError, match="broken"):
        quiet().fit(Fails(), data)
    assert data.calls.count("dm.on_exception(broken)") == 1
    assert data.calls[-1] == "dm.teardown(fit)"


@pytest.mark.feature("D-01", "C-02")
def test_its_state_is_in_checkpoints(tmp_path: Path) -> None:
    class Remembers(Data):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"size": 3})
            self.seen = 0

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            self.seen += 1
            return batch

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.loaded = state_dict["seen"]

    callback = ModelCheckpoint(tmp_path, filename="here")
    quiet(callbacks=callback, enable_checkpointing=True).fit(Toy(), Remembers())
    checkpoint = torch.load(tmp_path / "here.ckpt", weights_only=True)
    key = Remembers.__qualname__
    assert checkpoint[key] == {"seen": 8}  # 6 of training, 2 of validation
    assert checkpoint["datamodule_hyper_parameters"] == {"size": 3}
    data = Remembers()
    again = quiet(max_epochs=2, callbacks=ModelCheckpoint(tmp_path, filename="again"), enable_checkpointing=True)
    again.fit(Toy(), data, ckpt_path=tmp_path / "here.ckpt")
    assert data.loaded == 8


@pytest.mark.feature("D-01")
@pytest.mark.parametrize("per_node", [True, False])
def test_prepare_data_is_for_one_process_of_a_node(per_node: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepared(local_rank: int, node_rank: int) -> bool:
        data = Data()
        data.prepare_data_per_node = per_node
        trainer = quiet()
        monkeypatch.setattr(type(trainer), "local_rank", local_rank)
        monkeypatch.setattr(type(trainer), "node_rank", node_rank)
        trainer.fit(Toy(), data)
        return "dm.prepare_data" in data.calls

    assert prepared(0, 0)
    assert prepared(0, 1) is per_node
    assert not prepared(1, 0)


@pytest.mark.feature("D-01")
def test_from_datasets() -> None:
    data = L.LightningDataModule.from_datasets(
        loader().dataset, val_dataset=[loader(4).dataset, loader(6).dataset], test_dataset=loader(8).dataset,
        batch_size=2, num_workers=0,
    )  # fmt: skip
    trainer = quiet()

    class Several(Toy):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("val", self.loss(batch))

    trainer.fit(Several(), data)
    assert (trainer.num_training_batches, trainer.num_val_batches) == (6, [2, 3])


# --- transfer ------------------------------------------------------------------------------------------------------


def hooked(base: Any, calls: list[Any], who: str) -> Any:
    class Hooked(base):  # type: ignore[misc]  # module or data module
        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            calls.append((f"{who}.before", dataloader_idx, self.trainer.state.stage.value))
            return [batch[0] + 1, batch[1]]

        def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
            calls.append((f"{who}.transfer", dataloader_idx, str(device)))
            return super().transfer_batch_to_device(batch, device, dataloader_idx)

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            calls.append((f"{who}.after", dataloader_idx, self.trainer.state.stage.value))
            return [batch[0] * 2, batch[1]]

    return Hooked


@pytest.mark.feature("D-01", "M-01")
@pytest.mark.parametrize("with_data", [True, False])
def test_transfer_hooks_and_the_data_modules_win(with_data: bool) -> None:
    calls: list[Any] = []
    seen: list[Tensor] = []

    class Sees(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            seen.append(batch[0].clone())
            return super().training_step(batch, batch_idx)

    module = hooked(Sees, calls, "lm")()
    data = hooked(Data, calls, "dm")() if with_data else Data()
    quiet(limit_train_batches=1, limit_val_batches=1).fit(module, data)
    who = "dm" if with_data else "lm"
    assert calls == [
        (f"{who}.before", 0, "train"), (f"{who}.transfer", 0, "cpu"), (f"{who}.after", 0, "train"),
        (f"{who}.before", 0, "validate"), (f"{who}.transfer", 0, "cpu"), (f"{who}.after", 0, "validate"),
    ]  # fmt: skip
    assert torch.equal(seen[0], (next(iter(loader()))[0] + 1) * 2)


@dataclasses.dataclass
class Sample:
    x: Tensor
    y: Tensor
    name: str = "sample"


Named = namedtuple("Named", ["x", "y"])


class Own:
    """Has its own way to a device."""

    def __init__(self, x: Tensor, y: Tensor, moved: str = "") -> None:
        self.x, self.y, self.moved = x, y, moved

    def to(self, device: torch.device, **kwargs: Any) -> Own:
        return Own(self.x.to(device), self.y.to(device), str(device))


def deep(x: Tensor, y: Tensor) -> Any:
    return {"a": [Sample(x, y), (Named(x, y), "text")], "b": {"own": Own(x, y), "none": None, "number": 3}}


@pytest.mark.feature("D-05")
@pytest.mark.parametrize("make", [Sample, Named, Own, deep, lambda x, y: [x, y], lambda x, y: {"x": x, "y": y}])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_nested_batches_reach_the_device_in_every_loop(make: Any, device: str) -> None:
    seen: list[Any] = []

    class Looks(Toy):
        def look(self, batch: Any, *args: Any) -> None:
            seen.append(batch)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.look(batch)
            return self.net(torch.ones(1, 4, device=self.device)).sum()

        validation_step = test_step = predict_step = look  # type: ignore[assignment]  # all look

    from tests.integration.test_logging import far

    data = DataLoader([make(torch.ones(2, 4), torch.zeros(2, 1))], batch_size=None, collate_fn=lambda batch: batch)
    trainer = far() if device == "meta" else quiet()
    module = Looks()
    trainer.fit(module, data, data)
    trainer.test(module, data, verbose=False)
    trainer.predict(module, data)
    assert len(seen) == 4
    for batch in seen:
        if make is deep:
            parts = [batch["a"][0], batch["a"][1][0], batch["b"]["own"]]
            assert (batch["a"][1][1], batch["b"]["none"], batch["b"]["number"]) == ("text", None, 3)
        else:
            parts = [batch]
        for part in parts:
            x = part["x"] if isinstance(part, dict) else part[0] if isinstance(part, (list, tuple)) else part.x
            assert x.device.type == device
            if isinstance(part, Own):
                assert part.moved == device
            if isinstance(part, Sample):
                assert part.name == "sample"
    assert type(seen[0]) is type(make(torch.ones(1), torch.ones(1)))


@pytest.mark.feature("D-05")
def test_the_users_batch_is_not_changed() -> None:
    kept = Sample(torch.ones(2, 4), torch.zeros(2, 1))

    class Takes(Toy):
        def loss(self, batch: Any) -> Tensor:
            return super().loss((batch.x, batch.y))

    data = DataLoader([kept], batch_size=None, collate_fn=lambda batch: batch)
    fit(Takes(), data, precision="64-true")
    assert kept.x.dtype == torch.float32

"""Data modules without a trainer: hooks, data sets, copies, text."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, TensorDataset

import fulmen.core
from fulmen.core.datahooks import DataHooks
from fulmen.core.datamodule import LightningDataModule
from fulmen.core.hparams import HyperparametersMixin
from fulmen.core.module import LightningModule
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException

pytestmark = pytest.mark.feature("D-01")


class Numbers(Dataset[int]):
    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(4))


class MapStyle:
    """A data set of another library: it does not derive from torch's class."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


class Own(LightningDataModule):
    def __init__(self, count: int, batch_size: int = 2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.seen: list[Any] = []

    def prepare_data(self) -> None:
        self.seen.append("prepare_data")

    def setup(self, stage: str) -> None:
        self.seen.append(stage)
        self.data = Numbers(self.hparams.count)

    def train_dataloader(self) -> Any:
        return DataLoader(self.data, batch_size=self.hparams.batch_size)

    def val_dataloader(self) -> Any:
        return [DataLoader(self.data), DataLoader(Stream())]


# --------------------------------------------------------------------------------------------------------------- hooks


@pytest.mark.feature("M-05")
def test_usable_without_a_trainer() -> None:
    data = Own(10, batch_size=5)
    data.prepare_data()
    data.setup("fit")
    assert [batch.tolist() for batch in data.train_dataloader()] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    data.teardown("fit")
    data.on_exception(ValueError())
    assert data.trainer is None
    assert data.seen == ["prepare_data", "fit"]
    assert data.state_dict() == {}
    assert data.load_state_dict({}) is None


def test_defaults_are_there_without_super_init() -> None:
    class Data(LightningDataModule):
        def __init__(self):
            pass

    data = Data()
    assert data.trainer is None
    assert data.name is None
    assert data.prepare_data_per_node is True
    assert data.allow_zero_length_dataloader_with_multiple_devices is False
    assert LightningDataModule(1, a=2).hparams == {}


@pytest.mark.parametrize("kind", [LightningDataModule, LightningModule])
@pytest.mark.parametrize(
    ("hook", "verb"),
    [
        ("train_dataloader", "fit"),
        ("val_dataloader", "validate"),
        ("test_dataloader", "test"),
        ("predict_dataloader", "predict"),
    ],
)
def test_missing_loader(kind: type, hook: str, verb: str) -> None:
    with pytest.raises(MisconfigurationException, match=rf"{kind.__name__} has no `{hook}`.*trainer\.{verb}"):
        getattr(kind(), hook)()


def test_transfer_hooks() -> None:
    data = LightningDataModule()
    batch = {"x": torch.ones(2), "n": 3}
    assert data.on_before_batch_transfer(batch, 0) is batch
    assert data.on_after_batch_transfer(batch, 0) is batch
    moved = data.transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert moved["x"].device.type == "meta"
    assert moved["n"] == 3


def test_public_names() -> None:
    assert fulmen.core.LightningDataModule is LightningDataModule
    assert fulmen.core.LightningModule is LightningModule
    assert issubclass(LightningDataModule, DataHooks) and issubclass(LightningDataModule, HyperparametersMixin)
    assert set(fulmen.core.__all__) <= set(dir(fulmen.core))
    with pytest.raises(AttributeError, match="'LightningModul'"):
        _ = fulmen.core.LightningModul
    assert LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY == "datamodule_hyper_parameters"
    assert LightningDataModule.CHECKPOINT_HYPER_PARAMS_NAME == "datamodule_hparams_name"
    assert LightningDataModule.CHECKPOINT_HYPER_PARAMS_TYPE == "datamodule_hparams_type"


# ------------------------------------------------------------------------------------------------------- from_datasets


def test_from_datasets() -> None:
    sets = [Numbers(n) for n in (10, 20, 30, 40)]
    data = LightningDataModule.from_datasets(*sets, batch_size=4, num_workers=0)
    loaders = [data.train_dataloader(), data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()]
    assert [loader.dataset for loader in loaders] == sets
    assert {loader.batch_size for loader in loaders} == {4}
    assert [type(loader.sampler) for loader in loaders] == [RandomSampler] + 3 * [SequentialSampler]
    assert data.train_dataloader() is not loaders[0]
    assert len(next(iter(loaders[0]))) == 4


def test_from_datasets_leaves_the_rest_undefined() -> None:
    data = LightningDataModule.from_datasets(val_dataset=Numbers())
    assert "train_dataloader" not in vars(data)
    with pytest.raises(MisconfigurationException):
        data.train_dataloader()
    assert data.val_dataloader().batch_size == 1


def test_from_nested_datasets() -> None:
    data = LightningDataModule.from_datasets(
        train_dataset={"a": Numbers(1), "b": [Stream(), Numbers(2)]}, val_dataset=(Numbers(3), Numbers(4))
    )
    train = data.train_dataloader()
    assert isinstance(train["a"].sampler, RandomSampler)
    assert train["b"][0].batch_size == 1
    assert isinstance(train["b"][1].sampler, RandomSampler)
    assert [len(loader) for loader in data.val_dataloader()] == [3, 4]


def test_iterable_datasets_are_not_shuffled() -> None:
    data = LightningDataModule.from_datasets(Stream(), batch_size=2)
    assert [batch.tolist() for batch in data.train_dataloader()] == [[0, 1], [2, 3]]


def test_datasets_of_other_libraries_and_ready_loaders() -> None:
    loader = DataLoader(Numbers())
    data = LightningDataModule.from_datasets(MapStyle(), [loader])
    assert len(data.train_dataloader()) == 3
    assert data.val_dataloader() == [loader]


def test_from_datasets_passes_on_what_the_constructor_takes() -> None:
    data = Own.from_datasets(Numbers(), batch_size=5, count=7)
    assert dict(data.hparams) == {"count": 7, "batch_size": 5}
    assert isinstance(data, Own)

    class All(LightningDataModule):
        def __init__(self, **kwargs):
            super().__init__()
            self.save_hyperparameters()

    assert dict(All.from_datasets(Numbers(), batch_size=5, x=1).hparams) == {"batch_size": 5, "num_workers": 0, "x": 1}


Pair = namedtuple("Pair", ["x", "y"])


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        (
            {"train_dataset": torch.ones(3)},
            ArgumentTypeError,
            r"train_dataset=.*Tensor where a data set.*TensorDataset",
        ),
        ({"val_dataset": np.ones(3)}, ArgumentTypeError, r"val_dataset=.*ndarray"),
        ({"test_dataset": [Numbers(), 3]}, ArgumentTypeError, r"test_dataset=.*int"),
        ({"predict_dataset": {"a": "text"}}, ArgumentTypeError, r"predict_dataset=.*str"),
        ({"train_dataset": Pair(1, 2)}, ArgumentTypeError, "int"),
        ({"train_dataset": Numbers}, ArgumentTypeError, "found a type"),
        ({"train_dataset": iter([1])}, ArgumentTypeError, "list_iterator"),
        ({"batch_size": 0}, ArgumentValueError, r"batch_size=0\): it must be at least 1"),
        ({"batch_size": 2.0}, ArgumentTypeError, r"batch_size=2\.0"),
        ({"batch_size": True}, ArgumentTypeError, "batch_size=True"),
        ({"num_workers": -1}, ArgumentValueError, r"num_workers=-1\): it must be at least 0"),
        ({"num_workers": "2"}, ArgumentTypeError, "num_workers='2'"),
    ],
)
def test_from_datasets_refuses(kwargs: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        LightningDataModule.from_datasets(**kwargs)


# ------------------------------------------------------------------------------------------------------ copies and text


@pytest.mark.feature("M-12")
@pytest.mark.parametrize("again", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d)), copy.copy])
def test_copies_drop_the_trainer(again: Any) -> None:
    data = LightningDataModule.from_datasets(TensorDataset(torch.arange(4)), batch_size=2)
    data.save_hyperparameters({"a": 1})
    data.trainer = lambda: None  # what cannot be pickled
    other = again(data)
    assert other.trainer is None
    assert data.trainer is not None
    assert other.hparams == {"a": 1}
    assert len(other.train_dataloader()) == 2


def test_text() -> None:
    data = Own(10)
    assert str(data) == (
        "{Train dataloader: None}\n{Validation dataloader: None}\n{Test dataloader: None}\n{Predict dataloader: None}"
    )
    data.setup("fit")
    data.predict_dataloader = lambda: {"a": DataLoader(Numbers(3))}  # type: ignore[method-assign]  # as users do
    assert str(data) == (
        "{Train dataloader: size=10}\n{Validation dataloader: 1. size=10 ; 2. size=NA}\n{Test dataloader: None}\n"
        "{Predict dataloader: a. size=3}"
    )

"""The least that trains, evaluates and predicts: random data, one linear layer, every step there.

Names, sizes and the order in which random numbers are drawn are those of Lightning's module of this name, so that
tests and bug reports written with it see the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from fulmen.core.datamodule import LightningDataModule
from fulmen.core.module import LightningModule
from fulmen.utilities.types import STEP_OUTPUT

__all__ = [
    "BoringDataModule",
    "BoringDataModuleNoLen",
    "BoringModel",
    "DemoModel",
    "IterableBoringDataModule",
    "ManualOptimBoringModel",
    "Net",
    "RandomDataset",
    "RandomDictDataset",
    "RandomIterableDataset",
    "RandomIterableDatasetWithLen",
]

_FEATURES = 32
_ROWS = 64


class RandomDataset(Dataset[Tensor]):
    """Rows of a standard normal matrix that is drawn once.

    Args:
        size: Numbers per row.
        length: Number of rows.
    """

    def __init__(self, size: int, length: int) -> None:
        self.len = length
        self.data = torch.randn(length, size)

    def __getitem__(self, index: int) -> Tensor:
        return self.data[index]

    def __len__(self) -> int:
        return self.len


class RandomDictDataset(Dataset[dict[str, Tensor]]):
    """As `RandomDataset`, with samples ``{"a": row, "b": row + 2}``.

    Args:
        size: Numbers per row.
        length: Number of rows.
    """

    def __init__(self, size: int, length: int) -> None:
        self.len = length
        self.data = torch.randn(length, size)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row = self.data[index]
        return {"a": row, "b": row + 2}

    def __len__(self) -> int:
        return self.len


class RandomIterableDataset(IterableDataset[Tensor]):
    """A stream of `count` standard normal rows, drawn anew in each pass; it has no length.

    Args:
        size: Numbers per row.
        count: Rows per pass.
    """

    def __init__(self, size: int, count: int) -> None:
        self.count = count
        self.size = size

    def __iter__(self) -> Iterator[Tensor]:
        return (torch.randn(self.size) for _ in range(self.count))


class RandomIterableDatasetWithLen(RandomIterableDataset):
    """A `RandomIterableDataset` that says how many rows it gives."""

    def __len__(self) -> int:
        return self.count


class BoringModel(LightningModule):
    """One linear layer from 32 numbers to 2 that learns to answer 1; to be subclassed in tests.

    It brings loaders for every stage (64 random rows, batches of one), SGD with a learning rate of 0.1 and a schedule
    that divides it by 10 after each epoch. The steps return ``{"loss": ...}``, ``{"x": ...}`` and ``{"y": ...}``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(_FEATURES, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: (batch, 32) → (batch, 2)."""
        return self.layer(x)

    def loss(self, preds: Tensor, labels: Tensor | None = None) -> Tensor:
        """Mean squared distance from the labels, or from 1 without labels."""
        return F.mse_loss(preds, torch.ones_like(preds) if labels is None else labels)

    def step(self, batch: Any) -> Tensor:
        """Loss of a batch."""
        return self.loss(self(batch))

    def training_step(self, batch: Any, batch_idx: int) -> STEP_OUTPUT:
        """Return the loss under ``"loss"``."""
        return {"loss": self.step(batch)}

    def validation_step(self, batch: Any, batch_idx: int) -> STEP_OUTPUT:
        """Return the loss under ``"x"``."""
        return {"x": self.step(batch)}

    def test_step(self, batch: Any, batch_idx: int) -> STEP_OUTPUT:
        """Return the loss under ``"y"``."""
        return {"y": self.step(batch)}

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[LRScheduler]]:
        """SGD, and a step schedule by the epoch."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)]

    def train_dataloader(self) -> DataLoader[Tensor]:
        """64 random rows."""
        return _random_rows()

    def val_dataloader(self) -> DataLoader[Tensor]:
        """64 random rows."""
        return _random_rows()

    def test_dataloader(self) -> DataLoader[Tensor]:
        """64 random rows."""
        return _random_rows()

    def predict_dataloader(self) -> DataLoader[Tensor]:
        """64 random rows."""
        return _random_rows()


def _random_rows() -> DataLoader[Tensor]:
    return DataLoader(RandomDataset(_FEATURES, _ROWS))


class ManualOptimBoringModel(BoringModel):
    """A `BoringModel` that optimizes by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> STEP_OUTPUT:
        """Zero the gradients, go backward, step; return the loss."""
        optimizer: Any = self.optimizers()
        loss = self.step(batch)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return loss


class BoringDataModule(LightningDataModule):
    """256 random rows, a quarter for each stage, made into loaders in `setup`."""

    def __init__(self) -> None:
        super().__init__()
        self.random_full = RandomDataset(_FEATURES, _ROWS * 4)

    def setup(self, stage: str) -> None:
        """Take the quarters that a stage needs."""
        if stage == "fit":
            self.random_train = self._quarter(0)
        if stage in ("fit", "validate"):
            self.random_val = self._quarter(1)
        if stage == "test":
            self.random_test = self._quarter(2)
        if stage == "predict":
            self.random_predict = self._quarter(3)

    def _quarter(self, number: int) -> Subset[Tensor]:
        return Subset(self.random_full, indices=range(_ROWS * number, _ROWS * (number + 1)))

    def train_dataloader(self) -> DataLoader[Tensor]:
        """The first quarter."""
        return DataLoader(self.random_train)

    def val_dataloader(self) -> DataLoader[Tensor]:
        """The second quarter."""
        return DataLoader(self.random_val)

    def test_dataloader(self) -> DataLoader[Tensor]:
        """The third quarter."""
        return DataLoader(self.random_test)

    def predict_dataloader(self) -> DataLoader[Tensor]:
        """The last quarter."""
        return DataLoader(self.random_predict)


class BoringDataModuleNoLen(LightningDataModule):
    """Streams without length: 512 rows for training, 128, 256 and 64 for validation, test and prediction."""

    def setup(self, stage: str) -> None:
        """Make the streams that a stage needs."""
        if stage == "fit":
            self.random_train = RandomIterableDataset(_FEATURES, 512)
        if stage in ("fit", "validate"):
            self.random_val = RandomIterableDataset(_FEATURES, 128)
        if stage == "test":
            self.random_test = RandomIterableDataset(_FEATURES, 256)
        if stage == "predict":
            self.random_predict = RandomIterableDataset(_FEATURES, 64)

    def train_dataloader(self) -> DataLoader[Tensor]:
        """The training stream."""
        return DataLoader(self.random_train)

    def val_dataloader(self) -> DataLoader[Tensor]:
        """The validation stream."""
        return DataLoader(self.random_val)

    def test_dataloader(self) -> DataLoader[Tensor]:
        """The test stream."""
        return DataLoader(self.random_test)

    def predict_dataloader(self) -> DataLoader[Tensor]:
        """The prediction stream."""
        return DataLoader(self.random_predict)


class IterableBoringDataModule(LightningDataModule):
    """Two loaders in every stage, one over a data set and one over a stream, both of rows of 4 numbers."""

    def setup(self, stage: str) -> None:
        """Make the data sets that a stage needs: 16, 32, 64 or 128 rows each."""
        if stage == "fit":
            self.train_datasets = self._pair(16)
        if stage in ("fit", "validate"):
            self.val_datasets = self._pair(32)
        if stage == "test":
            self.test_datasets = self._pair(64)
        if stage == "predict":
            self.predict_datasets = self._pair(128)

    @staticmethod
    def _pair(rows: int) -> list[Dataset[Tensor]]:
        return [RandomDataset(4, rows), RandomIterableDataset(4, rows)]

    def train_dataloader(self) -> list[DataLoader[Tensor]]:
        """One loader for each of the two."""
        return [DataLoader(data) for data in self.train_datasets]

    def val_dataloader(self) -> list[DataLoader[Tensor]]:
        """One loader for each of the two."""
        return [DataLoader(data) for data in self.val_datasets]

    def test_dataloader(self) -> list[DataLoader[Tensor]]:
        """One loader for each of the two."""
        return [DataLoader(data) for data in self.test_datasets]

    def predict_dataloader(self) -> list[DataLoader[Tensor]]:
        """One loader for each of the two."""
        return [DataLoader(data) for data in self.predict_datasets]


class DemoModel(LightningModule):
    """A layer with a constructor that takes arguments, for command lines and hyperparameters.

    Args:
        out_dim: Numbers that the layer gives for 32.
        learning_rate: Of Adam.
    """

    def __init__(self, out_dim: int = 10, learning_rate: float = 0.02) -> None:
        super().__init__()
        self.l1 = nn.Linear(_FEATURES, out_dim)
        self.learning_rate = learning_rate

    def forward(self, x: Tensor) -> Tensor:
        """Flatten, apply the layer and cut below zero: (batch, ...) → (batch, out_dim)."""
        return torch.relu(self.l1(x.flatten(1)))

    def training_step(self, batch: Any, batch_nb: int) -> STEP_OUTPUT:
        """Return the sum of the outputs."""
        return self(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)


class Net(nn.Module):
    """A small convolutional network for 28 x 28 pictures of one channel: logarithms of 10 probabilities.

    The layers are those of PyTorch's MNIST example.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify pictures: (batch, 1, 28, 28) → (batch, 10)."""
        features = F.relu(self.conv2(F.relu(self.conv1(x))))
        flat = self.dropout1(F.max_pool2d(features, 2)).flatten(1)
        hidden = self.dropout2(F.relu(self.fc1(flat)))
        return F.log_softmax(self.fc2(hidden), dim=1)

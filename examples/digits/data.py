"""The 1,797 handwritten digits that scikit-learn ships (8 x 8 pixels, 10 classes), split and augmented."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

import fulmen as L


class Shifted(Dataset[tuple[Tensor, Tensor]]):
    """Augmentation: each image moved by up to one pixel, with a little noise.

    Args:
        data: Pairs of image (1, 8, 8) and class.
    """

    def __init__(self, data: Dataset[tuple[Tensor, Tensor]]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)  # type: ignore[arg-type]  # a Subset has a length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, label = self.data[index]
        down, right = torch.randint(-1, 2, (2,)).tolist()
        image = torch.roll(image, (down, right), dims=(1, 2))
        return image + 0.05 * torch.randn_like(image), label


class DigitsData(L.LightningDataModule):
    """Train, validation and test split of the digits.

    Args:
        batch_size: Images per batch.
        split_seed: Seed of the split, the same on every machine.
    """

    def __init__(self, batch_size: int = 64, split_seed: int = 7) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        """Load and split; the same split in every process and every stage."""
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
        labels = torch.tensor(digits.target)
        split = torch.Generator().manual_seed(self.hparams["split_seed"])
        self.train, self.val, self.held_out = random_split(
            TensorDataset(images, labels), [1257, 180, 360], generator=split
        )

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """Shuffled and augmented."""
        return DataLoader(Shifted(self.train), batch_size=self.hparams["batch_size"], shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """In order, as it is."""
        return DataLoader(self.val, batch_size=256)

    def test_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """In order, as it is."""
        return DataLoader(self.held_out, batch_size=256)

    def predict_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The test images once more."""
        return self.test_dataloader()

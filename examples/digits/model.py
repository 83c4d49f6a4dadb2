"""A small residual network (He et al., 2016, https://arxiv.org/abs/1512.03385) for 8 x 8 images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fulmen as L


class Block(nn.Module):
    """Two 3 x 3 convolutions around a skip connection.

    Args:
        channels_in: Channels of the input.
        channels: Channels of the output.
        stride: 2 halves the image.
    """

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        same = stride == 1 and channels_in == channels
        self.skip = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) to images."""
        return F.relu(self.body(x) + self.skip(x))


class DigitsNet(L.LightningModule):
    """Classifies digits; AdamW with a cosine schedule over all steps.

    Args:
        width: Channels of the first block.
        learning_rate: Peak rate of AdamW.
        weight_decay: Of AdamW.
    """

    def __init__(self, width: int = 16, learning_rate: float = 3e-3, weight_decay: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            Block(width, width),
            Block(width, 2 * width, stride=2),
            Block(2 * width, 4 * width, stride=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(4 * width, 10),
        )
        self.example_input_array = torch.zeros(1, 1, 8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 1, 8, 8) to logits (N, 10)."""
        return self.net(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Cross entropy."""
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def evaluate(self, batch: tuple[Tensor, Tensor], stage: str) -> None:
        """Loss and accuracy of one batch."""
        images, labels = batch
        logits = self(images)
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        self.log_dict({f"{stage}_loss": F.cross_entropy(logits, labels), f"{stage}_acc": accuracy}, prog_bar=True)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss and accuracy."""
        self.evaluate(batch, "val")

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss and accuracy."""
        self.evaluate(batch, "test")

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The most likely class of each image."""
        return self(batch[0]).argmax(dim=1)

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW, its rate falling along a cosine to zero at the last step."""
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=self.hparams["learning_rate"], weight_decay=self.hparams["weight_decay"]
        )
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

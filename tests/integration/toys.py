"""Tiny modules, data and Trainers for tests of whole runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import fulmen as L
from fulmen.engine.precision import MixedPrecision


def rows(count: int = 12, *, seed: int = 1) -> TensorDataset:
    """Rows of a linear problem with some noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    noise = torch.randn(count, 1, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True) + 0.1 * noise)


def loader(count: int = 12, batch_size: int = 2, *, seed: int = 1) -> DataLoader[Any]:
    """`count` rows in batches of `batch_size`, in order."""
    return DataLoader(rows(count, seed=seed), batch_size=batch_size)


class Endless(IterableDataset[Any]):
    """The same rows, from an iterable without length."""

    def __init__(self, count: int = 12) -> None:
        self.rows = rows(count)

    def __iter__(self) -> Any:
        for index in range(len(self.rows)):
            yield self.rows[index]


def stream(count: int = 12, batch_size: int = 2) -> DataLoader[Any]:
    """The rows of `loader`, without a known length."""
    return DataLoader(Endless(count), batch_size=batch_size)


class Toy(L.LightningModule):
    """A linear model with fixed first weights.

    Args:
        step: What `training_step` returns, given module, batch and index; the loss if not given.
        optimizers: What `configure_optimizers` returns, given the module; SGD if not given.
    """

    def __init__(
        self, step: Callable[..., Any] | None = None, optimizers: Callable[[Any], Any] | None = None, lr: float = 0.1
    ) -> None:
        super().__init__()
        self.net = nn.Linear(4, 1)
        with torch.no_grad():
            self.net.weight.copy_(torch.tensor([[0.1, -0.2, 0.3, -0.4]]))
            self.net.bias.zero_()
        self.lr = lr
        self.own_step = step
        self.own_optimizers = optimizers
        self.seen: list[int] = []

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append(batch_idx)
        return self.loss(batch) if self.own_step is None else self.own_step(self, batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("val_loss", loss)
        return loss

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("test_loss", self.loss(batch))

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return self.net(batch[0])

    def configure_optimizers(self) -> Any:
        if self.own_optimizers is not None:
            return self.own_optimizers(self)
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Manual(Toy):
    """The same in manual optimization; `step` does everything."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False


QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "num_sanity_val_steps": 0,
}


def quiet(**arguments: Any) -> L.Trainer:
    """A Trainer that writes and shows nothing; one epoch unless told otherwise."""
    return L.Trainer(**{"max_epochs": 1, **QUIET, **arguments})


def fit(module: L.LightningModule, train: Any = None, val: Any = None, **arguments: Any) -> L.Trainer:
    """Fit `module` and return the Trainer."""
    trainer = quiet(**arguments)
    trainer.fit(module, loader() if train is None else train, val)
    return trainer


def number_format(name: str) -> dict[str, Any]:
    """Arguments of a Trainer for a precision; float16 with a loss scale that does not overflow at once."""
    if name != "16-mixed":
        return {"precision": name}
    return {"plugins": MixedPrecision(name, "cpu", torch.amp.GradScaler("cpu", init_scale=8.0))}


def weights(module: nn.Module) -> Tensor:
    """All weights in one vector, detached."""
    return torch.cat([p.detach().clone().flatten() for p in module.parameters()])


def sgd_by_hand(
    batches: list[Any], *, lr: float = 0.1, window: int = 1, divisor: Callable[[int], int] | None = None
) -> Tensor:
    """Weights of a `Toy` after plain SGD, `window` batches per step.

    Args:
        batches: The batches.
        lr: Learning rate.
        window: Batches per step; the last window may be shorter.
        divisor: Given the number of batches in a window, by what each loss is divided; that number if not given.
    """
    module = Toy()
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    for start in range(0, len(batches), window):
        part = batches[start : start + window]
        by = len(part) if divisor is None else divisor(len(part))
        optimizer.zero_grad()
        for batch in part:
            (module.loss(batch) / by).backward()
        optimizer.step()
    return weights(module)

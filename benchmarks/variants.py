"""Further kinds of training, each by hand and by a framework with Lightning's interface.

Accumulation over four batches; two optimizers, one after the other in each step; two loaders side by side; a
`TensorDataset` whose rows a shuffling `DataLoader` makes batches of. The net, the optimizer and the clocks are those of
`benchmarks/contenders.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from benchmarks.contenders import Contender, Marks, Timing, bare_trainer, make_loader, make_net, make_optimizer

WINDOW = 4
SIZE = 32


class MarkedOrder(Marks, RandomSampler):
    """A shuffled order that notes the time at which the indices of two batches are asked for."""

    def __init__(self, steps: int) -> None:
        Marks.__init__(self, steps)
        RandomSampler.__init__(self, range(steps * SIZE))

    def _mark(self, index: int) -> Iterator[int]:
        self.note(index)
        return
        yield

    def __iter__(self) -> Iterator[int]:
        order = super().__iter__()
        head, middle = islice(order, self.first * SIZE), islice(order, (self.steps - 1 - self.first) * SIZE)
        return chain(head, self._mark(self.first), middle, self._mark(self.steps - 1), order)


def make_rows_loader(steps: int) -> tuple[MarkedOrder, DataLoader[Any]]:
    """As many rows as `steps` batches need, and a loader that shuffles them."""
    order, generator = MarkedOrder(steps), torch.Generator().manual_seed(0)
    x = torch.randn(steps * SIZE, 32, generator=generator)
    y = torch.randint(10, (steps * SIZE,), generator=generator)
    return order, DataLoader(TensorDataset(x, y), batch_size=SIZE, sampler=order)


def accumulation_by_hand(steps: int, folder: Path) -> Timing:
    batches, loader = make_loader(steps)
    net = make_net()
    optimizer = make_optimizer(net)
    for batch_idx, (x, y) in enumerate(loader, 1):
        loss = F.cross_entropy(net(x), y) / WINDOW
        loss.backward()
        if batch_idx % WINDOW == 0 or batch_idx == len(loader):
            optimizer.step()
            optimizer.zero_grad()
    return batches.timing


def manual_by_hand(steps: int, folder: Path) -> Timing:
    batches, loader = make_loader(steps)
    first, second = make_net(), make_net()
    optimizers = make_optimizer(first), make_optimizer(second)
    for x, y in loader:
        for net, optimizer in zip((first, second), optimizers, strict=True):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return batches.timing


def combined_by_hand(steps: int, folder: Path) -> Timing:
    batches, loader = make_loader(steps)
    _, other = make_loader(steps)
    net = make_net()
    optimizer = make_optimizer(net)
    for (x, y), (x2, y2) in zip(loader, other, strict=True):
        loss = F.cross_entropy(net(x), y) + F.cross_entropy(net(x2), y2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return batches.timing


def rows_by_hand(steps: int, folder: Path) -> Timing:
    order, loader = make_rows_loader(steps)
    net = make_net()
    optimizer = make_optimizer(net)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return order.timing


BY_HAND: dict[str, tuple[str, Contender]] = {
    "accumulation": ("accumulation by hand", accumulation_by_hand),
    "manual": ("two optimizers by hand", manual_by_hand),
    "combined": ("two loaders by hand", combined_by_hand),
    "rows": ("TensorDataset by hand", rows_by_hand),
}
"""Kind of contender → its loop by hand."""


def make_modules(L: Any) -> tuple[type[Any], type[Any], type[Any]]:
    """The classes of modules with one optimizer, with two of them by hand, and for two loaders."""

    class Plain(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            return F.cross_entropy(self.net(x), y)

        def configure_optimizers(self) -> Any:
            return make_optimizer(self.net)

    class Manual(L.LightningModule):  # type: ignore[name-defined, misc]  # the base class depends on the framework
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.first, self.second = make_net(), make_net()

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            nets: tuple[nn.Module, nn.Module] = self.first, self.second
            for net, optimizer in zip(nets, self.optimizers(), strict=True):
                loss = F.cross_entropy(net(x), y)
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return make_optimizer(self.first), make_optimizer(self.second)

    class Two(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            (x, y), (x2, y2) = batch["first"], batch["second"]
            return F.cross_entropy(self.net(x), y) + F.cross_entropy(self.net(x2), y2)

    return Plain, Manual, Two


def variants(L: Any) -> dict[str, Contender]:
    """Contenders of a framework; `L` has `Trainer`, `LightningModule` and, if there is one, `CombinedLoader`."""
    Plain, Manual, Two = make_modules(L)

    def accumulation(steps: int, folder: Path) -> Timing:
        batches, loader = make_loader(steps)
        bare_trainer(L, folder, accumulate_grad_batches=WINDOW).fit(Plain(), loader)
        return batches.timing

    def manual(steps: int, folder: Path) -> Timing:
        batches, loader = make_loader(steps)
        bare_trainer(L, folder).fit(Manual(), loader)
        return batches.timing

    def combined(steps: int, folder: Path) -> Timing:
        batches, loader = make_loader(steps)
        _, other = make_loader(steps)
        bare_trainer(L, folder).fit(Two(), L.CombinedLoader({"first": loader, "second": other}, "min_size"))
        return batches.timing

    def rows(steps: int, folder: Path) -> Timing:
        order, loader = make_rows_loader(steps)
        bare_trainer(L, folder).fit(Plain(), loader)
        return order.timing

    found: dict[str, Contender] = {"accumulation": accumulation, "manual": manual, "rows": rows}
    return found | ({"combined": combined} if getattr(L, "CombinedLoader", None) is not None else {})

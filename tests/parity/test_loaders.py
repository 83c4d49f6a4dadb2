"""Loaders as users give them: the batches, numbers, counts and errors of the installed Lightning."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

from tests.parity.frameworks import LIGHTNING, RIGHT, STRICT, Framework, quiet

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # the peer's use of torch


class Draws(torch.utils.data.Dataset[Any]):
    """Samples that draw."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2) + index


class Counts(IterableDataset[Any]):
    """No length, no draws."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.size):
            yield torch.ones(2) + index


class Told(Counts):
    """Has a length, and keeps it."""

    def __len__(self) -> int:
        return self.size


class OwnBatches(BatchSampler):
    """A batch sampler of the user's own."""


def shuffled(size: int, batch_size: int = 2, **options: Any) -> DataLoader[Any]:
    return DataLoader(Draws(size), batch_size=batch_size, shuffle=True, **options)


Made = Callable[[], Any]
COLLECTIONS: dict[str, Made] = {
    "dict": lambda: {"a": shuffled(7), "b": shuffled(4)},
    "iterable": lambda: {"a": DataLoader(Counts(7), 2), "b": shuffled(4)},
    "two iterables": lambda: [DataLoader(Counts(7), 2), DataLoader(Counts(3), 2)],
    "with length": lambda: [DataLoader(Told(7), 2), DataLoader(Draws(3), 2)],
    "nested": lambda: {"a": [shuffled(7), range(3)], "b": (shuffled(9, 4),)},
    "ranges": lambda: [range(4), range(2)],
}
MODES = (None, "min_size", "max_size", "max_size_cycle", "sequential")
Seen = list[Any]


def combine(framework: Framework, value: Any, mode: str | None) -> Any:
    if mode is None:
        return value
    module = importlib.import_module(f"{framework.L.__name__}.utilities.combined_loader")
    return module.CombinedLoader(value, mode)


def run(
    name: str, root: Path, train: Made, *, mode: str | None = None, val: Made | None = None,
    val_mode: str | None = None, call: str = "fit", hooks: bool = False, draws: bool = True, **arguments: Any,
) -> Any:  # fmt: skip
    """All batches seen, with the next number of the global generator; an error as its text."""
    framework = Framework(name)
    L = framework.L
    seen: Seen = []

    class Net(L.LightningModule):  # type: ignore[misc, name-defined]  # of either framework
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(2, 1)

        def note(self, *what: Any) -> None:
            seen.append((*what[:-1], repr(what[-1]), torch.rand(()).item() if draws else 0))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.note("train", self.current_epoch, batch_idx, batch)
            return self.net(torch.ones(2)).sum()

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.note("val", self.current_epoch, batch_idx, dataloader_idx, batch)

        def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.note("test", batch_idx, dataloader_idx, batch)

        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            self.note("predict", batch_idx, dataloader_idx, batch)
            return torch.zeros(1)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

        if hooks:

            def train_dataloader(self) -> Any:
                seen.append(("train_dataloader", self.current_epoch))
                return combine(framework, train(), mode)

            def val_dataloader(self) -> Any:
                seen.append(("val_dataloader", self.current_epoch, self.trainer.sanity_checking))
                return combine(framework, val(), val_mode) if val is not None else []

    torch.manual_seed(5)
    module = Net()
    with quiet():
        trainer = framework.trainer(root, **{"max_epochs": 2, "num_sanity_val_steps": 0, **arguments})
        loaders = () if hooks else (combine(framework, train(), mode),)
        if val is not None and not hooks:
            loaders += (combine(framework, val(), val_mode),)
        try:
            getattr(trainer, call)(module, *loaders)
        except Exception as error:
            return type(error).__name__ not in ("AttributeError", "KeyError"), seen
    return seen, trainer.num_training_batches, trainer.global_step, torch.rand(()).item()


@pytest.mark.feature("D-02", "T-04")
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_training_on_several_loaders(kind: str, tmp_path: Path) -> None:
    for mode, limit in itertools.product(MODES, (None, 2, 0.5)):
        arguments = {"mode": mode, **({} if limit is None else {"limit_train_batches": limit})}
        peer = run(LIGHTNING, tmp_path, COLLECTIONS[kind], **arguments)
        assert run(STRICT, tmp_path, COLLECTIONS[kind], **arguments) == peer, (mode, limit)
        # Where an iterable's length is not believed, one batch is read ahead: numbers are drawn earlier.
        plain = kind in ("dict", "nested", "ranges")
        peer = run(LIGHTNING, tmp_path, COLLECTIONS[kind], draws=plain, **arguments)
        right = run(RIGHT, tmp_path, COLLECTIONS[kind], draws=plain, **arguments)
        assert right[0] == peer[0] if plain else len(right[0]) == len(peer[0]) if peer[0] is not True else True
        assert right[1:3] == peer[1:3], (mode, limit)


@pytest.mark.feature("D-02", "T-04")
@pytest.mark.parametrize("call", ["fit", "validate", "test", "predict"])
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_evaluating_on_several_loaders(kind: str, call: str, tmp_path: Path) -> None:
    draws = kind in ("dict", "nested", "ranges")  # else the peer reads the next loader's first batch before its time
    for mode, limit, sanity in itertools.product(MODES, (None, 2), (0, 1) if call == "fit" else (0,)):
        stage = {"fit": "val", "validate": "val"}.get(call, call)
        arguments: dict[str, Any] = {f"limit_{stage}_batches": limit, "num_sanity_val_steps": sanity, "call": call}
        if call == "fit":
            arguments |= {"val": COLLECTIONS[kind], "val_mode": mode, "limit_train_batches": 1}
        else:
            arguments["mode"] = mode
        make = (lambda: shuffled(4)) if call == "fit" else COLLECTIONS[kind]
        peer = run(LIGHTNING, tmp_path, make, draws=draws, **arguments)
        assert len(peer[0]) if peer[0] is not True else not peer[1]
        for name in (STRICT, RIGHT):
            ours = run(name, tmp_path, make, draws=draws, **arguments)
            if draws:
                assert ours[0] == peer[0], (mode, limit, sanity, name)
            else:
                assert _without_draws(ours[0]) == _without_draws(peer[0]), (mode, limit, sanity, name)


def _without_draws(seen: Any) -> Any:
    """Kind, indices and loader of each batch."""
    return seen if isinstance(seen, bool) else [item[:-2] for item in seen]


OVERFIT: dict[str, Made] = {
    "shuffled": lambda: shuffled(9),
    "in order": lambda: DataLoader(Draws(9), 2),
    "weighted": lambda: DataLoader(Draws(9), 2, sampler=WeightedRandomSampler([1.0, 5.0] * 4 + [1.0], 9)),
    "drop last": lambda: shuffled(9, drop_last=True),
    "no batching": lambda: DataLoader(Draws(5), batch_size=None, shuffle=True),
    "own batches": lambda: DataLoader(Draws(9), batch_sampler=OwnBatches(RandomSampler(range(9)), 2, False)),
    "several": lambda: {"a": shuffled(9), "b": DataLoader(Draws(5), 2)},
    "list": lambda: [[1, 2, 3, 4], shuffled(9)],
}


@pytest.mark.feature("T-04")
@pytest.mark.filterwarnings("ignore:.*W118")
@pytest.mark.parametrize("kind", OVERFIT)
def test_overfit_batches(kind: str, tmp_path: Path) -> None:
    for overfit in (1, 2, 0.6, 40, 1.0):
        arguments = {"overfit_batches": overfit, "val": lambda: shuffled(8), "max_epochs": 3}
        peer = run(LIGHTNING, tmp_path, OVERFIT[kind], **arguments)
        assert len(peer[0]) >= 3
        assert run(STRICT, tmp_path, OVERFIT[kind], **arguments) == peer, overfit
        right = run(RIGHT, tmp_path, OVERFIT[kind], **arguments)
        if kind != "own batches":
            assert right == peer, overfit
            continue
        # The peer leaves the order to a batch sampler.
        epochs = [[item[2:] for item in seen if item[0] == "train"] for seen in _by_epoch(right[0])]
        whole = [[[int(float(x)) for x in re.findall(r"\d+\.\d+", item[1])] for item in epoch] for epoch in epochs]
        assert whole[0] == whole[1] == whole[2] and whole[0][0][0] == 0


def _by_epoch(seen: Seen) -> list[Seen]:
    return [[item for item in seen if item[1] == epoch] for epoch in range(3)]


@pytest.mark.feature("T-04")
@pytest.mark.parametrize("every", [0, 1, 2, 3])
def test_the_rhythm_of_reloads_and_the_numbers_after_them(every: int, tmp_path: Path) -> None:
    for val_every, sanity, several in itertools.product((1, 2), (0, 1), (False, True)):
        make: Made = (lambda: {"a": shuffled(5), "b": shuffled(3)}) if several else (lambda: shuffled(5))
        arguments = {
            "hooks": True, "val": lambda: shuffled(4), "max_epochs": 5, "num_sanity_val_steps": sanity,
            "check_val_every_n_epoch": val_every, "reload_dataloaders_every_n_epochs": every,
        }  # fmt: skip
        peer = run(LIGHTNING, tmp_path, make, **arguments)
        assert run(STRICT, tmp_path, make, **arguments) == peer, (val_every, sanity, several)
        right = run(RIGHT, tmp_path, make, **arguments)
        assert [item[:-2] for item in right[0]] == [item[:-2] for item in peer[0]], (val_every, sanity, several)
        # One number is drawn per loader and epoch here; the peer draws it twice after a reload.
        assert (right == peer) is (every == 0)


@pytest.mark.feature("T-04", "T-14")
@pytest.mark.parametrize("every", [0, 1, 2])
def test_a_further_fit_asks_and_draws_as_the_peer(every: int, tmp_path: Path) -> None:
    def twice(name: str) -> Seen:
        framework = Framework(name)
        L = framework.L
        seen: Seen = []

        class Net(L.LightningModule):  # type: ignore[misc, name-defined]  # of either framework
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(2, 1)

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                seen.append((self.current_epoch, repr(batch), torch.rand(()).item()))
                return self.net(torch.ones(2)).sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

            def train_dataloader(self) -> Any:
                seen.append(("asked", "", 0.0))
                return shuffled(5)

        torch.manual_seed(3)
        with quiet():
            trainer = framework.trainer(tmp_path, max_epochs=2, reload_dataloaders_every_n_epochs=every)
            module = Net()
            trainer.fit(module)
            trainer.fit_loop.max_epochs = 4
            trainer.fit(module)
        return seen

    peer = twice(LIGHTNING)
    assert len(peer) > 12
    assert twice(STRICT) == peer
    right = twice(RIGHT)
    assert [item[0] for item in right] == [item[0] for item in peer]
    assert right != peer  # each epoch draws once

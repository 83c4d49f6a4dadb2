"""Loaders as users give them, in real runs: several at once, overfitting, reloading, iterators, kinds of loaders."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

import fulmen as L
from fulmen.errors import (
    ArgumentValueError,
    DataError,
    FulmenWarning,
    MisconfigurationException,
    PossibleUserWarning,
    forget_warnings,
)
from fulmen.utilities import CombinedLoader
from tests.integration.test_resume import Augmented, Net, SaveAt, Stop, end_of, same, trainer_of
from tests.integration.test_resume import Case as ResumeCase
from tests.integration.toys import Toy, fit, loader, quiet, rows, stream

# --- several training loaders ----------------------------------------------------------------------------------------


class Noisy(IterableDataset[Any]):
    """Draws for each item."""

    def __init__(self, size: int = 11, *, told: int | None = None) -> None:
        self.size = size
        if told is not None:
            self.__class__ = type("Told", (Noisy,), {"__len__": lambda self: told})

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.size):
            yield torch.randn(1, 8) + random.random(), torch.tensor(float(index))


class Both(Net):
    """Takes a loss over the batches of all its loaders."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        parts = list(batch.values()) if isinstance(batch, dict) else batch
        parts = [part for part in parts if part is not None]
        loss = torch.stack([super(Both, self).training_step(part, batch_idx) for part in parts]).mean()
        return loss


def of(size: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(Augmented(size), batch_size=4, shuffle=True, **options)


def own(seed: int) -> dict[str, Any]:
    return {"generator": torch.Generator().manual_seed(seed)}


SEVERAL: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"a": of(22), "b": of(9)},
    "list with generators": lambda: [of(9, **own(1)), of(22, **own(2))],
    "min_size": lambda: CombinedLoader({"a": of(22), "b": of(30)}, "min_size"),
    "max_size": lambda: CombinedLoader([of(9), of(22)], "max_size"),
    "workers": lambda: {"a": of(22, num_workers=2), "b": of(9, num_workers=2)},
    "iterable": lambda: {"a": DataLoader(Noisy(11), batch_size=2), "b": of(9)},
}
OTHERS: dict[str, Callable[[], Any]] = {
    "one iterable": lambda: DataLoader(Noisy(22), batch_size=4),
    "iterable with workers": lambda: DataLoader(Noisy(11), batch_size=4, num_workers=2),
}


def validation() -> Any:
    return DataLoader(Augmented(6), batch_size=4)


@pytest.mark.feature("D-02", "C-02")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # the test machine has few cores
@pytest.mark.filterwarnings("ignore:The checkpoint has states of callbacks", "ignore:.*W204")
@pytest.mark.parametrize("step", [3, 6, 8])
@pytest.mark.parametrize("kind", [*SEVERAL, "one iterable"])
def test_the_plug_is_pulled_with_several_loaders(tmp_path: Path, kind: str, step: int) -> None:
    make = (SEVERAL | OTHERS)[kind]
    case = ResumeCase(epochs=3, trainer={"val_check_interval": 3} if kind == "dict" else {})

    def run(root: Path, seed: int, *callbacks: Any, **more: Any) -> Any:
        L.seed_everything(seed, verbose=False)
        module = (Net if kind in OTHERS else Both)()
        trainer = trainer_of(case, root, *callbacks)
        trainer.fit(module, make(), validation(), **more)
        return end_of(trainer, module)

    whole = run(tmp_path / "whole", 11)
    path = tmp_path / "here.ckpt"
    with pytest.raises(Stop):
        run(tmp_path / "parts", 11, SaveAt(path, "on_train_batch_end", step, then=1))
    same(whole, run(tmp_path / "parts", 99, ckpt_path=path))


@pytest.mark.feature("D-02", "C-02")
def test_another_number_of_loaders_than_in_the_checkpoint_is_told(tmp_path: Path) -> None:
    path = tmp_path / "here.ckpt"
    with pytest.raises(Stop):
        quiet(callbacks=SaveAt(path, "on_train_batch_end", 2, then=0)).fit(Pairs(), [loader(12), loader(8)])
    for train, words in ((loader(12), "over 2 loaders that were read together, and now there is one"),
                         ([loader(12)] * 3, "over 2 loaders, and now there are 3")):  # fmt: skip
        with pytest.raises(DataError, match=words):
            quiet().fit(Pairs(), train, ckpt_path=path)


class Pairs(Toy):
    """Keeps what its steps get; trains on the first tensor that it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.got.append(batch)
        while not isinstance(batch, Tensor):
            batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
        return self.net(batch).mean()

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.got.append((batch_idx, dataloader_idx))

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return batch[0].sum()


@pytest.mark.feature("D-02")
def test_the_loaders_stay_the_users_own() -> None:
    given = {"a": loader(4), "b": [loader(6), loader(8)]}
    module = Pairs()
    trainer = fit(module, given, [loader(4), (loader(2),)])
    assert trainer.train_dataloader is given
    assert trainer.num_training_batches == 4
    assert trainer.num_val_batches == [2, 1]
    assert module.got[0].keys() == {"a", "b"} and isinstance(module.got[0]["b"], list)
    combined = CombinedLoader([loader(4), loader(6)], "min_size")
    parts = combined.iterables
    trainer = fit(Pairs(), combined)
    assert trainer.train_dataloader is parts and combined.limits is None and combined.flattened == parts
    assert trainer.num_training_batches == 2


@pytest.mark.feature("D-02", "L-02")
@pytest.mark.parametrize("mode", ["min_size", "max_size", "max_size_cycle", "sequential"])
def test_validation_in_any_mode(mode: Any) -> None:
    module = Pairs()
    trainer = quiet()
    trainer.validate(module, CombinedLoader({"a": loader(4), "b": loader(6)}, mode), verbose=False)
    together = {"min_size": 2, "max_size": 3, "max_size_cycle": 3}
    expected = [(i, 0) for i in range(together[mode])] if mode in together else [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)]
    assert module.got == expected
    outputs = quiet().predict(module, CombinedLoader([loader(4), loader(6)], "sequential"))
    assert outputs is not None and [len(part) for part in outputs] == [2, 3]


@pytest.mark.feature("D-02")
@pytest.mark.parametrize(
    ("call", "value", "error", "words"),
    [
        ("fit", CombinedLoader([loader()], "sequential"), ArgumentValueError, "which training does not read"),
        ("predict", CombinedLoader([loader()], "min_size"), ArgumentValueError, "but prediction reads loaders"),
        ("fit", {"a": rows()}, DataError, r"\['a'\]: got a data set"),
        ("fit", {"a": [loader(), None]}, DataError, r"\['a'\]\[1\]: got None"),
        ("validate", [[loader()], {"x": rows()}], DataError, r"\[1\]\['x'\]: got a data set"),
        ("test", {"a": {"b": 3}}, DataError, r"\['a'\]: got a dict that holds no loaders"),
        ("fit", [(rows()[0], rows()[1])], DataError, r"\[0\]\[0\]\[0\]: got a tensor.*DataLoader\(batches, "),
        ("fit", [loader(), CombinedLoader([loader()])], DataError, r"\[1\]: got a CombinedLoader inside"),
    ],
)  # fmt: skip
def test_wrong_collections_end_before_any_step(call: str, value: Any, error: type[Exception], words: str) -> None:
    module = Pairs()
    with pytest.raises(error, match=words):
        getattr(quiet(), call)(module, value)
    assert not module.got


@pytest.mark.feature("D-02", "T-04")
def test_a_share_of_loaders_without_length_is_refused() -> None:
    with pytest.raises(DataError, match=r"limit_train_batches=0.5 asks for a share of train_dataloader\['b'\], but"):
        fit(Pairs(), {"a": loader(), "b": stream()}, limit_train_batches=0.5)
    with pytest.raises(DataError, match=r"limit_train_batches=0.1 of the 2 batches of train_dataloader\['b'\]"):
        fit(Pairs(), {"a": loader(40), "b": loader(4)}, limit_train_batches=0.1)


@pytest.mark.feature("D-02")
@pytest.mark.filterwarnings("ignore:.*W107", "ignore:Length of IterableDataset")
def test_data_that_end_before_their_length_end_the_epoch_and_validate() -> None:
    module = Both()
    values: list[Any] = []
    module.validation_step = lambda batch, batch_idx: values.append(batch_idx)  # type: ignore[method-assign]  # a probe
    train = CombinedLoader([DataLoader(Noisy(6, told=20), 2), DataLoader(Noisy(30, told=30), 2)], "min_size")
    trainer = fit(module, train, validation(), max_epochs=2)
    assert trainer.global_step == 6 and trainer.num_training_batches == 10
    assert values == [0, 1, 0, 1]


# --- overfit_batches -------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-04", "D-02")
@pytest.mark.parametrize("kind", ["shuffle", "own batch sampler", "batch sampler without sampler", "other constructor"])
def test_overfitting_takes_the_same_batches_and_leaves_the_users_loader(kind: str) -> None:
    class Lists(Sampler[list[int]]):
        def __iter__(self) -> Iterator[list[int]]:
            order = torch.randperm(12).tolist()
            return iter([order[:3], order[3:8], order[8:]])

        def __len__(self) -> int:
            return 3

    class Mine(DataLoader[Any]):
        def __init__(self, seed: int) -> None:
            super().__init__(rows(), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(seed))

    make: dict[str, Callable[[], DataLoader[Any]]] = {
        "shuffle": lambda: DataLoader(rows(), batch_size=3, shuffle=True),
        "own batch sampler": lambda: DataLoader(
            rows(), batch_sampler=type("Own", (BatchSampler,), {})(RandomSampler(range(12)), 3, False)
        ),
        "batch sampler without sampler": lambda: DataLoader(rows(), batch_sampler=Lists()),
        "other constructor": lambda: Mine(4),
    }
    train, module = make[kind](), Pairs()
    before = (train.sampler, train.batch_sampler)
    with pytest.warns(FulmenWarning, match=r"overfit_batches=.*the train loader draws its samples in another.*W118"):
        trainer = fit(module, train, max_epochs=3, overfit_batches=2)
    assert trainer.train_dataloader is train and (train.sampler, train.batch_sampler) == before
    assert len(module.got) == 6
    for first, later in zip(module.got[:2] * 2, module.got[2:], strict=True):
        assert torch.equal(first[0], later[0])
    if kind not in ("batch sampler without sampler",):
        assert torch.equal(module.got[0][0], rows()[:3][0])


@pytest.mark.feature("T-04")
def test_overfitting_limits_training_and_validation_only() -> None:
    module = Pairs()
    trainer = fit(module, loader(), loader(8), overfit_batches=2)
    assert trainer.overfit_batches == 2
    assert (trainer.limit_train_batches, trainer.limit_val_batches) == (2, 2)
    assert (trainer.num_training_batches, trainer.num_val_batches) == (2, [2])
    trainer.test(module, loader(8), verbose=False)
    assert trainer.num_test_batches == [4]
    trainer = fit(Pairs(), loader(), loader(8), overfit_batches=0.5)
    assert (trainer.num_training_batches, trainer.num_val_batches) == (3, [2])
    with pytest.raises(MisconfigurationException, match="set one of them only"):
        quiet(overfit_batches=1, fast_dev_run=True)


# --- reloading -------------------------------------------------------------------------------------------------------


class Reloading(Toy):
    """Writes down when its loaders were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []

    def train_dataloader(self) -> Any:
        self.asked.append(("train", self.current_epoch))
        return loader(4)

    def val_dataloader(self) -> Any:
        self.asked.append(("val", self.current_epoch))
        return loader(2)


@pytest.mark.feature("T-04", "C-02")
@pytest.mark.parametrize("stopped_after", [1, 2, 3, 4])
def test_reloads_keep_their_rhythm_over_a_resume(tmp_path: Path, stopped_after: int) -> None:
    options = {"reload_dataloaders_every_n_epochs": 2}
    whole, first, second = Reloading(), Reloading(), Reloading()
    quiet(max_epochs=7, **options).fit(whole)
    assert [epoch for name, epoch in whole.asked if name == "train"] == [0, 2, 4, 6]
    assert [epoch for name, epoch in whole.asked if name == "val"] == [0, 2, 4, 6]
    trainer = quiet(max_epochs=stopped_after, **options)
    trainer.fit(first)
    trainer.save_checkpoint(tmp_path / "here.ckpt")
    quiet(max_epochs=7, **options).fit(second, ckpt_path=tmp_path / "here.ckpt")
    for name in ("train", "val"):
        # A new process asks once when it begins; after that the times are those of the whole run.
        later = [epoch for asked, epoch in second.asked if asked == name]
        assert later[0] == stopped_after
        expected = [epoch for asked, epoch in whole.asked if asked == name and epoch >= stopped_after]
        assert later[1:] == expected


@pytest.mark.feature("T-04", "D-10")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_a_reload_ends_the_workers_of_the_loader_before() -> None:
    workers: list[Any] = []

    class Persistent(Toy):
        def train_dataloader(self) -> Any:
            assert not any(worker.is_alive() for worker in workers)
            return DataLoader(rows(4), 2, num_workers=1, persistent_workers=True)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            workers.extend(torch.multiprocessing.active_children())

    fit_module = Persistent()
    quiet(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(fit_module)
    assert len({worker.pid for worker in workers}) == 3


# --- workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.feature("D-10")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("several", [False, True])
def test_validation_loaders_start_one_by_one_and_not_beside_a_training_that_is_over(several: bool) -> None:
    alive: list[tuple[str, int]] = []

    class Looks(Pairs):
        def note(self, stage: str) -> None:
            alive.append((stage, len(torch.multiprocessing.active_children())))

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.note("train")
            return super().training_step(batch, batch_idx)

        def on_validation_start(self) -> None:
            self.note("start")

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.note("val")

    def worked(count: int, workers: int) -> DataLoader[Any]:
        return DataLoader(rows(count), 2, num_workers=workers)

    train = [worked(8, 2), worked(8, 2)] if several else worked(8, 2)
    fit(Looks(), train, [worked(4, 1), worked(4, 1), worked(4, 1)], val_check_interval=2)
    most = 4 if several else 2
    assert [count for stage, count in alive if stage == "train"] == [most] * 4
    inside, end = alive[2:9], alive[11:]
    assert inside[0] == ("start", most + 1) and {count for _, count in inside} == {most + 1}
    assert end[0] == ("start", 1) and {count for _, count in end} == {1}  # the training's workers have ended
    assert len(inside) == len(end) == 7


# --- steps that fetch their batches themselves -----------------------------------------------------------------------


class Fetches(Toy):
    """Takes `per` batches in each step."""

    def __init__(self, per: int = 1) -> None:
        super().__init__()
        self.per = per
        self.got: list[Any] = []
        self.ends: list[Any] = []

    def take(self, batches: Any) -> Any:
        items = [next(batches) for _ in range(self.per)]
        self.got.append([item[1:] for item in items])
        return items[0][0]

    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]  # the other form of a step
        batch = self.take(dataloader_iter)
        self.state = (dataloader_iter.fetched, dataloader_iter.length, dataloader_iter.done)
        return self.net(batch["a"][0] if isinstance(batch, dict) else batch[0]).mean()

    def validation_step(self, dataloader_iter: Any) -> None:  # type: ignore[override]  # the other form of a step
        self.take(dataloader_iter)

    test_step = validation_step  # type: ignore[assignment]  # the same

    def predict_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]  # the other form of a step
        return self.take(dataloader_iter)[0].sum()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.ends.append((batch_idx, self.state))


@pytest.mark.feature("M-03")
@pytest.mark.parametrize("data", [loader, stream, lambda n: {"a": loader(n), "b": loader(4)}])
def test_a_training_step_that_wants_more_than_there_is_ends_the_epoch(data: Any) -> None:
    module = Fetches(per=2)
    trainer = fit(module, data(10), loader(4), max_epochs=2)
    assert module.got == [[(0, 0), (1, 0)], [(2, 0), (3, 0)], [(0, 0), (1, 0)]] * 2  # the last one is of validation
    length = None if data is stream else 5
    assert module.ends == [(1, (2, length, False)), (3, (4, length, False))] * 2
    assert trainer.global_step == 4 and trainer.current_epoch == 2


@pytest.mark.feature("M-03")
def test_the_iterator_says_when_it_is_done() -> None:
    module = Fetches()
    fit(module, loader(6))
    assert module.ends == [(0, (1, 3, False)), (1, (2, 3, False)), (2, (3, 3, True))]


@pytest.mark.feature("M-03")
@pytest.mark.parametrize("data", [loader, stream])
def test_evaluation_steps_that_want_more_than_there_is_end_their_loader(data: Any) -> None:
    pairs = [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    for call in ("validate", "test"):
        module = Fetches(per=2)
        getattr(quiet(), call)(module, [data(6), data(4)], verbose=False)
        assert module.got == pairs
    module = Fetches(per=2)
    outputs = quiet().predict(module, data(6))
    assert module.got == pairs[:1] and outputs is not None and len(outputs) == 1


@pytest.mark.feature("M-03")
def test_a_stop_iteration_of_ones_own_is_no_end() -> None:
    class Mistaken(Fetches):
        def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]  # the other form of a step
            next(dataloader_iter)
            return next(iter(()))

    with pytest.raises(StopIteration):
        fit(Mistaken(), loader(4))


# --- kinds of loaders ------------------------------------------------------------------------------------------------


class Tells(Sampler[int]):
    """Hears of epochs."""

    def __init__(self, size: int = 6) -> None:
        self.size = size
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))

    def __len__(self) -> int:
        return self.size


class TellsBatches(BatchSampler):
    """Hears of epochs, too; its constructor is its own."""

    def __init__(self, told: Tells) -> None:
        super().__init__(told, 2, False)
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class TellsData(Subset[Any]):
    """A data set that hears of epochs."""

    epochs: tuple[int, ...] = ()

    def set_epoch(self, epoch: int) -> None:
        self.epochs += (epoch,)


@pytest.mark.feature("D-03")
@pytest.mark.parametrize("several", [False, True])
def test_samplers_and_data_sets_hear_of_epochs(several: bool) -> None:
    sampler = Tells()
    batches, data = TellsBatches(sampler), TellsData(rows(6), range(6))
    train = DataLoader(data, batch_sampler=batches)
    fit(Pairs(), {"x": train, "y": loader(4)} if several else train, max_epochs=3)
    for epochs in (sampler.epochs, batches.epochs, list(data.epochs)):
        assert sorted(set(epochs)) == [0, 1, 2]
        assert epochs == sorted(epochs)
    sampler.epochs.clear()
    fit(Pairs(), loader(4), DataLoader(rows(6), 2, sampler=sampler), max_epochs=3)
    assert sampler.epochs == [0, 1, 2]
    trainer = fit(Pairs(), loader(4), max_epochs=2)
    for call in ("validate", "test", "predict"):
        sampler.epochs.clear()
        getattr(trainer, call)(dataloaders=DataLoader(rows(6), 2, sampler=sampler))
        assert sampler.epochs == [2]


class Custom:
    """A batch type of its own."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, device: Any) -> Custom:
        return Custom(self.x.to(device))


class OtherConstructor(DataLoader[Any]):
    """Needs what no framework could guess."""

    def __init__(self, folder: str, *, rows_per_batch: int) -> None:
        super().__init__(rows(6), batch_size=rows_per_batch)
        self.folder = folder


class OwnIteration(DataLoader[Any]):
    """Overrides iteration itself."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield [batch[0] + 1, batch[1]]


KINDS: dict[str, Callable[[], Any]] = {
    "positional arguments": lambda: DataLoader(rows(6), 2),
    "positional sampler": lambda: DataLoader(rows(6), 2, False, SequentialSampler(range(6))),
    "weighted": lambda: DataLoader(rows(6), 2, sampler=WeightedRandomSampler([1.0, 2.0, 0.0, 0.0, 0.0, 1.0], 6)),
    "own batch sampler": lambda: DataLoader(rows(6), batch_sampler=TellsBatches(Tells())),
    "list of lists": lambda: DataLoader(rows(6), batch_sampler=[[5, 4], [0], [1, 2, 3]]),
    "other constructor": lambda: OtherConstructor("here", rows_per_batch=2),
    "own iteration": lambda: OwnIteration(rows(6), batch_size=2),
    "custom batches": lambda: DataLoader(
        rows(6), 2, collate_fn=lambda samples: Custom(torch.stack([sample[0] for sample in samples]))
    ),
    "no batching": lambda: DataLoader([(torch.ones(2, 4),)] * 3, batch_size=None),
    "iterable without length": lambda: stream(6),
    "iterable with length": lambda: DataLoader(Told(), batch_size=2),
    "list": lambda: [[torch.ones(2, 4)]] * 3 and DataLoader([[torch.ones(2, 4)]] * 3, batch_size=None),
}


class Told(IterableDataset[Any]):
    """Has a length that is right."""

    def __iter__(self) -> Iterator[Any]:
        return iter(rows(6)[index] for index in range(6))

    def __len__(self) -> int:
        return 6


@pytest.mark.feature("D-02", "D-03", "D-05")
@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_loader_works_untouched_in_every_loop(kind: str) -> None:
    class Takes(Toy):
        seen_batches: list[Tensor]

        def x(self, batch: Any) -> Tensor:
            x = batch.x if isinstance(batch, Custom) else batch[0]
            self.seen_batches.append(x)
            return x

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.net(self.x(batch)).mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.x(batch)

        test_step = validation_step

        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.x(batch)

    module = Takes()
    torch.manual_seed(7)
    expected = [batch.x if isinstance(batch, Custom) else batch[0] for batch in KINDS[kind]()]
    given = KINDS[kind]()
    state = {key: value for key, value in vars(given).items() if key != "_IterableDataset_len_called"}
    for call in ("fit", "validate", "test", "predict"):
        module.seen_batches = []
        torch.manual_seed(7)
        arguments = {} if call in ("fit", "predict") else {"verbose": False}
        getattr(quiet(), call)(module, given, **arguments)
        assert len(module.seen_batches) == len(expected) == 3
        for ours, theirs in zip(module.seen_batches, expected, strict=True):
            assert torch.equal(ours, theirs), call
    assert {key: value for key, value in vars(given).items() if key in state} == state


# --- a loader without its step, and the other way round --------------------------------------------------------------


class NoValidation(L.LightningModule):
    """Only trains."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.net(batch[0]).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.feature("T-02")
def test_a_validation_loader_without_a_step_is_told() -> None:
    with pytest.warns(FulmenWarning, match=r"a validation loader, but NoValidation has no `validation_step`.*W411"):
        fit(NoValidation(), loader(4), loader(2))
    fit(NoValidation(), loader(4))
    fit(NoValidation(), loader(4), loader(2), limit_val_batches=0)


@pytest.mark.feature("T-02")
def test_a_validation_step_without_a_loader_is_told() -> None:
    with pytest.warns(PossibleUserWarning, match=r"Toy has a `validation_step`, but there is no validation.*W412"):
        fit(Toy(), loader(4))

    class Data(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            return loader(4)

    forget_warnings()
    with pytest.warns(PossibleUserWarning, match="no validation loader"):
        quiet().fit(Toy(), Data())
    forget_warnings()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(Toy(), loader(4), limit_val_batches=0)
        fit(Toy(), loader(4), loader(2))
        fit(NoValidation(), loader(4))

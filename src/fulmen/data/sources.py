"""From what the user gave (a loader, a list, a dict, something else) to checked plans."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import GeneratorType
from typing import Any, Literal, TypeAlias

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from fulmen.data.plan import LoaderPlan
from fulmen.errors import ArgumentValueError, DataError, PossibleUserWarning, suggest, warn
from fulmen.utilities.seed import pl_worker_init_function, workers_are_seeded

__all__ = ["attach_worker_seeding", "is_shuffled", "loader_plans", "set_epoch"]

Stage: TypeAlias = Literal["train", "val", "test", "predict"]
STAGES = ("train", "val", "test", "predict")


def loader_plans(
    value: Any,
    *,
    stage: Stage,
    limit: int | float | None = None,
    owner_name: str | None = None,
    by_count: bool = False,
    track_workers: bool = False,
    rank: int | None = None,
) -> list[LoaderPlan]:
    """Check what was given as loader(s) of a stage and make one plan for each.

    Args:
        value: For training one iterable of batches; else one, or a list, tuple or dict of them, run one after the
            other. An empty list or dict means no loaders.
        stage: Where the loaders are used.
        limit: Number (int) or share (float) of batches of each loader.
        owner_name: Where `value` comes from, for messages: ``"Trainer.fit(train_dataloaders=...)"``.
        by_count: See `LoaderPlan`.
        track_workers: See `LoaderPlan`.
        rank: Global rank of this process, for the seeds of workers (`attach_worker_seeding`).

    Returns:
        The plans, named ``"val_dataloader"``, ``"val_dataloader[1]"`` or as their key in the dict.

    Raises:
        DataError: If something is no loader; the message says what was given, where, and what to give instead.
        ArgumentValueError: If `stage` is unknown, or `limit` out of range.
        ArgumentTypeError: If `limit` has a wrong type.
    """
    if stage not in STAGES:
        raise ArgumentValueError(
            f"loader_plans: stage={stage!r}; give one of {', '.join(map(repr, STAGES))}.{suggest(str(stage), STAGES)}"
        )
    owner = owner_name or f"{stage}_dataloader"
    plans = []
    for name, place, loader in _named(value, stage, owner):
        check_loader(loader, place)
        _advise(loader, stage, name)
        attach_worker_seeding(loader, rank)
        plans.append(
            LoaderPlan(
                loader,
                limit=limit,
                name=name,
                limit_name=f"limit_{stage}_batches",
                by_count=by_count,
                track_workers=track_workers,
                watch_wait=stage == "train",
            )
        )
    return plans


def _named(value: Any, stage: str, owner: str) -> Iterator[tuple[str, str, Any]]:
    """Give the name, the place (for messages) and the object of each loader."""
    single = f"{stage}_dataloader"
    if not isinstance(value, (list, tuple, Mapping)):
        yield single, owner, value
    elif stage == "train":
        raise DataError(
            f"{owner}: got a {type(value).__name__} of {len(value)} entries; training takes one loader. Give a single "
            "DataLoader or another iterable of batches. A list of ready-made batches becomes one with "
            "DataLoader(batches, batch_size=None)."
        )
    elif isinstance(value, Mapping):
        for key, loader in value.items():
            yield str(key), f"{owner}[{key!r}]", loader
    else:
        for position, loader in enumerate(value):
            yield f"{single}[{position}]", f"{owner}[{position}]", loader


def check_loader(loader: Any, place: str) -> None:
    """Raise `DataError` if `loader` is not something that gives batches; `place` tells where it came from."""
    if isinstance(loader, DataLoader):
        return
    kind = type(loader).__name__
    if loader is None:
        raise DataError(
            f"{place}: got None instead of a loader. Return or pass a DataLoader or an iterable of batches."
        )
    if isinstance(loader, type):
        raise DataError(
            f"{place}: got the class {loader.__name__} itself. Make an object of it: {loader.__name__}(...)."
        )
    if isinstance(loader, IterableDataset):
        warn(
            "W104",
            f"{place}: this {kind} is an IterableDataset, used as it is: each item is taken as one batch. "
            "If its items are samples, wrap it: DataLoader(dataset, batch_size=...).",
            key=place,
            category=PossibleUserWarning,
            stacklevel=4,
        )
        return
    if _is_dataset(loader):
        raise DataError(
            f"{place}: got a data set ({kind}), not a loader: its items are samples, not batches. "
            "Wrap it: DataLoader(dataset, batch_size=...)."
        )
    if isinstance(loader, Tensor):
        raise DataError(
            f"{place}: got a tensor of shape {tuple(loader.shape)}. Wrap the data: "
            "DataLoader(TensorDataset(tensor), batch_size=...)."
        )
    if isinstance(loader, (str, bytes)):
        raise DataError(f"{place}: got the text {loader!r} instead of a loader. Give an iterable of batches.")
    if isinstance(loader, Mapping):
        raise DataError(
            f"{place}: got a {kind} inside a collection of loaders. Nested collections are not accepted; give a flat "
            "list or dict of loaders."
        )
    if not (hasattr(type(loader), "__iter__") or hasattr(type(loader), "__getitem__")):
        call = " Was it meant to be called: add ()?" if callable(loader) else ""
        raise DataError(
            f"{place}: got {loader!r} ({kind}), which cannot be iterated.{call} Give a DataLoader or an iterable of "
            "batches."
        )
    if _reads_once(loader):
        warn(
            "W103",
            f"{place}: a {kind} can be read only once, so a second epoch over it has no data. "
            "Give a list, a DataLoader, or an object whose __iter__ starts anew.",
            key=place,
            category=PossibleUserWarning,
            stacklevel=4,
        )


def _is_dataset(value: Any) -> bool:
    # Data sets of the package `datasets` are no torch classes.
    return isinstance(value, Dataset) or any(
        cls.__name__ in ("Dataset", "DatasetDict") and cls.__module__.startswith("datasets.")
        for cls in type(value).__mro__
    )


def _reads_once(value: Any) -> bool:
    # Iterators of other classes may start anew in __iter__ (NVIDIA DALI's do); asking them would start them.
    if isinstance(value, GeneratorType):
        return True
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


def is_shuffled(loader: Any) -> bool:
    """Tell whether a data loader draws its order with torch's `RandomSampler`."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return False
    batch_sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader, "sampler", None) if batch_sampler is None else getattr(batch_sampler, "sampler", None)
    return isinstance(sampler, RandomSampler) or isinstance(batch_sampler, RandomSampler)


def _advise(loader: Any, stage: str, name: str) -> None:
    if stage != "train" and is_shuffled(loader):
        warn(
            "W102",
            f"{name}: its sampler shuffles. Set shuffle=False for {stage} loaders: results are then comparable from "
            "epoch to epoch, also with a limit on the batches.",
            key=name,
            category=PossibleUserWarning,
            stacklevel=4,
        )
    if not isinstance(loader, DataLoader) or not loader.num_workers or loader.persistent_workers:
        return
    context = loader.multiprocessing_context
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method(allow_none=True)
    if method in ("spawn", "forkserver"):
        warn(
            "W108",
            f"{name}: its {loader.num_workers} workers are started anew each epoch by {method}, which imports "
            "everything again. Set DataLoader(persistent_workers=True).",
            key=name,
            category=PossibleUserWarning,
            stacklevel=4,
        )


def attach_worker_seeding(loader: Any, rank: int | None = None) -> None:
    """Give a data loader without `worker_init_fn` one that seeds by worker and rank, if that was asked for.

    ``seed_everything(workers=True)`` asks for it (environment ``PL_SEED_WORKERS=1`` or ``FULMEN_SEED_WORKERS=1``).
    Other objects than data loaders are left alone.

    Args:
        loader: The user's loader; its attribute `worker_init_fn` is set.
        rank: Global rank of this process; `None`: the worker finds out.
    """
    if isinstance(loader, DataLoader) and loader.worker_init_fn is None and workers_are_seeded():
        loader.worker_init_fn = partial(pl_worker_init_function, rank=rank)


def set_epoch(loader: Any, epoch: int) -> None:
    """Call ``set_epoch(epoch)`` on a loader's sampler, batch sampler (and its sampler) and data set.

    Those without such a method are left out. Each object is told once, however many ways lead to it.
    """
    batch_sampler = getattr(loader, "batch_sampler", None)
    owners: Iterable[Any] = (
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
        getattr(loader, "dataset", None),
    )
    told: list[Any] = []
    for owner in owners:
        tell = getattr(owner, "set_epoch", None)
        if callable(tell) and not any(owner is other for other in told):
            told.append(owner)
            tell(epoch)

"""From what the user gave (a loader, a list, a dict, something else) to checked plans."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from functools import partial
from types import GeneratorType
from typing import Any, Literal, TypeAlias

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from fulmen.data.combined import AnyPlan, CombinedPlan
from fulmen.data.plan import LoaderPlan
from fulmen.errors import ArgumentValueError, DataError, PossibleUserWarning, suggest, warn
from fulmen.utilities.combined_loader import MODES, CombinedLoader, Mode, Nesting
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
) -> list[AnyPlan]:
    """Check what was given as loader(s) of a stage and make one plan for each, or one for all that are read together.

    Args:
        value: An iterable of batches, a `CombinedLoader`, or a nested collection of iterables: those of training are
            read together (``max_size_cycle``), those of other stages one after the other (``sequential``), for which
            an empty list or dict means no loaders.
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
        ArgumentValueError: If `stage` is unknown or does not read in the mode of a `CombinedLoader`, or if `limit` is
            out of range.
        ArgumentTypeError: If `limit` has a wrong type.
    """
    if stage not in STAGES:
        raise ArgumentValueError(
            f"loader_plans: stage={stage!r}; give one of {', '.join(map(repr, STAGES))}.{suggest(str(stage), STAGES)}"
        )
    owner = owner_name or f"{stage}_dataloader"
    if stage != "train" and isinstance(value, (list, tuple, Mapping)) and not value:
        return []
    default: Mode = "max_size_cycle" if stage == "train" else "sequential"
    combined = value if isinstance(value, CombinedLoader) else CombinedLoader(value, default)
    nesting = combined.nesting
    check_mode(combined, stage, owner)
    together = combined.mode != "sequential" and not nesting.is_single
    plans = []
    for place, name, loader in zip(nesting.places, _names(combined, stage), combined.flattened, strict=True):
        check_loader(loader, f"{owner}{place}")
        _advise(loader, stage, name)
        attach_worker_seeding(loader, rank)
        plans.append(
            LoaderPlan(
                loader,
                limit=None if together else limit,
                name=name,
                limit_name=f"limit_{stage}_batches",
                by_count=by_count and not together,
                track_workers=track_workers,
                watch_wait=stage == "train",
                look_ahead=not together,
            )
        )
    if not together:
        return list(plans)
    return [
        CombinedPlan(
            combined,
            plans,
            limit=limit,
            name=f"{stage}_dataloader",
            limit_name=f"limit_{stage}_batches",
            by_count=by_count,
            track=track_workers,
        )
    ]


def _names(combined: CombinedLoader, stage: Stage) -> list[str]:
    """What messages call the loaders; those of evaluation in a dict go by their key."""
    value = combined.iterables
    if stage != "train" and isinstance(value, Mapping) and not combined.nesting.is_single:
        return [f"{key}{place}" for key, item in value.items() for place in Nesting(item).places]
    return [f"{stage}_dataloader{place}" for place in combined.nesting.places]


def check_mode(loader: CombinedLoader, stage: Stage, owner: str) -> None:
    """Raise if a stage cannot read loaders in this mode.

    Raises:
        ArgumentValueError: For a training loader in mode ``sequential``, and any other in prediction.
    """
    mode, others = loader.mode, [mode for mode in MODES if mode != "sequential"]
    if stage == "train" and mode == "sequential":
        raise ArgumentValueError(
            f"{owner}: got a CombinedLoader(mode='sequential'), which training does not read: an epoch would be one "
            f"loader after the other. Give one of the modes {', '.join(map(repr, others))}, or one loader over a "
            "ConcatDataset."
        )
    if stage == "predict" and mode != "sequential":
        raise ArgumentValueError(
            f"{owner}: got a CombinedLoader(mode={mode!r}), but prediction reads loaders one after the other. Give "
            "CombinedLoader(mode='sequential'), or the loaders themselves in a list or dict."
        )
    if loader.limits is not None:
        warn(
            "W117",
            f"{owner}: CombinedLoader.limits={loader.limits} has no effect in the Trainer. Set "
            f"Trainer(limit_{stage}_batches=...).",
            key=owner,
            category=PossibleUserWarning,
            stacklevel=5,
        )


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
            "DataLoader(TensorDataset(tensor), batch_size=...). If it is part of a ready-made batch in a list of such: "
            "DataLoader(batches, batch_size=None)."
        )
    if isinstance(loader, (str, bytes)):
        raise DataError(f"{place}: got the text {loader!r} instead of a loader. Give an iterable of batches.")
    _refuse_collection(loader, place)
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


def _refuse_collection(loader: Any, place: str) -> None:
    """Refuse collections that stand where a loader should be."""
    kind = type(loader).__name__
    if type(loader) in (list, tuple) and loader and isinstance(loader[0], str):
        raise DataError(
            f"{place}: got a {kind} of texts, {loader[0]!r} first, instead of loaders. A list of ready-made batches "
            "becomes a loader with DataLoader(batches, batch_size=None)."
        )
    if isinstance(loader, CombinedLoader):
        raise DataError(
            f"{place}: got a CombinedLoader inside a collection of loaders. Give one CombinedLoader over all of them; "
            "its collection may be nested."
        )
    if isinstance(loader, Mapping):
        raise DataError(
            f"{place}: got a {kind} that holds no loaders: {loader!r}. Give DataLoaders or other iterables of "
            "batches as its values."
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
            "everything again, until that was measured to take long; then they are kept, where they can be. Set "
            "DataLoader(persistent_workers=True) to keep them from the first epoch on.",
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

    Of a `CombinedLoader`, on those of each loader in it. Objects without such a method are left out. Each is told
    once, however many ways lead to it.
    """
    owners: list[Any] = []
    for part in loader.flattened if isinstance(loader, CombinedLoader) else [loader]:
        batch_sampler = getattr(part, "batch_sampler", None)
        owners += [getattr(part, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
        owners.append(getattr(part, "dataset", None))
    told: list[Any] = []
    for owner in owners:
        tell = getattr(owner, "set_epoch", None)
        if callable(tell) and not any(owner is other for other in told):
            told.append(owner)
            tell(epoch)

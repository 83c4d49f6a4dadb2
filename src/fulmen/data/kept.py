"""Workers that outlive an epoch and yet begin the next one as new ones would.

Workers that are spawned, or forked from a server, import everything anew: seconds per epoch. What they get is pickled:
the data set, `worker_init_fn`, the collate function and a seed. So a worker that is kept can be given the same again,
and then gives the same numbers as a new one. Only what lives in the modules that it imported stays. Forked workers get
the process's whole memory instead; these are not kept.
"""

from __future__ import annotations

import multiprocessing
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils.worker import _generate_state

MOST_BYTES = 1 << 24


def start_method(loader: DataLoader[Any]) -> str | None:
    """Return how the loader's worker processes are started; `None` if nobody has decided yet."""
    context = loader.multiprocessing_context
    return context.get_start_method() if context is not None else multiprocessing.get_start_method(allow_none=True)


def can_keep(loader: DataLoader[Any]) -> bool:
    """Tell whether new workers of this loader begin with nothing but what is pickled for them."""
    return (
        start_method(loader) in ("spawn", "forkserver")
        and getattr(loader, "worker_method", "multiprocessing") == "multiprocessing"
        and getattr(loader, "in_order", True)
        and pack(loader) is not None
    )


def pack(loader: DataLoader[Any]) -> bytes | None:
    """Pickle what a worker gets, as starting one would; `None` if it cannot be, or is more than 16 MiB.

    Tensors are shared, not copied, and are not counted.
    """
    try:
        packed = bytes(ForkingPickler.dumps((loader.dataset, loader.worker_init_fn, loader.collate_fn)))
    except Exception:
        return None
    return packed if len(packed) <= MOST_BYTES else None


class Begin:
    """The first indices of an epoch for a kept worker, with what it begins anew from."""

    def __init__(self, indices: Any, seed: int, packed: bytes) -> None:
        self.indices = indices
        self.seed = seed
        self.packed = packed


class KeptCollate:
    """A collate function that can be exchanged in the worker."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: Any) -> Any:
        """Collate as the function at hand does."""
        return self.collate_fn(samples)


class KeptData(Dataset[Any]):
    """Stands in for the data set, in a worker, for torch's fetcher only; the user's code sees the data set.

    Args:
        dataset: The data set.
        init_fn: The user's `worker_init_fn`.
        collate: What collates in the worker; its ``collate_fn`` is the user's.
    """

    def __init__(self, dataset: Any, init_fn: Callable[[int], None] | None, collate: Any) -> None:
        self.dataset = dataset
        self.init_fn = init_fn
        self.collate = collate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        index = self._begun(index)
        return self.dataset[index]

    def __getitems__(self, indices: Any) -> Any:
        """Read a batch as torch's fetcher would."""
        indices = self._begun(indices)
        if hasattr(self.dataset, "__getitems__") and self.dataset.__getitems__:
            return self.dataset.__getitems__(indices)
        return [self.dataset[idx] for idx in indices]

    def _begun(self, indices: Any) -> Any:
        if type(indices) is not Begin:
            return indices
        info = get_worker_info()
        assert info is not None
        _seed_worker(indices.seed, info.id)
        self.dataset, self.init_fn, self.collate.collate_fn = pickle.loads(indices.packed)
        object.__setattr__(info, "seed", indices.seed + info.id)  # it does not let itself be changed
        self.show()
        return indices.indices

    def show(self) -> None:
        """Let `get_worker_info` tell of the data set, and run the user's `worker_init_fn`."""
        info = get_worker_info()
        assert info is not None
        object.__setattr__(info, "dataset", self.dataset)
        if self.init_fn is not None:
            self.init_fn(info.id)


def start_kept(worker_id: int) -> None:
    """The `worker_init_fn` of workers that will be kept."""
    info: Any = get_worker_info()
    info.dataset.show()


def _seed_worker(base_seed: int, worker_id: int) -> None:
    """Seed as torch does when it starts a worker."""
    random.seed(base_seed + worker_id)
    torch.manual_seed(base_seed + worker_id)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_generate_state(base_seed, worker_id))


class KeptLists:
    """The batch sampler of a loader whose workers are kept: tells each, with its first list, to begin anew.

    It draws what torch draws when it starts workers, in the same order.

    Args:
        lists: The index lists.
        loader: The user's loader.
    """

    def __init__(self, lists: Any, loader: DataLoader[Any]) -> None:
        self.lists = lists
        self.loader = loader
        self.packed: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.lists)

    def __iter__(self) -> Iterator[Any]:
        packed, self.packed = self.packed, None
        if packed is None:
            return iter(self.lists)
        iter(self.lists)  # torch asks twice: once to make the iterator, once to begin the epoch
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.loader.generator).item())
        return self._with_begin(iter(self.lists), seed, packed)

    def _with_begin(self, lists: Iterator[Any], seed: int, packed: list[bytes]) -> Iterator[Any]:
        for each, indices in zip(packed, lists, strict=False):
            yield Begin(indices, seed, each)
        yield from lists

    def renew(self) -> bool:
        """Take what workers get now; `False` if it cannot be packed, so that new workers must be started."""
        packed = [pack(self.loader) for _ in range(self.loader.num_workers)]
        if None in packed:
            return False
        self.packed = packed  # type: ignore[assignment]  # none of them is `None`
        return True

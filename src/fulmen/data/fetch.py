"""Reads whole batches out of tensor data sets, where that gives exactly what `DataLoader` gives sample by sample.

A `DataLoader` over a `TensorDataset` cuts each row out of each tensor and stacks the rows again. Taking the rows with
one `index_select` per tensor gives the same tensors in a fifth of the time. Order and random numbers are not touched:
the loader's own iterator stays, and asks its own batch sampler; only the object in it that turns indices into a batch
is exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _profiler_enabled
from torch.utils.data import Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

# As torch wrote them: where somebody has put something else in their place, that must run.
_ROW_OF_TENSORS = TensorDataset.__getitem__
_ROW_OF_SUBSET = (Subset.__getitem__, Subset.__getitems__)
_FETCH = _MapDatasetFetcher.fetch
_NEXT_DATA = _SingleProcessDataLoaderIter._next_data


def read_batchwise(iterator: Any) -> Callable[[], Any] | None:
    """Let a `DataLoader`'s fresh iterator read whole batches, if its data set and its collate function allow it.

    That is so without workers, with torch's own `default_collate`, for a `TensorDataset` of plain CPU tensors, or a
    `Subset` (of a `Subset` ...) of one. Sub-classes count as long as they do not say themselves how a row is read.

    Args:
        iterator: What ``iter(loader)`` returned; nothing was read from it yet.

    Returns:
        What gives the next batch; `None` where batches cannot be read so, and nothing was changed.
    """
    if type(iterator) is not _SingleProcessDataLoaderIter or type(iterator)._next_data is not _NEXT_DATA:
        return None
    fetcher = iterator._dataset_fetcher
    if type(fetcher) is not _MapDatasetFetcher or type(fetcher).fetch is not _FETCH or not fetcher.auto_collation:
        return None
    if fetcher.collate_fn is not default_collate or not _collates_as_usual():
        return None
    subsets, rows = [], fetcher.dataset
    while isinstance(rows, Subset):
        if not _is_torchs_subset(rows):
            return None
        subsets.append(rows)
        rows = rows.dataset
    if not _is_torchs_rows(rows) or not _can_select(rows.tensors):
        return None
    try:
        from numpy import array  # makes indices of a list of integers four times as fast as torch.tensor
    except ImportError:
        return None
    fetcher = iterator._dataset_fetcher = BatchFetcher(fetcher, rows, subsets, array)
    return iterator.__next__ if iterator._pin_memory else DirectReader(iterator, fetcher)


def _collates_as_usual() -> bool:
    """Nobody has registered another way to collate tensors or tuples."""
    kinds = [kind for key in default_collate_fn_map for kind in (key if isinstance(key, tuple) else (key,))]
    return default_collate_fn_map.get(Tensor) is collate_tensor_fn and not any(
        issubclass(tuple, kind) or (kind is not Tensor and issubclass(Tensor, kind)) for kind in kinds
    )


def _is_torchs_subset(data: Subset[Any]) -> bool:
    methods = (type(data).__getitem__, type(data).__getitems__)
    return methods == _ROW_OF_SUBSET and "__getitems__" not in vars(data)


def _is_torchs_rows(data: Any) -> bool:
    return (
        isinstance(data, TensorDataset)
        and type(data).__getitem__ is _ROW_OF_TENSORS
        and "tensors" in vars(data)
        and not hasattr(data, "__getitems__")
    )


def _can_select(tensors: Any) -> bool:
    """Selecting rows gives what stacking them would: the same type, values, strides, and no gradient to follow."""
    return type(tensors) is tuple and all(
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())
        and tensor.is_contiguous()
        for tensor in tensors
    )


class BatchFetcher(_MapDatasetFetcher):
    """Turns a batch of indices into a batch of rows, all at once.

    Indices that `index_select` does not take (negative ones, out of range, no integers) go torch's own way, so that
    they give the same rows, or the same error.

    Args:
        fetcher: The one that it stands in for.
        rows: The data set with the tensors.
        subsets: The subsets around it, outermost first.
        array: ``numpy.array``.
    """

    def __init__(
        self,
        fetcher: _MapDatasetFetcher,
        rows: TensorDataset,
        subsets: list[Subset[Any]],
        array: Callable[[Any], Any],
    ) -> None:
        super().__init__(fetcher.dataset, fetcher.auto_collation, fetcher.collate_fn, fetcher.drop_last)
        self.rows = rows
        self.subsets = subsets
        self.tensors: tuple[Tensor, ...] | None = rows.tensors
        self.seen = rows.tensors
        self.array = array

    def fetch(self, possibly_batched_index: Any) -> Any:
        """Return the batch of these indices."""
        if self.rows.tensors is not self.seen:  # exchanged by the user in the middle of the epoch
            self.seen = self.rows.tensors
            self.tensors = self.seen if _can_select(self.seen) else None
        if self.tensors is None:
            return super().fetch(possibly_batched_index)
        try:
            indices = possibly_batched_index
            for subset in self.subsets:
                chosen = subset.indices
                indices = [chosen[index] for index in indices]
            array = self.array(indices)
            if array.ndim == 1:
                index = torch.from_numpy(array)
                return [tensor.index_select(0, index) for tensor in self.tensors]
        except Exception:
            pass
        return super().fetch(possibly_batched_index)


class DirectReader:
    """Gives batches as the loader's iterator does, without the label for profilers that costs as much as the batch.

    Args:
        iterator: The loader's iterator.
        fetcher: What is in it.
    """

    __slots__ = ("_fetch", "_indices", "_labelled")

    def __init__(self, iterator: Any, fetcher: BatchFetcher) -> None:
        self._labelled = iterator.__next__
        self._indices = iterator._sampler_iter
        self._fetch = fetcher.fetch

    def __call__(self) -> Any:
        """Return the next batch; `StopIteration` after the last."""
        if _profiler_enabled():
            return self._labelled()
        return self._fetch(next(self._indices))

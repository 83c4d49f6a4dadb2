"""Copy the next batch to an accelerator while the current one is computed on (a side stream)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from fulmen.data.runs import LoaderRun, StreamState
from fulmen.errors import ArgumentValueError
from fulmen.utilities.collections import apply_to_collection

_END = object()


class DeviceBoundary(Protocol):
    """What the prefetcher needs of an accelerator; tests put a fake in its place."""

    def side(self) -> AbstractContextManager[Any]:
        """Context in which work goes to the side stream."""
        ...

    def join(self) -> None:
        """Let the current stream wait for the side stream."""
        ...

    def keep(self, tensor: Tensor) -> None:
        """Tell the allocator that the current stream uses `tensor`, which the side stream made."""
        ...


class CudaBoundary:
    """Streams of a CUDA device.

    Raises:
        ArgumentValueError: If `device` is no CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise ArgumentValueError(
                f"CudaBoundary: device={device!r} has no streams; prefetching needs a CUDA device."
            )
        self._device = device
        self._side = torch.cuda.Stream(device)

    def side(self) -> AbstractContextManager[Any]:
        """Context in which work goes to the side stream."""
        return torch.cuda.stream(self._side)

    def join(self) -> None:
        """Let the current stream wait for the side stream."""
        torch.cuda.current_stream(self._device).wait_stream(self._side)

    def keep(self, tensor: Tensor) -> None:
        """Tell the allocator that the current stream uses `tensor`, which the side stream made."""
        if tensor.device.type == "cuda":
            tensor.record_stream(torch.cuda.current_stream(self._device))


class DevicePrefetcher:
    """A run that is one batch ahead of the loop and has it on the device already.

    It has the attributes and methods of `LoaderRun`; they speak of the batch returned, not of the one read ahead. As
    it reads ahead, random numbers that a loader without workers draws come before the step's instead of after.
    Batches should be in pinned memory (``DataLoader(pin_memory=True)``), or the copy is not asynchronous.

    Args:
        run: What gives batches.
        transfer: Brings a batch to the device (`BatchTransfer`); called in the side stream.
        boundary: The accelerator's streams.
        dataloader_idx: Passed to `transfer`.
    """

    def __init__(
        self, run: LoaderRun, transfer: Callable[[Any, int], Any], boundary: DeviceBoundary, dataloader_idx: int = 0
    ) -> None:
        self._run = run
        self._transfer = transfer
        self._boundary = boundary
        self._dataloader_idx = dataloader_idx
        self._count: int | None = None
        self._state: StreamState = {}
        self.batch_idx = run.batch_idx
        self.is_last = run.is_last
        self._ahead = self._read()

    @property
    def exhausted(self) -> bool:
        """The loader itself has ended."""
        return self._ahead is _END and self._run.exhausted

    def __iter__(self) -> DevicePrefetcher:
        return self

    def __next__(self) -> Any:
        batch = self._ahead
        if batch is _END:
            raise StopIteration
        self._boundary.join()
        apply_to_collection(batch, Tensor, self._keep)
        self.batch_idx = self._run.batch_idx
        self._count = self._run.indices_count()
        self._state = self._run.stream_state()
        if self._run.is_last:
            self._ahead, self.is_last = _END, True
        else:
            self._ahead = self._read()
            self.is_last = self._ahead is _END
        return batch

    def _keep(self, tensor: Tensor) -> Tensor:
        self._boundary.keep(tensor)
        return tensor

    def _read(self) -> Any:
        try:
            batch = next(self._run)
        except StopIteration:
            return _END
        with self._boundary.side():
            return self._transfer(batch, self._dataloader_idx)

    def indices_count(self) -> int | None:
        """As `LoaderRun.indices_count`, for the batch returned."""
        return self._count

    def stream_state(self) -> StreamState:
        """As `LoaderRun.stream_state`, for the batch returned."""
        return {**(self._state or self._run.stream_state()), "complete": self.is_last}

    def end_workers(self) -> None:
        """As `LoaderRun.end_workers`."""
        if self.is_last:
            self._run.end_workers()

    def close(self) -> None:
        """Let go of the batch read ahead and close the run."""
        self._ahead = _END
        self._run.close()

"""Saving beside training: the loop waits for a copy into host memory, a thread writes the file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fulmen.engine.storage.checkpoint_io import CheckpointIO, Prepared, TorchCheckpointIO
from fulmen.engine.storage.snapshot import BufferPool, Snapshot
from fulmen.errors import ArgumentTypeError, CheckpointError, warn
from fulmen.types import MapLocation, PathOrStr

Job = Callable[[], None]


class AsyncCheckpointIO(CheckpointIO):
    """Writes checkpoints in a thread, one after the other, in the order in which they were asked for.

    `save_checkpoint` returns when the tensors are copied; training may change them then. Reading waits for what is
    being written. A file that is to be deleted goes after the writes that were asked for before; if one of them failed,
    it stays. Up to `pending` checkpoints wait in memory; a further one waits for the first.

    A write that fails is told by a warning at the next call, and raised by `teardown` at the end of the run.

    Args:
        checkpoint_io: What writes; a `TorchCheckpointIO` if not given.
        pending: Checkpoints that may be in memory at once.

    Raises:
        ArgumentTypeError: If `checkpoint_io` is no CheckpointIO.
    """

    def __init__(self, checkpoint_io: CheckpointIO | None = None, pending: int = 2) -> None:
        given: Any = checkpoint_io
        number: Any = pending
        if given is not None and not isinstance(given, CheckpointIO):
            raise ArgumentTypeError(f"AsyncCheckpointIO(checkpoint_io={checkpoint_io!r}): give a CheckpointIO object.")
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ArgumentTypeError(f"AsyncCheckpointIO(pending={pending!r}): must be an int of at least 1.")
        self.checkpoint_io = checkpoint_io
        self.pending = pending
        self._pool = BufferPool(keep=pending)
        self._writer: _Writer | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The thread and its buffers stay in this process.
        return {"checkpoint_io": self.checkpoint_io, "pending": self.pending}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # made anew: the thread starts with the first save

    def _io(self) -> CheckpointIO:
        if self.checkpoint_io is None:
            self.checkpoint_io = TorchCheckpointIO()
        return self.checkpoint_io

    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathOrStr, storage_options: Any | None = None) -> None:
        """Copy a checkpoint and have it written.

        Args:
            checkpoint: State of model and trainer.
            path: A path or URL.
            storage_options: Passed to the wrapped `checkpoint_io`.
        """
        writer = self._running()
        writer.warn_of_failures()
        io = self._io()
        writer.slots.acquire()
        try:
            prepared = _prepared(io, checkpoint, path, storage_options)
            snapshot = self._pool.take(checkpoint if prepared is None else prepared.content)
        except BaseException:
            writer.slots.release()
            raise

        def write(snapshot: Snapshot = snapshot) -> None:
            try:
                if prepared is None:
                    io.save_checkpoint(snapshot.tree, path, storage_options=storage_options)
                else:
                    prepared.write(snapshot.tree)
            finally:
                snapshot.release()
                writer.slots.release()

        writer.put(write, os.fspath(path))

    def load_checkpoint(
        self, path: PathOrStr, map_location: MapLocation = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Wait for what is being written, then read; arguments as for the wrapped `checkpoint_io`."""
        self.wait()
        return self._io().load_checkpoint(path, map_location, weights_only)

    def remove_checkpoint(self, path: PathOrStr) -> None:
        """Delete a checkpoint after the writes asked for before; it stays if the last of them failed."""
        writer = self._writer
        if writer is None or not writer.busy:
            if writer is None or not writer.last_failed:
                self._io().remove_checkpoint(path)
            return
        writer.put(lambda: self._io().remove_checkpoint(path), os.fspath(path), removes=True)

    def wait(self) -> None:
        """Wait until everything asked for is on disk; failures are told by a warning."""
        if self._writer is not None:
            self._writer.join()
            self._writer.warn_of_failures()

    def flush(self) -> None:
        """Wait until everything asked for is on disk.

        Raises:
            CheckpointError: If a write failed.
        """
        if self._writer is not None:
            self._writer.join()
            self._writer.raise_first()

    def failures(self) -> dict[str, Exception]:
        """Path and error of the writes that failed in this run so far."""
        return dict(self._writer.failures) if self._writer is not None else {}

    def teardown(self) -> None:
        """Wait for all writes, end the thread, free the buffers.

        Raises:
            CheckpointError: If a write failed; the first error is its cause.
        """
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
                writer.raise_first()
        finally:
            self._pool.clear()
            self._io().teardown()

    def _running(self) -> _Writer:
        if self._writer is None or self._writer.pid != os.getpid():
            self._writer = _Writer(self.pending)
        return self._writer


def _prepared(io: CheckpointIO, checkpoint: dict[str, Any], path: PathOrStr, options: Any) -> Prepared | None:
    """What Fulmen's own writer needs; `None` for one that writes in a way of its own.

    Objects are pickled here, in the thread of training, which may change them while the file is written.
    """
    if isinstance(io, TorchCheckpointIO) and type(io).save_checkpoint is TorchCheckpointIO.save_checkpoint:
        return io.prepare(checkpoint, path, options)
    return None


class _Writer:
    """A thread that does one job after the other. At the interpreter's end the executor finishes what was asked for."""

    def __init__(self, pending: int) -> None:
        self.pid = os.getpid()
        self.slots = threading.BoundedSemaphore(pending)
        self.failures: dict[str, Exception] = {}
        self.last_failed = False
        self._told: set[str] = set()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fulmen-checkpoint-writer")
        self._last: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being written or waits for it."""
        return self._last is not None and not self._last.done()

    def put(self, job: Job, path: str, *, removes: bool = False) -> None:
        """Do a job after those put before; one that removes is left out if the write before it failed."""
        self._last = self._executor.submit(self._do, job, path, removes)

    def _do(self, job: Job, path: str, removes: bool) -> None:
        if removes and self.last_failed:
            return
        try:
            job()
        except Exception as error:  # whatever a CheckpointIO raises: it is told and raised at the end
            self.failures[path] = error.with_traceback(None)  # its frames would keep the checkpoint in memory
            self.last_failed = self.last_failed or not removes
        else:
            if not removes:
                self.last_failed = False
                self.failures.pop(path, None)

    def join(self) -> None:
        """Wait for all jobs."""
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        """Wait for all jobs and end the thread."""
        self._executor.shutdown(wait=True)

    def warn_of_failures(self) -> None:
        """Tell of each failure once, in the thread of training."""
        for path, error in list(self.failures.items()):
            if path not in self._told:
                self._told.add(path)
                warn(
                    "W075",
                    f"AsyncCheckpointIO could not write {path!r}: {type(error).__name__}: {error}. Earlier checkpoints "
                    "are kept, training goes on, and the error is raised when the run ends.",
                    key=path,
                )

    def raise_first(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.failures:
            path, error = next(iter(self.failures.items()))
            more = f", and {len(self.failures) - 1} more" if len(self.failures) > 1 else ""
            self.failures = {}  # raised once
            raise CheckpointError(f"AsyncCheckpointIO could not write {path!r}{more}: {error}") from error

"""Base class of callbacks that write checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fulmen.callbacks.callback import Callback

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


class Checkpoint(Callback):
    """A callback that writes checkpoints.

    Subclass it, rather than `Callback`, for a checkpointing callback of your own: the Trainer then lists it under
    `trainer.checkpoint_callbacks`, adds no default `ModelCheckpoint`, and runs it after all other callbacks.
    """

    save_errors: Sequence[Exception] = ()
    """Errors of saves that failed in this run; training went on, the Trainer raises them when `fit` ends."""

    @property
    def written_files(self) -> frozenset[str]:
        """Files (or folders) that this run has written through this callback and that were not deleted since."""
        return frozenset()

    def save_last_on_interrupt(self, trainer: Trainer) -> bool:
        """Write the newest state because the run is interrupted; the Trainer calls it between two batches.

        Returns:
            Whether the newest state is in a file now. The base class writes nothing.
        """
        return False

    def find_last_checkpoints(self, trainer: Trainer) -> set[str]:
        """Return the files that hold a newest state, for ``ckpt_path="last"``; the base class knows none."""
        return set()

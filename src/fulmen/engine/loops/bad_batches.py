"""`Trainer(skip_bad_batches=...)`: count batches without a finite loss, say so, and stop when there are too many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.hooks.spec import TRAIN_LOADER
from fulmen.errors import StepOutputError, warn
from fulmen.utilities.nonfinite import describe_nonfinite
from fulmen.utilities.rank_zero import rank_zero_info

DEFAULT_LIMIT = 100


class BadBatches:
    """Counts bad batches.

    Args:
        limit: Most bad batches in a row.
        owner: Name of the user's class.
        note: Writes an entry of the run record.

    Attributes:
        skipped: Bad batches so far.
        in_row: Those since the last good one.
    """

    def __init__(self, limit: int, owner: str, note: Callable[..., None]) -> None:
        self.limit = limit
        self.owner = owner
        self.note = note
        self.skipped = 0
        self.in_row = 0

    def why(self, loss: Tensor | None) -> str | None:
        """What is wrong with a loss, `None` if nothing is; waits for the device."""
        if loss is None:
            return "None"
        if bool(torch.isfinite(loss.detach()).all()):
            return None
        return "NaN" if bool(torch.isnan(loss.detach()).any()) else "Inf"

    def good(self) -> None:
        """A batch was good."""
        self.in_row = 0

    def bad(self, why: str, batch: Any, *, epoch: int, batch_idx: int, step: int) -> None:
        """A batch is left out.

        Raises:
            StepOutputError: If there were too many in a row.
        """
        self.skipped += 1
        self.in_row += 1
        found = describe_nonfinite(batch)
        cause = f" The batch itself is bad: {found}." if found is not None else ""
        place = f"batch {batch_idx} of epoch {epoch} from {TRAIN_LOADER}"
        self.note("skipped_batch", epoch=epoch, batch=batch_idx, step=step, loss=why, cause=found)
        if self.in_row > self.limit:
            raise StepOutputError(
                f"Trainer(skip_bad_batches): {self.in_row} bad batches in a row, more than the limit of {self.limit}; "
                f"the last one is {place}, with the loss {why}.{cause} Weights that have become NaN make every loss "
                "NaN: look for the first with `Trainer(detect_anomaly=True)`, or clip gradients."
            )
        warn(
            "W613",
            f"{self.owner}.training_step gave the loss {why} for {place}: the batch is skipped.{cause} Further ones "
            "are counted and told at the end.",
            key=self.owner,
        )

    def report(self) -> None:
        """Say how many there were."""
        if self.skipped:
            rank_zero_info(f"skip_bad_batches: {self.skipped} batch(es) without a finite loss were skipped.")

    def state_dict(self) -> dict[str, int]:
        """The counts."""
        return {"skipped": self.skipped, "in_row": self.in_row}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Take them back."""
        self.skipped, self.in_row = int(state_dict["skipped"]), int(state_dict["in_row"])

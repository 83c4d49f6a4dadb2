"""What `self.log` feeds where Lightning's way with the first batch of an epoch is asked for."""

from __future__ import annotations

from typing import Any

from fulmen.engine.hooks.spec import HookSpec
from fulmen.engine.results.entry import Entry
from fulmen.engine.results.store import Results


class FirstBatchResults(Results):
    """Drops what a hook logged before, if another hook logged in between in the first batch of an epoch.

    That is how Lightning begins an epoch anew. It loses values where hooks take turns within a batch: in manual
    optimization, or with several steps in one.
    """

    _batches = 0
    _hook: HookSpec | None = None

    @property
    def on_step(self) -> bool:
        """Whether batches run."""
        return self._batches > 0

    @on_step.setter
    def on_step(self, value: bool) -> None:
        self._batches = self._batches + 1 if value else 0

    def log(self, name: str, value: Any, given: tuple[Any, ...], batch_size: int | None) -> None:
        """As in `Results`, after what Lightning drops was dropped.

        Args:
            name: Key.
            value: See `Results.log`.
            given: See `Results.log`.
            batch_size: See `Results.log`.
        """
        hook = self.cursor.hook
        if hook is not self._hook and self._batches < 2:
            for (owner, _, number), entry in self.entries.items():
                separate = number is not None and entry.flags.add_dataloader_idx
                if owner is hook and isinstance(entry, Entry) and not separate:
                    entry.reset()
        super().log(name, value, given, batch_size)
        self._hook = hook

    def reset(self) -> None:
        """Forget the values of all keys."""
        super().reset()
        self._hook = None

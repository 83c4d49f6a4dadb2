"""What `self.log` feeds in a Trainer that logs nothing."""

from __future__ import annotations

from typing import Any

from fulmen.engine.results.store import Results
from fulmen.errors import warn


class SilentResults(Results):
    """Takes nothing, for `Trainer(barebones=True)`."""

    def log(self, name: str, value: Any, given: tuple[Any, ...], batch_size: int | None) -> None:
        """Say once that nothing is logged.

        Args:
            name: Key.
            value: Not looked at.
            given: Not looked at.
            batch_size: Not looked at.
        """
        warn(
            "W209",
            f"self.log({name!r}, ...) does nothing: Trainer(barebones=True) logs no values, and monitors find none.",
        )

"""What ranks tell each other between batches: stop, save, time is up, an error."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """What all ranks do at this batch boundary."""

    stop: bool = False
    save: bool = False
    time_up: bool = False
    error: bool = False


class ControlExchange:
    """One process: what it wants is what happens, at once.

    `should_stop`, SIGTERM, `max_time` and "save now" go through `agree` and through nothing else, so that ranks never
    take different turns. An exchange between ranks has the same method; it asks them every `every` steps only and
    returns an empty decision in between, at which wishes are kept.

    Attributes:
        every: Steps between two questions.
    """

    every: int = 1

    def agree(self, stop: bool = False, save: bool = False, time_up: bool = False, error: bool = False) -> Decision:
        """Tell what this rank wants, return what all do.

        Args:
            stop: Training shall end.
            save: A checkpoint is wanted now.
            time_up: The run's time is over.
            error: Something failed on this rank.
        """
        return Decision(stop, save, time_up, error)

    def close(self) -> None:
        """Release what was acquired."""

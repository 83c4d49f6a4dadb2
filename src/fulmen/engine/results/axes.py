"""x values for loggers beside the step: epochs, samples, tokens, time, or a value that is logged itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fulmen.engine.results.entry import Entry
from fulmen.errors import LoggingError, suggest, warn

if TYPE_CHECKING:
    from fulmen.engine.results.flags import Flags

STEP, EPOCH, SAMPLES, TOKENS, TIME = "step", "epoch", "samples", "tokens", "time"
BUILT_IN = (STEP, EPOCH, SAMPLES, TOKENS, TIME)


class Axes:
    """Which key has which x axis, and the counts behind them; nothing is counted until an axis asks for it.

    Args:
        clock: Seconds.

    Attributes:
        keys: Axis by key, for keys that were logged with one.
        counting: Training batches are to be counted: somebody uses `samples`.
        batches: Number of training batches that were counted.
        samples: Samples in them.
        tokens: Sum of what training logged as `tokens`; `None` before.
        total_batches: Gives the number of training batches so far.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.keys: dict[str, str] = {}
        self.counting = False
        self.batches = 0
        self.samples: float = 0
        self.tokens: Any = None
        self.total_batches: Callable[[], int] = lambda: self.batches
        self._seconds = 0.0
        self._since = clock()

    def begin(self, loggers: Iterable[Any], total_batches: Callable[[], int] | None = None) -> None:
        """A run begins, or goes on; time between runs does not count."""
        self._since = self.clock()
        if total_batches is not None:
            self.total_batches = total_batches
        if any(axis_of(logger) == SAMPLES for logger in loggers):
            self.counting = True

    @property
    def seconds(self) -> float:
        """Seconds in runs so far, up to now."""
        now = self.clock()
        self._seconds += now - self._since
        self._since = now
        return self._seconds

    def use(self, flags: Flags) -> None:
        """A key is logged with an axis of its own."""
        assert flags.axis is not None
        names = {flags.key(on_step=True), flags.key(on_step=False)}
        if flags.over_loaders:
            names |= {name.removesuffix(flags.suffix) for name in names}
        self.keys.update(dict.fromkeys(names, flags.axis))

    def count(self, size: float) -> None:
        """Count a training batch, and estimate those before it if they were not counted."""
        missed = self.total_batches() - 1 - self.batches
        if missed > 0:
            self.samples += missed * size
            warn(
                "W207",
                f"axis='samples' was first asked for after {missed} training batches; they are counted as {size:g} "
                "samples each. To have all counted, give the logger the axis (`logger.axis = 'samples'`), or log with "
                "it from the first batch on.",
            )
        self.batches = self.total_batches()
        self.samples += size

    def value(self, axis: str, row: Mapping[str, Any], logged: Mapping[str, Any], epoch: int) -> float:
        """The x value of a row.

        Args:
            axis: Name of the axis.
            row: Numbers that are written now.
            logged: Values that were logged before.
            epoch: Current epoch.

        Raises:
            LoggingError: If the axis is a key that was not logged, or tokens were not.
        """
        if axis == TOKENS:
            if self.tokens is None:
                raise LoggingError(
                    "axis='tokens': no tokens were counted. Log the number of tokens of each batch in `training_step`: "
                    "`self.log('tokens', count, reduce_fx='sum')`; the axis is their sum over the run."
                )
            return _number(axis, self.tokens)
        if axis in row:
            return _number(axis, row[axis])
        if axis == EPOCH:
            return epoch
        if axis == TIME:
            return self.seconds
        if axis == SAMPLES:
            return self.samples
        if axis in logged:
            return _number(axis, logged[axis])
        names = sorted({*BUILT_IN, *row, *logged})
        raise LoggingError(
            f"axis={axis!r}: nothing was logged under that name.{suggest(axis, names)} An axis is 'step', 'epoch', "
            f"'samples', 'tokens', 'time', or the name of a logged value: {sorted({*row, *logged})}."
        )

    def split(self, row: Mapping[str, Any], default: str | None) -> dict[str, dict[str, Any]]:
        """The values of a row by their axis.

        Args:
            row: Numbers by key.
            default: The logger's own axis, `None` for the step.
        """
        parts: dict[str, dict[str, Any]] = {}
        for key, value in row.items():
            axis = self.keys.get(key) or default or STEP
            parts.setdefault(STEP if key == axis else axis, {})[key] = value
        return parts

    def state_dict(self) -> dict[str, Any]:
        """Counts so far."""
        names = ("counting", "batches", "samples", "tokens")
        state = {name: getattr(self, name) for name in names}
        return {**state, "keys": dict(self.keys), "seconds": self.seconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        self.keys.update(state["keys"])
        self.counting = self.counting or state["counting"]
        self.batches, self.samples, self.tokens = state["batches"], state["samples"], state["tokens"]
        self._seconds, self._since = state["seconds"], self.clock()


class TokenEntry(Entry):
    """The key `tokens` of training: its values are also added up over the run."""

    __slots__ = ("axes",)

    def __init__(self, flags: Flags, axes: Axes, *, keep_integers: bool) -> None:
        super().__init__(flags, keep_integers=keep_integers)
        self.axes = axes

    def _put_tensor(self, value: Tensor, weight: float) -> None:
        self._add(value.clone())
        super()._put_tensor(value, weight)

    def put_number(self, value: float | int, weight: float, dtype: Any = None) -> None:
        """As in `Entry`."""
        self._add(value)
        super().put_number(value, weight, dtype)

    def _add(self, value: Any) -> None:
        axes = self.axes
        axes.tokens = value if axes.tokens is None else axes.tokens + value


def axis_of(logger: Any) -> str | None:
    """The axis of a logger; `None` for the step."""
    axis = getattr(logger, "axis", None)
    return axis if isinstance(axis, str) else None


def _number(axis: str, value: Any) -> float:
    number = value.item() if isinstance(value, Tensor) else value
    if number != number or abs(number) == float("inf"):
        raise LoggingError(f"axis={axis!r}: its value is {number}, which is no place on an axis.")
    return float(number) if isinstance(number, float) else int(number)

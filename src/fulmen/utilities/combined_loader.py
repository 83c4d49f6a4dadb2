"""Several loaders as one: `CombinedLoader`, and how loaders are nested in lists, dicts and objects."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest

__all__ = ["MODES", "CombinedLoader", "Mode", "Nesting", "map_loaders"]

Mode: TypeAlias = Literal["min_size", "max_size_cycle", "max_size", "sequential"]
Item: TypeAlias = tuple[Any, int, int]
MODES = ("min_size", "max_size_cycle", "max_size", "sequential")

_DICTS = (dict, OrderedDict, defaultdict)


class Nesting:
    """How loaders are nested in a collection; takes it apart and puts values in the loaders' places.

    Dicts, lists, tuples, named tuples, deques and dataclass objects that are no iterables themselves are taken apart.
    Everything else is a loader, also a collection that holds nothing but numbers and texts (it is a loader of these),
    an empty one, and an object of a subclass of `list` or `tuple`.

    Args:
        value: A loader or a collection of them.

    Attributes:
        leaves: The loaders, from left to right.
        places: Where each of them stands: ``"['a'][0]"``, or ``""`` if `value` is a loader itself.
    """

    def __init__(self, value: Any) -> None:
        self.leaves: list[Any] = []
        self.places: list[str] = []
        self._node = self._take_apart(value, "")
        node = self._node
        self._flat = node if node is not None and not any(node.children) and node.kind in (dict, list, tuple) else None

    @property
    def is_single(self) -> bool:
        """Whether the value is one loader and no collection."""
        return self._node is None

    def _take_apart(self, value: Any, place: str) -> _Node | None:
        parts = _parts(value)
        if parts is None:
            self.leaves.append(value)
            self.places.append(place)
            return None
        children = [self._take_apart(child, f"{place}{where}") for _, where, child in parts]
        return _Node(type(value), _hollow(value), [key for key, _, _ in parts], children)

    def put(self, values: Sequence[Any]) -> Any:
        """Return a collection of the same kind with `values` where the loaders stand."""
        flat = self._flat
        if flat is None:
            return values[0] if self._node is None else _build(self._node, iter(values))
        if flat.kind is dict:
            return dict(zip(flat.keys, values, strict=True))
        return tuple(values) if flat.kind is tuple else list(values)


@dataclasses.dataclass
class _Node:
    """A collection: its type, a copy without its items, their keys, and the nodes below (`None` for a loader)."""

    kind: type
    hollow: Any
    keys: list[Any]
    children: list[_Node | None]


def _parts(value: Any) -> list[tuple[Any, str, Any]] | None:
    """Key, place and value of each item of a collection; `None` if it is a loader."""
    kind = type(value)
    if kind in _DICTS or isinstance(value, Mapping):
        parts = [(key, f"[{key!r}]", item) for key, item in value.items()]
    elif kind in (list, tuple, deque):
        parts = [(index, f"[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = [(name, f".{name}", getattr(value, name)) for name in value._fields]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type) and not _can_iterate(value):
        parts = [(f.name, f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    else:
        return None
    return None if all(isinstance(item, (int, float, str)) for _, _, item in parts) else parts


def _can_iterate(value: Any) -> bool:
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")


def _hollow(value: Any) -> Any:
    """What is needed to make another collection like `value`, without keeping its loaders alive."""
    if isinstance(value, Mapping) and type(value) is not dict:
        result: Any = copy.copy(value)
        for key in list(value):
            result[key] = None
        return result
    if isinstance(value, deque):
        return value.maxlen
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(result, field.name, None)
        return result
    return None


def _build(node: _Node, values: Iterator[Any]) -> Any:
    items = [next(values) if child is None else _build(child, values) for child in node.children]
    if node.kind is dict:
        return dict(zip(node.keys, items, strict=True))
    if node.kind is deque:
        return deque(items, node.hollow)
    if node.hollow is not None:
        result = copy.copy(node.hollow)
        for key, item in zip(node.keys, items, strict=True):
            if isinstance(result, Mapping):
                result[key] = item  # type: ignore[index]  # mappings that can be written; others fail in `_hollow`
            else:
                object.__setattr__(result, key, item)  # works for frozen dataclasses, too
        return result
    return node.kind(*items) if hasattr(node.kind, "_fields") else node.kind(items)


def map_loaders(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a collection like `value` with `function` of each loader in its place; `value` stays as it is.

    A `CombinedLoader` gives a new one of the same mode.
    """
    if isinstance(value, CombinedLoader):
        return CombinedLoader(map_loaders(value.iterables, function), value.mode)
    nesting = Nesting(value)
    return nesting.put([function(leaf) for leaf in nesting.leaves])


def length_or_infinity(loader: Any) -> int | float:
    """`len(loader)`; infinity for a loader without one."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return float("inf")


class _Pass(ABC):
    """One pass over several loaders; subclasses say what a batch is.

    Args:
        loaders: The loaders.
        limits: Number of batches that each may give, `None` for all.
    """

    def __init__(self, loaders: list[Any], limits: list[int | float] | None) -> None:
        self.loaders = loaders
        self.limits = limits
        self.index = 0
        self.iterators: list[Iterator[Any]] = []
        self.begin()

    def begin(self) -> None:
        """Start the loaders."""
        self.iterators = [iter(loader) for loader in self.loaders]

    @abstractmethod
    def __next__(self) -> Item:
        """A batch, its index, and the number of its loader; raises `StopIteration` at the end."""


class _Together(_Pass):
    """All loaders give a value for each batch."""

    @abstractmethod
    def draw(self) -> list[Any]:
        """One value per loader; raises `StopIteration` at the end."""

    def __next__(self) -> Item:
        values = self.draw()
        self.index += 1
        return values, self.index - 1, 0


class _MinSize(_Together):
    def draw(self) -> list[Any]:
        return [next(iterator) for iterator in self.iterators]


class _MaxSize(_Together):
    def draw(self) -> list[Any]:
        missing = object()
        values = [next(iterator, missing) for iterator in self.iterators]
        if all(value is missing for value in values):
            raise StopIteration
        return [None if value is missing else value for value in values]


class _MaxSizeCycle(_Together):
    def begin(self) -> None:
        super().begin()
        self.ended = [False] * len(self.loaders)

    def draw(self) -> list[Any]:
        values = []
        for index, loader in enumerate(self.loaders):
            try:
                value = next(self.iterators[index])
            except StopIteration:
                self.ended[index] = True
                if all(self.ended):
                    raise
                self.iterators[index] = iter(loader)
                value = next(self.iterators[index])
            values.append(value)
        return values


class _Sequential(_Pass):
    def begin(self) -> None:
        self.position = -1
        self.go_on()

    def go_on(self) -> None:
        """Start the next loader; only one is open at a time."""
        self.position += 1
        self.index = 0
        self.iterators = [iter(self.loaders[self.position])] if self.position < len(self.loaders) else []

    def __next__(self) -> Item:
        while self.iterators:
            if self.limits is None or self.index < self.limits[self.position]:
                try:
                    value = next(self.iterators[0])
                except StopIteration:
                    pass
                else:
                    self.index += 1
                    return value, self.index - 1, self.position
            self.go_on()
        raise StopIteration


_PASSES: dict[str, type[_Pass]] = {
    "min_size": _MinSize,
    "max_size_cycle": _MaxSizeCycle,
    "max_size": _MaxSize,
    "sequential": _Sequential,
}


class CombinedLoader(Iterable[Item]):
    """Reads several loaders as one; iterating gives ``(batch, batch_idx, dataloader_idx)``.

    | mode | a batch | ends |
    |---|---|---|
    | ``min_size`` | a collection like `iterables`, one batch of each loader | with the shortest loader |
    | ``max_size`` | the same, `None` where a loader has ended | with the longest |
    | ``max_size_cycle`` | the same, loaders that have ended begin again | with the longest |
    | ``sequential`` | a batch of one loader, whose number is ``dataloader_idx`` | after the last loader |

    The Trainer reads collections of training loaders as ``max_size_cycle``, those of evaluation as ``sequential``; with
    a `CombinedLoader` it takes the loader's mode, and its own limits instead of `limits`.

    Args:
        iterables: A loader (any iterable of batches), or a collection of them: dicts, lists, tuples, named tuples and
            dataclass objects in any nesting.
        mode: How they are combined.

    Raises:
        ArgumentValueError: If there is no such mode.

    Example:
        >>> loader = CombinedLoader({"a": [1, 2, 3], "b": ["x", "y"]}, "max_size_cycle")
        >>> for batch, batch_idx, dataloader_idx in loader:
        ...     print(batch)
        {'a': 1, 'b': 'x'}
        {'a': 2, 'b': 'y'}
        {'a': 3, 'b': 'x'}
    """

    def __init__(self, iterables: Any, mode: Mode = "min_size") -> None:
        if mode not in MODES:
            raise ArgumentValueError(
                f"CombinedLoader(mode={mode!r}): there is no such mode. Give one of {', '.join(map(repr, MODES))}."
                f"{suggest(str(mode), MODES)}"
            )
        self._iterables = iterables
        self._mode: Mode = mode
        self._nesting = Nesting(iterables)
        self._limits: list[int | float] | None = None
        self._pass: _Pass | None = None

    def __repr__(self) -> str:
        return f"CombinedLoader({len(self.flattened)} loaders, mode={self._mode!r})"

    @property
    def mode(self) -> Mode:
        """How the loaders are combined."""
        return self._mode

    @property
    def iterables(self) -> Any:
        """The collection of loaders, as given."""
        return self._iterables

    @property
    def nesting(self) -> Nesting:
        """How the loaders are nested."""
        return self._nesting

    @property
    def flattened(self) -> list[Any]:
        """The loaders in a flat list; may be set to a list of the same length.

        Raises:
            ArgumentValueError: When a list of another length is set.
        """
        return self._nesting.leaves

    @flattened.setter
    def flattened(self, flattened: list[Any]) -> None:
        count = len(self.flattened)
        if len(flattened) != count:
            raise ArgumentValueError(
                f"CombinedLoader.flattened: {len(flattened)} loaders were given for {count}; give {count}."
            )
        self._iterables = self._nesting.put(flattened)
        self._nesting.leaves = flattened

    @property
    def sampler(self) -> Any:
        """The samplers, in a collection like `iterables`; `None` for loaders without one."""
        return self._nesting.put([getattr(loader, "sampler", None) for loader in self.flattened])

    @property
    def batch_sampler(self) -> Any:
        """The batch samplers, in a collection like `iterables`; `None` for loaders without one."""
        return self._nesting.put([getattr(loader, "batch_sampler", None) for loader in self.flattened])

    @property
    def limits(self) -> list[int | float] | None:
        """How many batches each loader counts for; may be set to one number for all, or a list.

        ``sequential`` reads no more of a loader. The other modes read on: there limits only shorten what `len` says.

        Raises:
            ArgumentTypeError: When something else is set.
            ArgumentValueError: When a list of another length is set.
        """
        return self._limits

    @limits.setter
    def limits(self, limits: int | float | list[int | float] | None) -> None:
        count = len(self.flattened)
        if isinstance(limits, (int, float)):
            limits = [limits] * count
        elif limits is not None and not isinstance(limits, list):
            raise ArgumentTypeError(f"CombinedLoader.limits={limits!r}: give a number, a list of {count}, or None.")
        elif limits is not None and len(limits) != count:
            raise ArgumentValueError(
                f"CombinedLoader.limits={limits!r}: these are {len(limits)} limits for {count} loaders; give {count}."
            )
        self._limits = limits

    def __iter__(self) -> CombinedLoader:
        self._pass = _PASSES[self._mode](self.flattened, self._limits)
        return self

    def __next__(self) -> Item:
        if self._pass is None:
            raise ArgumentValueError("CombinedLoader: call iter() on it before next().")
        values, batch_idx, dataloader_idx = next(self._pass)
        if self._mode == "sequential":
            return values, batch_idx, dataloader_idx
        return self._nesting.put(values), batch_idx, dataloader_idx

    def __len__(self) -> int:
        """Number of batches, from the loaders' lengths and `limits`.

        Raises:
            TypeError: If it is not known, as a loader has no length.
        """
        lengths = [length_or_infinity(loader) for loader in self.flattened]
        if self._limits is not None:
            lengths = [min(length, limit) for length, limit in zip(lengths, self._limits, strict=True)]
        length = combined_length(self._mode, lengths)
        if not isinstance(length, int):
            raise TypeError(f"CombinedLoader(mode={self._mode!r}) has no length: a loader in it has none.")
        return length

    def reset(self) -> None:
        """End the pass, and the workers of data loaders, persistent ones too."""
        self._pass = None
        for loader in self.flattened:
            iterator = getattr(loader, "_iterator", None)
            if iterator is not None:
                shutdown = getattr(iterator, "_shutdown_workers", None)
                if shutdown is not None:
                    shutdown()
                loader._iterator = None

    def __getstate__(self) -> dict[str, Any]:
        # Iterators stay in this process.
        return {**self.__dict__, "_pass": None}


def combined_length(mode: Mode, lengths: Sequence[int | float]) -> int | float:
    """Number of batches of loaders of these lengths (infinity for unknown ones) in a mode."""
    if mode == "sequential":
        return sum(lengths)
    return min(lengths) if mode == "min_size" else max(lengths)

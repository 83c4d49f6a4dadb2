"""Values of the standard library and their plain forms.

A plain form is what a checkpoint holds in the value's place, readable by anyone; the tag beside it (see `format`) says
what it was. `to_plain` may return containers that hold further values; the walk in `format` goes on with those.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import enum
import random
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from fulmen.engine.storage.safe_types import note_written

Tag: TypeAlias = dict[str, Any]
Plain: TypeAlias = tuple[Any, Tag]

_FACTORIES: dict[str, Any] = {
    t.__name__: t for t in (list, dict, set, int, float, str, tuple, bool, bytes, OrderedDict, Counter, deque)
}
_PATHS: dict[str, type[PurePath]] = {t.__name__: t for t in (PurePath, PurePosixPath, PureWindowsPath, Path)}
# Longest first: a subclass of OrderedDict is one of dict, too.
_BASES: tuple[type, ...] = (OrderedDict, dict, list, tuple, set, frozenset, str, int, float, bytes)
_BASE_VALUE: dict[type, Callable[[Any], Any]] = {
    OrderedDict: lambda v: OrderedDict(dict.items(v)),
    dict: lambda v: dict(dict.items(v)),
    list: lambda v: list(list.__iter__(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    set: lambda v: set(set.__iter__(v)),
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda v: bytes.__add__(v, b""),
}


def _path(value: PurePath) -> Plain:
    # A file may be read on another operating system, so a concrete path is named by its general class.
    concrete = isinstance(value, (PosixPath, WindowsPath)) or type(value).__name__ not in _PATHS
    return str(value), {"t": "path", "kind": "Path" if concrete else type(value).__name__}


def _zone(value: datetime.tzinfo | None) -> Any:
    """Return the plain form of a time zone; raises TypeError for one that is neither fixed nor from the database."""
    if value is None:
        return None
    if type(value) is datetime.timezone:
        offset = value.utcoffset(None)
        return [offset.days, offset.seconds, offset.microseconds, value.tzname(None)]
    if type(value) is ZoneInfo and value.key:
        return value.key
    raise TypeError(f"time zone {value!r}")


def _zone_back(value: Any) -> datetime.tzinfo | None:
    if value is None:
        return None
    if isinstance(value, str):
        return ZoneInfo(value)
    days, seconds, microseconds, name = value
    offset = datetime.timedelta(days, seconds, microseconds)
    unnamed = datetime.timezone(offset)
    return unnamed if unnamed.tzname(None) == name else datetime.timezone(offset, name)


def _datetime(value: datetime.datetime | datetime.time) -> Plain:
    naive = value.replace(tzinfo=None)
    return naive.isoformat(), {"t": type(value).__name__, "fold": value.fold, "zone": _zone(value.tzinfo)}


def _defaultdict(value: defaultdict[Any, Any]) -> Plain:
    factory = value.default_factory
    if factory is None:
        return dict(value), {"t": "defaultdict", "factory": None}
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is factory:
        return dict(value), {"t": "defaultdict", "factory": name}
    return dict(value), {"t": "dict", "lost": f"the default_factory {factory!r:.80}"}


_ENCODERS: dict[type, Callable[[Any], Plain]] = {
    range: lambda v: ((v.start, v.stop, v.step), {"t": "range"}),
    slice: lambda v: ((v.start, v.stop, v.step), {"t": "slice"}),
    set: lambda v: (list(v), {"t": "set"}),
    frozenset: lambda v: (list(v), {"t": "frozenset"}),
    deque: lambda v: (list(v), {"t": "deque", "maxlen": v.maxlen}),
    Counter: lambda v: (dict(v), {"t": "Counter"}),
    defaultdict: _defaultdict,
    types.MappingProxyType: lambda v: (dict(v), {"t": "mappingproxy"}),
    datetime.datetime: _datetime,
    datetime.time: _datetime,
    datetime.date: lambda v: (v.isoformat(), {"t": "date"}),
    datetime.timedelta: lambda v: ((v.days, v.seconds, v.microseconds), {"t": "timedelta"}),
    datetime.timezone: lambda v: (_zone(v), {"t": "zone"}),
    ZoneInfo: lambda v: (_zone(v), {"t": "zone"}),
    Decimal: lambda v: (str(v), {"t": "Decimal"}),
    Fraction: lambda v: (str(v), {"t": "Fraction"}),
    uuid.UUID: lambda v: (str(v), {"t": "UUID"}),
    argparse.Namespace: lambda v: (dict(vars(v)), {"t": "Namespace"}),
    types.SimpleNamespace: lambda v: (dict(vars(v)), {"t": "SimpleNamespace"}),
    random.Random: lambda v: (v.getstate(), {"t": "Random"}),
    type(Ellipsis): lambda v: (None, {"t": "Ellipsis"}),
    # The restricted unpickler of torch knows neither integers of more than 255 bytes nor empty bytes.
    int: lambda v: (hex(v), {"t": "int"}),
    bytes: lambda v: (v if v else None, {"t": "bytes"}),
}


def to_plain(value: Any) -> Plain | None:
    """Return the plain form of a value and its tag, or `None` for a value this module does not know."""
    kind = type(value)
    if kind in _ENCODERS:
        try:
            return _ENCODERS[kind](value)
        except TypeError:
            return None
    if isinstance(value, PurePath):
        return _path(value)
    if isinstance(value, enum.Enum):
        return value.value, {"t": "enum", "name": value.name, **note_written(kind)}
    if isinstance(value, _BASES):
        return _subclass(value)
    if dataclasses.is_dataclass(kind):
        return _dataclass_state(value), {"t": "dataclass", **note_written(kind)}
    return None


def _subclass(value: Any) -> Plain:
    kind = type(value)
    fields = getattr(kind, "_fields", None)
    if isinstance(value, tuple) and isinstance(fields, tuple):
        return tuple(value), {"t": "namedtuple", "fields": list(fields), **note_written(kind)}
    base: Any = next(b for b in _BASES if isinstance(value, b))
    # Through the base's own methods: an overridden `keys`, `__iter__` or `__str__` is not what is stored.
    return _BASE_VALUE[base](value), {"t": "subclass", **note_written(kind)}


def _dataclass_state(value: Any) -> dict[str, Any]:
    state = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    state.update(getattr(value, "__dict__", {}))
    return state


def _from_zoned(kind: Any) -> Callable[[Any, Tag], Any]:
    def restore(inner: Any, tag: Tag) -> Any:
        return kind.fromisoformat(inner).replace(tzinfo=_zone_back(tag.get("zone")), fold=tag.get("fold", 0))

    return restore


def _random(inner: Any, _: Tag) -> random.Random:
    generator = random.Random(0)
    generator.setstate(inner)
    return generator


_DECODERS: dict[str, Callable[[Any, Tag], Any]] = {
    "path": lambda v, tag: _PATHS[tag["kind"]](v),
    "range": lambda v, _: range(*v),
    "slice": lambda v, _: slice(*v),
    "set": lambda v, _: set(v),
    "frozenset": lambda v, _: frozenset(v),
    "deque": lambda v, tag: deque(v, tag["maxlen"]),
    "Counter": lambda v, _: Counter(v),
    "dict": lambda v, _: v,
    "items": lambda v, _: dict(v),
    "ordered_items": lambda v, _: OrderedDict(v),
    "defaultdict": lambda v, tag: defaultdict(_FACTORIES[tag["factory"]] if tag["factory"] else None, v),
    "mappingproxy": lambda v, _: types.MappingProxyType(v),
    "datetime": _from_zoned(datetime.datetime),
    "time": _from_zoned(datetime.time),
    "date": lambda v, _: datetime.date.fromisoformat(v),
    "timedelta": lambda v, _: datetime.timedelta(*v),
    "zone": lambda v, _: _zone_back(v),
    "Decimal": lambda v, _: Decimal(v),
    "Fraction": lambda v, _: Fraction(v),
    "UUID": lambda v, _: uuid.UUID(v),
    "Namespace": lambda v, _: argparse.Namespace(**v),
    "SimpleNamespace": lambda v, _: types.SimpleNamespace(**v),
    "Random": _random,
    "Ellipsis": lambda v, _: ...,
    "int": lambda v, _: int(v, 16),
    "bytes": lambda v, _: v or b"",
}


def decoders() -> Mapping[str, Callable[[Any, Tag], Any]]:
    """Return the functions that bring standard library values back, by tag."""
    return _DECODERS


USER_TAGS = frozenset(["enum", "dataclass", "namedtuple", "subclass"])


def restore_user(inner: Any, tag: Tag, cls: type) -> Any:
    """Bring a value of a user's type back from its plain form, without running ``__init__`` of a dataclass.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: The plain form does not fit the class (any more).
    """
    what = tag["t"]
    if what == "enum":
        if not issubclass(cls, enum.Enum):
            raise TypeError(f"{cls!r} is no enum")
        return cls[tag["name"]] if tag.get("name") in cls.__members__ else cls(inner)
    if what == "dataclass":
        if not dataclasses.is_dataclass(cls):
            raise TypeError(f"{cls!r} is no dataclass")
        return _restore_dataclass(inner, cls)
    if what == "namedtuple":
        return getattr(cls, "_make", cls)(inner)
    if not issubclass(cls, _BASES):
        raise TypeError(f"{cls!r} is no subclass of a builtin type")
    make: Any = cls
    return make(inner)


def _restore_dataclass(inner: dict[str, Any], cls: Any) -> Any:
    result: Any = object.__new__(cls)
    for name, value in inner.items():
        object.__setattr__(result, name, value)
    for field in dataclasses.fields(cls):
        if field.name in inner:
            continue
        if field.default is not dataclasses.MISSING:
            object.__setattr__(result, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(result, field.name, field.default_factory())
        else:
            raise ValueError(f"the file has no value for field {field.name!r} of {cls.__qualname__}")
    return result

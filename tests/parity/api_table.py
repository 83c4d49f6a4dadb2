"""Reads the public interface of a class or function, and says where two of them differ."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fulmen.compat

ALIASES = Path(fulmen.compat.__file__).parent / "path"
PEERS = ("lightning.", "lightning_fabric.", "pytorch_lightning.")


@dataclasses.dataclass(frozen=True)
class Difference:
    """One difference.

    Attributes:
        place: `Class.member`, or the function's name.
        text: What differs.
    """

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def shared_names() -> Iterator[tuple[str, Any, Any]]:
    """Name, Lightning's object and ours, for all public classes and functions that both have.

    The alias files say which module of ours stands for which of Lightning's.
    """
    done: set[tuple[str, str]] = set()
    files = [*ALIASES.glob("lightning/pytorch/**/*.py"), *ALIASES.glob("lightning/fabric/utilities/**/*.py")]
    for file in sorted(files):
        parts = file.relative_to(ALIASES).with_suffix("").parts
        theirs = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("fulmen."):
                continue
            for alias in node.names:
                name = alias.asname or alias.name
                peer = getattr(importlib.import_module(theirs), name, None)
                ours = getattr(importlib.import_module(str(node.module)), alias.name)
                home = (str(getattr(peer, "__module__", "")), name)
                if (
                    home[0].startswith(PEERS)
                    and home not in done
                    and (inspect.isclass(peer) or inspect.isroutine(peer))
                ):
                    done.add(home)
                    yield name, peer, ours


def compare_classes(peer: type, ours: type) -> Iterator[Difference]:
    """What the public members of `ours` do not have of those of `peer`.

    Args:
        peer: Lightning's class.
        ours: Ours.
    """
    name = peer.__name__
    for member in [*sorted(_own_members(peer)), "__init__"]:
        place = f"{name}.{member}"
        theirs = inspect.getattr_static(peer, member)
        try:
            mine = inspect.getattr_static(ours, member)
        except AttributeError:
            yield Difference(place, "missing")
            continue
        if isinstance(theirs, property):
            if not isinstance(mine, property):
                yield Difference(place, f"a property in Lightning, {type(mine).__name__} here")
            elif theirs.fset is not None and mine.fset is None:
                yield Difference(place, "can be set in Lightning, but not here")
            continue
        for kind in (classmethod, staticmethod):
            if isinstance(theirs, kind) != isinstance(mine, kind):
                yield Difference(place, f"{kind.__name__} on one side only")
        if callable(getattr(peer, member)) and not isinstance(theirs, type):
            yield from compare_functions(place, getattr(peer, member), getattr(ours, member))


def compare_instances(peer: Any, ours: Any) -> Iterator[Difference]:
    """What public attributes of one object the other does not have, and plain values that differ."""
    for name, value in vars(peer).items():
        if name.startswith("_"):
            continue
        place = f"{type(peer).__name__}.{name}"
        if not hasattr(ours, name):
            yield Difference(place, "missing on the instance")
        elif isinstance(value, str | int | float | bool | type(None)) and _plain(getattr(ours, name)) != _plain(value):
            yield Difference(place, f"{value!r} in Lightning, {getattr(ours, name)!r} here")


def compare_functions(place: str, peer: Any, ours: Any) -> Iterator[Difference]:
    """Where the parameters of two functions differ: name, order, kind and default.

    Two things are no difference, since no call of Lightning's can stumble over them: parameters of ours that come
    after all of Lightning's and may be left out; and named parameters where Lightning's has `*args` or `**kwargs`, if
    they are what a hook of that name gets.

    Args:
        place: For the report.
        peer: Lightning's function.
        ours: Ours.
    """
    theirs, mine = _parameters(peer), _parameters(ours)
    if theirs is None or mine is None:
        return
    rest = [p for p in theirs if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    hook = _parameters(getattr(_hooks(), place.rpartition(".")[2], None)) or []
    if rest and [p.name for p in mine] == [p.name for p in hook]:
        theirs = theirs[: len(theirs) - len(rest)]
    known = {p.name for p in theirs}
    while mine and mine[-1].name not in known and (mine[-1].default is not mine[-1].empty or _takes_rest(mine[-1])):
        mine.pop()
    mine = [p for p in mine if p.name in known or p.kind is not p.KEYWORD_ONLY or p.default is p.empty]
    if rest and [p.name for p in mine[len(theirs) :]] == [p.name for p in hook[len(theirs) :]]:
        mine = mine[: len(theirs)]
    if [_text(p) for p in theirs] != [_text(p) for p in mine]:
        yield Difference(place, f"({', '.join(map(_text, theirs))}) in Lightning, ({', '.join(map(_text, mine))}) here")


def _takes_rest(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _hooks() -> Any:
    from fulmen.callbacks.callback import Callback

    return Callback


def _own_members(cls: type) -> set[str]:
    """Public names that a class has from Lightning itself, not from torch or Python."""
    found: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith(PEERS):
            found.update(name for name in vars(base) if not name.startswith("_"))
    return found


def _parameters(function: Any) -> list[inspect.Parameter] | None:
    if function is None:
        return None
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of an extension module
        return None
    # A class method behind Lightning's own kind of descriptor shows its class.
    return found[1:] if found and found[0].name in ("cls", "self") else found


def _text(parameter: inspect.Parameter) -> str:
    kinds = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**", parameter.KEYWORD_ONLY: "*, "}
    default = "" if parameter.default is parameter.empty else f"={_plain(parameter.default)!r}"
    return f"{kinds.get(parameter.kind, '')}{parameter.name}{default}"


def _plain(value: Any) -> Any:
    """A default in a form that can be compared between the two."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str | int | float | bool | type(None) | tuple | list | dict):
        return value
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__name__
    return f"{type(value).__name__}({getattr(value, '__dict__', '')})"

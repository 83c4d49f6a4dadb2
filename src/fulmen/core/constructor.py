"""From stored hyperparameters and overrides to the arguments of a constructor."""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import typing
from argparse import Namespace
from collections.abc import Iterable, Mapping, MutableMapping
from types import SimpleNamespace
from typing import Any

from fulmen.engine.runtime.policy import default_policy
from fulmen.engine.storage.objects import UnsafeValue, find_unsafe, unsafe_error
from fulmen.errors import ArgumentTypeError, suggest, warn
from fulmen.utilities.parsing import AttributeDict


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be built, from what.

    Attributes:
        cls: The class.
        stored: Hyperparameters from the checkpoint (or the file given instead).
        container: Name of the argument that the constructor got them in as one object, if it did.
        overrides: Arguments given by the caller; they win.
        where: How the caller's call looks, for messages.
    """

    cls: type
    stored: MutableMapping[str, Any]
    container: str | None
    overrides: Mapping[str, Any]
    where: str


def build(request: Request) -> Any:
    """Construct the object.

    Stored values that the constructor does not know are passed over (a class may store more than its arguments, and
    values of its base classes); a constructor with ``**kwargs`` gets everything.

    Args:
        request: The class and the values.

    Raises:
        ArgumentTypeError: An override is no argument of the constructor, or an argument has no value. The message
            lists what is stored and what is expected.
        UnsafeCheckpointError: A stored value was not unpickled, and neither an override nor a default is there to take
            its place.
    """
    parameters = list(inspect.signature(_init_of(request.cls)).parameters.values())[1:]
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if request.container in named:
        # What is no argument of its own belongs into the object, as it does for values that were stored in it.
        arguments = {request.container: _container(request, set(named))}
        arguments.update({k: v for k, v in request.overrides.items() if k in named or takes_all})
    else:
        if not takes_all:
            _refuse_unknown(request, named)
        given = {**{str(k): request.stored[k] for k in request.stored}, **request.overrides}
        arguments = given if takes_all else {k: v for k, v in given.items() if k in named}
    _replace_unsafe(request, named, arguments)
    _refuse_missing(request, named, arguments)
    positional = []
    for name, parameter in named.items():
        if parameter.kind is parameter.POSITIONAL_ONLY and name in arguments:
            positional.append(arguments.pop(name))
    try:
        return request.cls(*positional, **arguments)
    except Exception as error:
        names = ", ".join([*(n for n, p in named.items() if p.kind is p.POSITIONAL_ONLY), *arguments])
        error.add_note(
            f"{request.where}: {request.cls.__name__} was being built with the arguments: {names or 'none'}."
        )
        raise


def annotated_types(cls: type) -> set[type]:
    """Return the enums, dataclasses and named tuples that the constructors of a class ask for by annotation.

    The class itself names them, so a checkpoint may bring back values of them: making one only keeps its values.

    Args:
        cls: The class; those of its base classes belong to it, too.
    """
    found: set[type] = set()
    for base in cls.__mro__:
        if "__init__" in vars(base):
            _add_types(_hints(_init_of(base)).values(), found)
    return found


def _add_types(hints: Iterable[Any], found: set[type]) -> None:
    for hint in hints:
        _add_types(typing.get_args(hint), found)
        if not isinstance(hint, type) or hint in found:
            continue
        if dataclasses.is_dataclass(hint):
            found.add(hint)
            _add_types(_hints(hint).values(), found)
        elif issubclass(hint, enum.Enum) or (issubclass(hint, tuple) and hasattr(hint, "_fields")):
            found.add(hint)


def _init_of(cls: Any) -> Any:
    return cls.__init__


def _hints(owner: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner)
    except Exception:  # names that exist for the type checker only, syntax of a newer Python
        return {}


def _container(request: Request, named: set[str]) -> Any:
    assert request.container is not None
    values = request.stored
    updates = {k: v for k, v in request.overrides.items() if k not in named or k in values}
    updates.pop(request.container, None)
    if not isinstance(values, dict):  # OmegaConf
        values = copy.deepcopy(values)
        for key, value in updates.items():
            values[key] = value
        return values
    return _as_annotated(request.cls, request.container, AttributeDict({**values, **updates}))


def _as_annotated(cls: type, name: str, values: AttributeDict) -> Any:
    """Return the values as the type that the constructor asks for, if that is a namespace or a dataclass."""
    hint = _hints(_init_of(cls)).get(name)
    for kind in typing.get_args(hint) or (hint,):
        if kind in (Namespace, SimpleNamespace):
            return kind(**values)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            fields = {f.name for f in dataclasses.fields(kind) if f.init}
            return kind(**{k: v for k, v in values.items() if k in fields})
    return values


def _refuse_unknown(request: Request, named: Iterable[str]) -> None:
    for name in request.overrides:
        if name in named:
            continue
        problem = f"{request.where}: {name!r} is no argument of {request.cls.__name__}"
        if default_policy().unknown_arguments_raise:
            raise ArgumentTypeError(f"{problem}.{suggest(name, named)} {_lists(request, named)}")
        warn(
            "W057",
            f"{problem} and is passed over.{suggest(name, named)} {_lists(request, named)}",
            key=f"{request.where}.{name}",
            stacklevel=6,
        )


def _replace_unsafe(request: Request, named: Mapping[str, inspect.Parameter], arguments: dict[str, Any]) -> None:
    """Let constructor defaults take the place of values that were not unpickled; complain about the others."""
    unsafe: list[UnsafeValue] = []
    for name in list(arguments):
        found = find_unsafe(arguments[name])
        if found and name in named and named[name].default is not inspect.Parameter.empty:
            warn(
                "W056",
                f"{request.where}: the stored value of {name!r} was not unpickled, the constructor's default takes its"
                f" place: {found[0].describe()}. Give the value (`load_from_checkpoint(path, {name}=...)`), allow its"
                f" type (`fulmen.add_safe_types`), or use weights_only=False if you trust the file.",
                key=f"{request.where}.{name}",
                stacklevel=6,
            )
            del arguments[name]
        else:
            unsafe.extend(found)
    if unsafe:
        raise unsafe_error(unsafe, request.where)


def _refuse_missing(request: Request, named: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    missing = [name for name, p in named.items() if p.default is p.empty and name not in arguments]
    if not missing:
        return
    hints = "".join(suggest(name, [str(k) for k in request.stored]) for name in missing[:1])
    example = ", ".join(f"{name}=..." for name in missing)
    raise ArgumentTypeError(
        f"{request.where}: no value for {', '.join(map(repr, missing))} of {request.cls.__name__}.{hints}"
        f" {_lists(request, named)} Give what is missing, as in `load_from_checkpoint(path, {example})`, or call"
        f" `self.save_hyperparameters()` in `__init__` before the checkpoint is written."
    )


def _lists(request: Request, named: Iterable[str]) -> str:
    return (
        f"Its arguments: {', '.join(named) or 'none'}. Stored hyperparameters:"
        f" {', '.join(map(str, request.stored)) or 'none'}."
    )

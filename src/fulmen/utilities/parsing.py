"""What a constructor was called with, read from the call stack; and a dictionary with attribute access.

The names are those of Lightning's module of this name. How `save_hyperparameters` finds the arguments: it walks up
the stack from where it was called and takes every frame of an ``__init__`` whose first argument is the object itself.
So the constructors of a whole inheritance chain are seen, while a parent module that is being built further up is not.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from types import FrameType
from typing import Any

from fulmen.errors import suggest, warn


class _MissingKeyError(AttributeError, KeyError):
    """Attribute access and dictionary access are one here, so callers may catch either error."""

    __str__ = AttributeError.__str__  # KeyError would show the message in quotes


class AttributeDict(dict[Any, Any]):
    """A dictionary whose entries can also be read, set and deleted as attributes.

    Args:
        *args: As for `dict`.
        **kwargs: As for `dict`.

    Example:
        >>> state = AttributeDict(lr=0.1)
        >>> state.lr
        0.1
        >>> state.epochs = 3
        >>> state
        "epochs": 3
        "lr":     0.1
    """

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            # Python itself asks for many dunder names (copy, pickle, inspect); they need no suggestion.
            hint = "" if key.startswith("__") else suggest(key, [k for k in self if isinstance(k, str)])
            raise _MissingKeyError(f"{type(self).__name__!r} object has no attribute {key!r}.{hint}") from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def __delattr__(self, key: str) -> None:
        if key not in self:
            raise _MissingKeyError(f"{type(self).__name__!r} object has no attribute {key!r}.")
        del self[key]

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *(k for k in self if isinstance(k, str))]

    def __repr__(self) -> str:
        rows = sorted((f'"{key}":', value) for key, value in self.items())
        width = max((len(label) for label, _ in rows), default=0)
        return "\n".join(f"{label:<{width}} {value}" for label, value in rows)


def is_picklable(obj: object) -> bool:
    """Return whether `obj` can be pickled (it is pickled to find out)."""
    try:
        pickle.dumps(obj)
    except Exception:  # `__reduce__` is user code and may raise anything
        return False
    return True


def clean_namespace(hparams: MutableMapping[str, Any]) -> None:
    """Delete the entries that cannot be pickled from `hparams`, with a warning that names each."""
    for key in [k for k, v in hparams.items() if not is_picklable(v)]:
        kind = type(hparams[key]).__name__
        warn(
            "W050",
            f"Hyperparameter {key!r} ({kind}) cannot be pickled and was removed. Leave it out with"
            f" `save_hyperparameters(ignore=[{key!r}])`.",
            key=key,
        )
        del hparams[key]


def parse_class_init_keys(cls: type) -> tuple[str, str | None, str | None]:
    """Return the names that the constructor of `cls` uses for ``self``, ``*args`` and ``**kwargs``.

    Example:
        >>> class Model:
        ...     def __init__(this, size, *rest, **options): ...
        >>> parse_class_init_keys(Model)
        ('this', 'rest', 'options')
    """
    parameters = list(inspect.signature(cls.__init__).parameters.values())  # type: ignore[misc]  # read, never called

    def first(kind: Any) -> str | None:
        return next((p.name for p in parameters if p.kind is kind), None)

    return parameters[0].name, first(inspect.Parameter.VAR_POSITIONAL), first(inspect.Parameter.VAR_KEYWORD)


def _constructor_call(frame: FrameType) -> tuple[Any, dict[str, Any]] | None:
    """Return the object under construction and its named arguments, or `None` if `frame` runs no ``__init__``."""
    if frame.f_code.co_name != "__init__":  # asked first: reading a frame's variables is what costs
        return None
    names, _, keywords, values = inspect.getargvalues(frame)
    if not names or names[0] not in values:
        return None
    # An argument that the constructor has deleted is gone.
    arguments = {name: values[name] for name in names[1:] if name in values}
    if keywords:
        arguments.update(values.get(keywords, {}))
    return values[names[0]], arguments


def _constructor_calls(frame: FrameType | None) -> Iterator[tuple[Any, dict[str, Any]]]:
    while frame is not None:
        call = _constructor_call(frame)
        if call is not None:
            yield call
        frame = frame.f_back


def get_init_args(frame: FrameType) -> dict[str, Any]:
    """Return the named arguments of the constructor that runs in `frame`, ``**kwargs`` spread out.

    Values are those that the variables have now. Positional ``*args`` have no names and are left out.

    Args:
        frame: Frame of an ``__init__``, usually ``inspect.currentframe()`` inside of it. Any other gives an empty
            dictionary.
    """
    call = _constructor_call(frame)
    return {} if call is None else call[1]


def collect_init_args(
    frame: FrameType,
    path_args: list[dict[str, Any]],
    inside: bool = False,
    classes: tuple[type, ...] = (),
) -> list[dict[str, Any]]:
    """Add to `path_args` the arguments of the constructors, base classes first, of the object built around `frame`.

    Args:
        frame: Where to begin; the stack is walked upwards.
        path_args: List that is extended and returned; its last entry belongs to the most derived class.
        inside: Accepted for Lightning's signature; the object's identity decides what belongs to it.
        classes: Only objects of these classes count; all, if empty.
    """
    owner: Any = None
    for obj, arguments in _constructor_calls(frame):
        if obj is owner or (owner is None and (not classes or isinstance(obj, classes))):
            owner = obj
            path_args.append(arguments)
    return path_args


def init_args_of(obj: object, frame: FrameType | None) -> dict[str, Any] | None:
    """Return what `obj` is being constructed with, or `None` if no constructor of it runs around `frame`.

    Where a class and its base have an argument of one name, the value of the derived class is returned: it is what
    the object can be built from again.

    Args:
        obj: The object under construction.
        frame: Where to begin; the stack is walked upwards.
    """
    found: dict[str, Any] | None = None
    for owner, arguments in _constructor_calls(frame):
        if owner is obj:
            found = {**(found or {}), **arguments}
    return found


def save_hyperparameters(
    obj: Any,
    *args: Any,
    ignore: Sequence[str] | str | None = None,
    frame: FrameType | None = None,
) -> None:
    """Call ``obj.save_hyperparameters(...)`` with the caller's frame (see `fulmen.core.hparams`).

    Args:
        obj: A `HyperparametersMixin`.
        *args: Names of arguments or one object that holds the values.
        ignore: Names of arguments to leave out.
        frame: Where to look for the constructor's arguments; by default, the caller.
    """
    if frame is None:
        here = inspect.currentframe()
        frame = here.f_back if here is not None else None
    obj.save_hyperparameters(*args, ignore=ignore, frame=frame)

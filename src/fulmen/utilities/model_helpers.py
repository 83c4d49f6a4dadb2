"""Questions about a user's module or callback."""

from __future__ import annotations

import functools
from typing import Any

from fulmen.errors import ArgumentValueError


def is_own_class(kind: type) -> bool:
    """Return whether Fulmen defines a class; while aliases are on, its public ones report a module of Lightning's."""
    return kind.__module__.startswith(("fulmen.", "lightning.", "lightning_fabric."))


def is_overridden(method_name: str, instance: object | None = None, parent: type | None = None) -> bool:
    """Return whether an object, or its class, has a method that differs from the one of `parent`.

    Patches on the instance, decorated methods, `functools.partial` and mocks that wrap the original are understood.

    Args:
        method_name: Name of the method.
        instance: The object to look at; for `None` the answer is no.
        parent: Class that defines the default; by default the first of Fulmen's own classes among the bases that has
            the method.

    Raises:
        ArgumentValueError: No base with that method was found.
    """
    method = None if instance is None else getattr(instance, method_name, None)
    if method is None:
        return False
    if parent is None:
        parent = next(
            (c for c in type(instance).__mro__ if is_own_class(c) and method_name in vars(c)),
            None,
        )
        if parent is None:
            raise ArgumentValueError(
                f"is_overridden({method_name!r}, ...): no base of {type(instance).__name__} that Fulmen defines has"
                f" this method; give the class to compare with as `parent`."
            )
    default = getattr(parent, method_name, None)
    if default is None:
        raise ArgumentValueError(f"is_overridden({method_name!r}, ...): {parent.__name__} has no such method.")
    return _code(method) is not _code(default)


def _code(method: Any) -> Any:
    while True:
        if isinstance(method, functools.partial):
            method = method.func
        elif getattr(method, "_mock_wraps", None) is not None:
            method = vars(method).get("_mock_wraps") or method._mock_wraps
        elif hasattr(method, "__wrapped__"):
            method = method.__wrapped__
        elif hasattr(method, "__func__"):
            method = method.__func__
        else:
            return getattr(method, "__code__", method)

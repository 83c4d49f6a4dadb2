"""Defaults of Trainer arguments from `PL_TRAINER_*` and `FULMEN_TRAINER_*`."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from fulmen.errors import ArgumentValueError, MisconfigurationException, suggest

_PREFIXES = ("PL_TRAINER_", "FULMEN_TRAINER_")  # the later one wins
_Init = TypeVar("_Init", bound=Callable[..., None])


def defaults_from_environment(init: _Init) -> _Init:
    """Let the environment give those keyword arguments of a constructor that its caller leaves out."""
    signature = inspect.signature(init)
    names = [name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY]

    @wraps(init)
    def with_defaults(self: Any, *args: Any, **kwargs: Any) -> None:
        found = environment_defaults(names, kwargs)
        kwargs.update({name: value for name, (_, value) in found.items()})
        try:
            init(self, *args, **kwargs)
        except MisconfigurationException as error:
            used = ", ".join(f"{variable}={os.environ[variable]!r}" for variable, _ in found.values())
            if used:
                error.add_note(f"From the environment: {used}.")
            raise

    # What takes unknown names, to answer with a suggestion, is no argument for those who read the signature.
    shown = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    with_defaults.__dict__["__signature__"] = signature.replace(parameters=shown)
    return cast(_Init, with_defaults)


def environment_defaults(names: Iterable[str], given: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Find arguments that the environment sets and the caller does not.

    Args:
        names: All arguments.
        given: Those that the caller gave.

    Returns:
        The variable and the value, by argument.

    Raises:
        ArgumentValueError: For a variable that names no argument.
    """
    known = {name.upper(): name for name in names}
    found: dict[str, tuple[str, Any]] = {}
    for prefix in _PREFIXES:
        for variable, text in os.environ.items():
            if not variable.startswith(prefix):
                continue
            name = known.get(variable[len(prefix) :])
            if name is None:
                hint = suggest(variable[len(prefix) :].lower(), known.values())
                raise ArgumentValueError(f"{variable}={text!r}: Trainer has no such argument.{hint}")
            if name not in given:
                found[name] = (variable, _value(text))
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text

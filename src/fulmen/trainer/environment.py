"""Defaults of Trainer arguments from `PL_TRAINER_*` and `FULMEN_TRAINER_*`."""

from __future__ import annotations

import ast
import os
from typing import Any

from fulmen.engine.runtime.flags import TrainerFlags
from fulmen.errors import ArgumentValueError, suggest

_PREFIXES = ("PL_TRAINER_", "FULMEN_TRAINER_")
_DEFAULTS = TrainerFlags()


def environment_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Fill arguments that have their default from the environment.

    Args:
        given: All arguments.

    Raises:
        ArgumentValueError: For a variable that names no argument.
    """
    names = {name.upper(): name for name in given}
    result = dict(given)
    for prefix in _PREFIXES:
        for variable, text in os.environ.items():
            if not variable.startswith(prefix):
                continue
            name = names.get(variable[len(prefix) :])
            if name is None:
                hint = suggest(variable[len(prefix) :].lower(), given)
                raise ArgumentValueError(f"{variable}={text!r}: Trainer has no such argument.{hint}")
            if given[name] == getattr(_DEFAULTS, name):
                result[name] = _value(text)
    return result


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text

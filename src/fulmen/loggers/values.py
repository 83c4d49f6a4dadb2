"""Turn what is logged into one number or text, or say which key cannot be."""

from __future__ import annotations

from typing import Any

from fulmen.errors import LoggingError

_NUMBERS = frozenset({float, int, bool})


def scalar(key: str, value: Any, owner: str, *, numbers_only: bool = False) -> Any:
    """Return `value` as a Python number, text or `None`.

    Args:
        key: Name it is logged under, for the error.
        value: A number, text, `None`, or a tensor or NumPy array with exactly one element.
        owner: Which logger asks, for the error.
        numbers_only: Whether text and `None` are refused.

    Raises:
        LoggingError: If `value` is anything else.
    """
    if type(value) in _NUMBERS or (not numbers_only and (value is None or isinstance(value, str))):
        return value
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "item"):
        count = 1
        for size in shape:
            count *= int(size)
        if count == 1:
            return value.item()
        raise LoggingError(
            f"{owner}: the value logged under {key!r} is a {type(value).__name__} of shape {tuple(shape)}, a scalar is "
            "needed. Reduce it first, for example with `.mean()`, or log each element under its own name."
        )
    if isinstance(value, (float, int)):
        return value
    if hasattr(value, "__float__"):
        return float(value)
    raise LoggingError(
        f"{owner}: the value logged under {key!r} is a {type(value).__module__}.{type(value).__qualname__}, which "
        f"cannot be logged as a metric: {value!r:.60}. Log numbers, or tensors with one element."
    )


def step_number(step: Any, owner: str) -> int:
    """Return a step as an int.

    Raises:
        LoggingError: If it is not a whole number.
    """
    if type(step) is int:
        return step
    value = scalar("step", step, owner)
    if isinstance(value, (int, float)) and value == int(value):
        return int(value)
    raise LoggingError(f"{owner}: step={step!r} is not a whole number.")

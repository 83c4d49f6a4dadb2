"""How many batches a loader gives: its length, if it knows it, and the trainer's limit on it."""

from __future__ import annotations

import math
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError, DataError, warn


def length_of(loader: Any, name: str) -> int | None:
    """Return `len(loader)`, or `None` if the loader has no length (or one too large to be a number of batches).

    A length of zero gives warning W101.

    Raises:
        DataError: If ``__len__`` gave a negative number.
    """
    try:
        length = len(loader)
    except (TypeError, NotImplementedError, OverflowError):
        return None
    except ValueError as error:
        if "should return >= 0" in str(error):
            raise DataError(
                f"{name}: __len__ of {type(loader).__name__} returned a negative number. Return the number of batches, "
                "or remove __len__ if it is not known."
            ) from error
        raise
    if length == 0:
        warn(
            "W101",
            f"{name}: this {type(loader).__name__} has 0 length, so no batch will be run. "
            "Is the data set empty, or smaller than one batch with drop_last=True?",
            key=name,
            stacklevel=4,
        )
    return length


def check_limit(limit: Any, limit_name: str) -> int | float:
    """Check a limit's own value; `None` means all batches.

    Raises:
        ArgumentTypeError: If it is no number.
        ArgumentValueError: If it is negative, or a float above 1.
    """
    if limit is None:
        return 1.0
    if isinstance(limit, bool) or not isinstance(limit, (int, float)):
        raise ArgumentTypeError(
            f"{limit_name}={limit!r} is a {type(limit).__name__}. Give an int (number of batches), a float from 0.0 "
            "to 1.0 (share of the batches) or None (all)."
        )
    if limit < 0 or math.isnan(limit) or (isinstance(limit, float) and limit > 1.0):
        raise ArgumentValueError(
            f"{limit_name}={limit!r} is out of range. Give an int of at least 0 (number of batches) or a float from "
            f"0.0 to 1.0 (share of the batches){'; for a number of batches write an int' if limit > 1 else ''}."
        )
    return limit


def limited(length: int | None, limit: int | float, *, name: str, limit_name: str) -> int | float:
    """Return the number of batches after the limit; `math.inf` if nobody knows.

    An int caps the number, a float takes ``int(length * limit)``.

    Raises:
        DataError: If a share of an unknown length is asked for, or the share is less than one batch.
    """
    if length is None:
        if isinstance(limit, int):
            return limit
        if limit == 1.0:
            return math.inf
        raise DataError(
            f"{limit_name}={limit} asks for a share of {name}, but its length is not known (an IterableDataset or "
            f"a loader without __len__). Give an int (number of batches) or 1.0 (all)."
        )
    if length == 0:
        return 0
    if isinstance(limit, int):
        return min(length, limit)
    batches = int(length * limit)
    if batches == 0 and limit > 0.0:
        least = 1.0 / length
        while int(length * least) < 1:
            least = math.nextafter(least, math.inf)
        raise DataError(
            f"{limit_name}={limit} of the {length} batches of {name} is less than one batch. "
            f"Try at least {limit_name}={least}, or an int (number of batches)."
        )
    return batches

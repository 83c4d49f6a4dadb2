"""Clip gradients by norm or by value."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException, suggest

CLIP_ALGORITHMS = ("norm", "value")


def check_clip_algorithm(algorithm: Any, where: str = "gradient_clip_algorithm") -> str:
    """Return the algorithm's plain name.

    Args:
        algorithm: ``"norm"``, ``"value"``, a `GradClipAlgorithmType`, or `None` for ``"norm"``.
        where: Name of the argument, for the message.

    Raises:
        ArgumentValueError: It is neither of them.
        ArgumentTypeError: It is not a string.
    """
    if algorithm is None:
        return "norm"
    if not isinstance(algorithm, str):
        raise ArgumentTypeError(f"{where}={algorithm!r}: give 'norm' or 'value', not a {type(algorithm).__name__}.")
    name = str(getattr(algorithm, "value", algorithm)).lower()
    if name not in CLIP_ALGORITHMS:
        hint = suggest(name, CLIP_ALGORITHMS)
        raise ArgumentValueError(f"{where}={algorithm!r} is not known: give 'norm' or 'value'.{hint}")
    return name


def check_clip_value(value: Any, where: str = "gradient_clip_val") -> float | None:
    """Return the limit as a number, `None` for "do not clip".

    Raises:
        ArgumentTypeError: The limit is not a number.
        ArgumentValueError: The limit is NaN or negative.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(f"{where}={value!r}: give a number, or None not to clip.")
    number = float(value)
    if not number >= 0:
        raise ArgumentValueError(f"{where}={value!r}: give a number of 0 or more (0 and None do not clip).")
    return number


def clip_gradients(
    parameters: Iterable[Tensor], clip_val: float | None, algorithm: str | None = "norm"
) -> Tensor | None:
    """Clip gradients in place.

    Args:
        parameters: The parameters whose gradients are meant; those without one are left out.
        clip_val: Largest total 2-norm (``"norm"``) or largest absolute value of an entry (``"value"``); `None` or 0
            does nothing.
        algorithm: ``"norm"`` or ``"value"``.

    Returns:
        The total norm before clipping (0-dim, no device sync) for ``"norm"``, else `None`.

    Raises:
        MisconfigurationException: A gradient is sparse, which torch cannot clip.
    """
    name = check_clip_algorithm(algorithm)
    limit = check_clip_value(clip_val)
    if not limit:
        return None
    params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    try:
        if name == "value":
            torch.nn.utils.clip_grad_value_(params, limit)
            return None
        return torch.nn.utils.clip_grad_norm_(params, limit)
    except NotImplementedError as error:
        sparse = [tuple(p.shape) for p in params if p.grad is not None and p.grad.is_sparse]
        if not sparse:
            raise
        raise MisconfigurationException(
            f"gradient_clip_val={limit:g} with gradient_clip_algorithm={name!r}: the gradient of a parameter of shape "
            f"{sparse[0]} is sparse, and torch cannot clip sparse gradients. Make its layer with `sparse=False`, give "
            "it an optimizer of its own and override `configure_gradient_clipping` to leave that one out, or do not "
            "clip."
        ) from error

"""Say which layer met which dtypes when torch complains about them."""

from __future__ import annotations

import re
import traceback
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.precision.base import Precision
from fulmen.utilities.collections import apply_to_collection

_ABOUT_DTYPES = re.compile(r"dtype|scalar type|weight type|bias type|Input type", re.IGNORECASE)


def dtype_note(error: BaseException, module: torch.nn.Module, precision: Precision) -> str | None:
    """Return a note for an error about dtypes, `None` for any other error.

    Args:
        error: What a step raised, with its traceback.
        module: The user's module; the layer that failed is named as it is reachable from it.
        precision: The run's precision.
    """
    if not isinstance(error, RuntimeError) or not _ABOUT_DTYPES.search(str(error)):
        return None
    layer, values = _innermost_layer(error)
    if layer is None:
        return None
    weights = {tensor.dtype for tensor in layer.parameters(recurse=False) if tensor.is_floating_point()}
    inputs: set[torch.dtype] = set()
    apply_to_collection(values, Tensor, lambda tensor: inputs.add(tensor.dtype))
    if not weights or inputs <= weights:
        return None
    name = next((name for name, child in module.named_modules() if child is layer), "") or type(layer).__name__
    return (
        f"Layer {name!r} ({type(layer).__name__}) has weights of {_names(weights)} and got {_names(inputs)},"
        f" with precision={precision.precision!r}. Bring the input to the weights' dtype in the data set or in"
        " `on_after_batch_transfer`, or choose a precision under which both are the same."
    )


def _innermost_layer(error: BaseException) -> tuple[torch.nn.Module | None, list[Any]]:
    layer: torch.nn.Module | None = None
    values: list[Any] = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = frame.f_locals.get("self")
        if isinstance(found, torch.nn.Module) and next(found.parameters(recurse=False), None) is not None:
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + bool(code.co_flags & 0x04)]  # with *args, if there are
            layer, values = found, [frame.f_locals.get(name) for name in names if name != "self"]
    return layer, values


def _names(dtypes: set[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))

"""Say which layer met which dtypes when torch complains about them."""

from __future__ import annotations

import re
import traceback
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.precision.base import Precision
from fulmen.utilities.collections import apply_to_collection
from fulmen.utilities.nonfinite import named_tensors

_ABOUT_DTYPES = re.compile(r"dtype|scalar type|weight type|bias type|Input type|have the type", re.IGNORECASE)


def dtype_note(error: BaseException, module: torch.nn.Module, precision: Precision, batch: Any = None) -> str | None:
    """Return a note for an error about dtypes, `None` for any other error.

    Args:
        error: What a step raised, with its traceback.
        module: The user's module; the layer that failed is named as it is reachable from it.
        precision: The run's precision.
        batch: The batch in work; its dtypes are told if no layer is to be seen in the traceback, as in a loss or in
            backward.
    """
    if not isinstance(error, (RuntimeError, ValueError)) or not _ABOUT_DTYPES.search(str(error)):
        return None
    layer, values = _innermost_layer(error)
    if layer is None:
        return _batch_note(module, precision, batch)
    weights = {tensor.dtype for tensor in layer.parameters(recurse=False) if tensor.is_floating_point()}
    inputs: set[torch.dtype] = set()
    apply_to_collection(values, Tensor, lambda tensor: inputs.add(tensor.dtype))
    name = next((name for name, child in module.named_modules() if child is layer), "") or type(layer).__name__
    shown = f"Layer {name!r} ({type(layer).__name__})"
    if isinstance(layer, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and any(d.is_floating_point for d in inputs):
        return f"{shown} got {_names(inputs)}; it looks up rows by number: give it whole numbers (`.long()`)."
    if not weights or inputs <= weights:
        return None
    return (
        f"{shown} has weights of {_names(weights)} and got {_names(inputs)},"
        f" with precision={precision.precision!r}. {_remedy(inputs)}"
    )


def _batch_note(module: torch.nn.Module, precision: Precision, batch: Any) -> str | None:
    """What can be said of an error outside of all layers."""
    found = [(path, tensor.dtype) for path, tensor in named_tensors(batch)]
    weights = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if not found or not weights:
        return None
    shown = ", ".join(f"batch{path} is {_names({dtype})}" for path, dtype in found[:6])
    return (
        f"No layer failed, so that a loss or other code of {type(module).__name__} mixes dtypes: {shown}; the weights"
        f" are {_names(weights)}, with precision={precision.precision!r}. {_remedy({dtype for _, dtype in found})}"
    )


def _remedy(inputs: set[torch.dtype]) -> str:
    numpy = " NumPy makes float64 arrays: `.float()` on the tensor." if torch.float64 in inputs else ""
    return (
        "Bring the input to the weights' dtype in the data set or in `on_after_batch_transfer`, or choose a precision"
        f" under which both are the same.{numpy}"
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

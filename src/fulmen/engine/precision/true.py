"""Everything in one other format: float16, bfloat16 or float64."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.precision.base import Precision
from fulmen.errors import ArgumentValueError
from fulmen.utilities.collections import apply_to_collection


class DefaultDtype:
    """Context in which new floating point tensors have a given dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._before: list[torch.dtype] = []

    def __enter__(self) -> None:
        self._before.append(torch.get_default_dtype())
        torch.set_default_dtype(self.dtype)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        torch.set_default_dtype(self._before.pop())


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


class _TruePrecision(Precision):
    """Weights, batches and newly made tensors have one dtype."""

    plain = False
    dtype: torch.dtype = torch.float32

    def context(self) -> AbstractContextManager[Any]:
        return DefaultDtype(self.dtype)

    def init_context(self) -> AbstractContextManager[Any]:
        return DefaultDtype(self.dtype)

    def convert(self, module: torch.nn.Module) -> torch.nn.Module:
        return module.to(self.dtype)

    def convert_input(self, data: Any) -> Any:
        return apply_to_collection(data, Tensor, _cast, self.dtype)

    def convert_output(self, data: Any) -> Any:
        return apply_to_collection(data, Tensor, _cast, torch.get_default_dtype())


class HalfPrecision(_TruePrecision):
    """All in float16 (``"16-true"``) or bfloat16 (``"bf16-true"``), without a loss scaler.

    Args:
        precision: One of the two names.

    Raises:
        ArgumentValueError: Another name.
    """

    def __init__(self, precision: str = "16-true") -> None:
        if precision not in ("16-true", "bf16-true"):
            raise ArgumentValueError(f"HalfPrecision(precision={precision!r}): give '16-true' or 'bf16-true'.")
        self.precision = precision
        self.dtype = torch.float16 if precision == "16-true" else torch.bfloat16


class DoublePrecision(_TruePrecision):
    """All in float64 (``"64-true"``)."""

    precision = "64-true"
    dtype = torch.float64

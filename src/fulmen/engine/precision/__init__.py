"""Number formats of a run: contexts, conversions, loss scaling and the optimizer step."""

from __future__ import annotations

from fulmen.engine.precision.base import Precision
from fulmen.engine.precision.clipping import clip_gradients
from fulmen.engine.precision.mismatch import dtype_note
from fulmen.engine.precision.mixed import MixedPrecision
from fulmen.engine.precision.resolve import PRECISION_NAMES, resolve_precision
from fulmen.engine.precision.true import DoublePrecision, HalfPrecision

__all__ = [
    "PRECISION_NAMES",
    "DoublePrecision",
    "HalfPrecision",
    "MixedPrecision",
    "Precision",
    "clip_gradients",
    "dtype_note",
    "resolve_precision",
]

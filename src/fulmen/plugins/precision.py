"""In which floating point formats a run computes."""

from __future__ import annotations

from fulmen.engine.precision import DoublePrecision, HalfPrecision, MixedPrecision, Precision

__all__ = ["DoublePrecision", "HalfPrecision", "MixedPrecision", "Precision"]

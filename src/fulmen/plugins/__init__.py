"""Precision, checkpoint files and cluster environments under Lightning's names; the engine has the classes."""

from __future__ import annotations

from fulmen.plugins.environments import ClusterEnvironment, LightningEnvironment
from fulmen.plugins.io import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO
from fulmen.plugins.precision import DoublePrecision, HalfPrecision, MixedPrecision, Precision

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointIO",
    "ClusterEnvironment",
    "DoublePrecision",
    "HalfPrecision",
    "LightningEnvironment",
    "MixedPrecision",
    "Precision",
    "TorchCheckpointIO",
]

"""How checkpoint files are written and read."""

from __future__ import annotations

from fulmen.engine.storage import CheckpointIO, TorchCheckpointIO

__all__ = ["CheckpointIO", "TorchCheckpointIO"]

"""How checkpoint files are written and read."""

from __future__ import annotations

from fulmen.engine.storage import CheckpointIO, TorchCheckpointIO
from fulmen.engine.storage.async_io import AsyncCheckpointIO

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "TorchCheckpointIO"]

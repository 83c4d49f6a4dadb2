"""Files: the checkpoint's form, atomic and verified writing and reading, URLs. See README.md."""

from fulmen.engine.storage.checkpoint_io import CheckpointIO, TorchCheckpointIO
from fulmen.engine.storage.filesystem import get_filesystem, is_local
from fulmen.engine.storage.format import decode, encode
from fulmen.engine.storage.objects import UnsafeValue, find_unsafe, require_safe
from fulmen.engine.storage.reader import newest_good, read_verified
from fulmen.engine.storage.safe_types import add_safe_types
from fulmen.engine.storage.writer import write_atomic

__all__ = [
    "CheckpointIO",
    "TorchCheckpointIO",
    "UnsafeValue",
    "add_safe_types",
    "decode",
    "encode",
    "find_unsafe",
    "get_filesystem",
    "is_local",
    "newest_good",
    "read_verified",
    "require_safe",
    "write_atomic",
]

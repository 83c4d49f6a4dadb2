"""lightning.pytorch.callbacks.model_checkpoint, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.checkpoint import Checkpoint
from fulmen.callbacks.model_checkpoint import ModelCheckpoint
from fulmen.compat.modules import absent
from fulmen.engine.storage.filesystem import get_filesystem
from fulmen.errors import MisconfigurationException
from fulmen.utilities.rank_zero import WarningCache, rank_zero_info, rank_zero_warn
from fulmen.utilities.types import STEP_OUTPUT

__all__ = [
    "Checkpoint",
    "MisconfigurationException",
    "ModelCheckpoint",
    "STEP_OUTPUT",
    "WarningCache",
    "get_filesystem",
    "rank_zero_info",
    "rank_zero_warn",
]
__getattr__ = absent(__name__, __all__)

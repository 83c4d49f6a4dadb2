"""pytorch_lightning.callbacks.early_stopping, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.early_stopping import EarlyStopping, EarlyStoppingReason
from fulmen.compat.modules import absent
from fulmen.errors import MisconfigurationException
from fulmen.utilities.rank_zero import rank_prefixed_message, rank_zero_warn

__all__ = [
    "Callback",
    "EarlyStopping",
    "EarlyStoppingReason",
    "MisconfigurationException",
    "rank_prefixed_message",
    "rank_zero_warn",
]
__getattr__ = absent(__name__, __all__)

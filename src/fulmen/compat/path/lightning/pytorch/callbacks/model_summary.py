"""lightning.pytorch.callbacks.model_summary, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.model_summary import ModelSummary
from fulmen.compat.modules import absent
from fulmen.export.summary import summarize

__all__ = ["Callback", "ModelSummary", "summarize"]
__getattr__ = absent(__name__, __all__)

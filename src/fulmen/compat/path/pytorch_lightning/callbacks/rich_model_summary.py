"""pytorch_lightning.callbacks.rich_model_summary, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.model_summary import ModelSummary
from fulmen.callbacks.rich_model_summary import RichModelSummary
from fulmen.compat.modules import absent
from fulmen.export.summary import get_formatted_model_size, get_human_readable_count

__all__ = ["ModelSummary", "RichModelSummary", "get_formatted_model_size", "get_human_readable_count"]
__getattr__ = absent(__name__, __all__)

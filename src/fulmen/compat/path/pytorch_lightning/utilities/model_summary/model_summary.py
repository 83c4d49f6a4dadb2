"""pytorch_lightning.utilities.model_summary.model_summary, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.export.summary import (
    LayerSummary,
    ModelSummary,
    get_formatted_model_size,
    get_human_readable_count,
    parse_batch_shape,
    summarize,
)
from fulmen.utilities.rank_zero import WarningCache, rank_zero_warn

__all__ = [
    "LayerSummary",
    "ModelSummary",
    "WarningCache",
    "get_formatted_model_size",
    "get_human_readable_count",
    "parse_batch_shape",
    "rank_zero_warn",
    "summarize",
]
__getattr__ = absent(__name__, __all__)

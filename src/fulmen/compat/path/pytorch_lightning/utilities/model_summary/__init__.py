"""pytorch_lightning.utilities.model_summary, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = [
    "LayerSummary",
    "ModelSummary",
    "get_formatted_model_size",
    "get_human_readable_count",
    "parse_batch_shape",
    "summarize",
]
_NAMES = {
    "fulmen.export.summary": (
        "LayerSummary ModelSummary get_formatted_model_size get_human_readable_count parse_batch_shape summarize"
    ),
}
_MODULES = "model_summary"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

"""pytorch_lightning.utilities, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = [
    "AttributeDict",
    "CombinedLoader",
    "GradClipAlgorithmType",
    "LightningEnum",
    "disable_possible_user_warnings",
    "find_shared_parameters",
    "grad_norm",
    "is_picklable",
    "is_shared_filesystem",
    "move_data_to_device",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "set_shared_parameters",
    "suggested_max_num_workers",
]
_NAMES = {
    "fulmen.utilities.collections": "move_data_to_device",
    "fulmen.utilities.combined_loader": "CombinedLoader",
    "fulmen.utilities.enums": "GradClipAlgorithmType LightningEnum",
    "fulmen.utilities.grads": "grad_norm",
    "fulmen.utilities.parameter_tying": "find_shared_parameters set_shared_parameters",
    "fulmen.utilities.parsing": "AttributeDict is_picklable",
    "fulmen.utilities.rank_zero": "rank_zero_deprecation rank_zero_info rank_zero_only rank_zero_warn",
    "fulmen.utilities.system": "is_shared_filesystem suggested_max_num_workers",
    "fulmen.utilities.warnings": "disable_possible_user_warnings",
}
_MODULES = (
    "combined_loader enums exceptions grads imports memory model_helpers model_summary parameter_tying parsing "
    "rank_zero seed types warnings"
)
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

"""lightning.fabric.utilities, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = [
    "AttributeDict",
    "LightningEnum",
    "disable_possible_user_warnings",
    "is_shared_filesystem",
    "move_data_to_device",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "suggested_max_num_workers",
]
_NAMES = {
    "fulmen.utilities.collections": "move_data_to_device",
    "fulmen.utilities.enums": "LightningEnum",
    "fulmen.utilities.parsing": "AttributeDict",
    "fulmen.utilities.rank_zero": "rank_zero_deprecation rank_zero_info rank_zero_only rank_zero_warn",
    "fulmen.utilities.system": "is_shared_filesystem suggested_max_num_workers",
    "fulmen.utilities.warnings": "disable_possible_user_warnings",
}
_MODULES = "apply_func cloud_io data distributed enums exceptions rank_zero seed types warnings"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

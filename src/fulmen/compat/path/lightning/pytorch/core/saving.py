"""lightning.pytorch.core.saving, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.accelerators.cuda import CUDAAccelerator
from fulmen.accelerators.mps import MPSAccelerator
from fulmen.compat.modules import absent
from fulmen.core.hparams_files import (
    convert,
    load_hparams_from_tags_csv,
    load_hparams_from_yaml,
    save_hparams_to_tags_csv,
    save_hparams_to_yaml,
    update_hparams,
)
from fulmen.engine.storage.filesystem import get_filesystem
from fulmen.utilities.collections import apply_to_collection
from fulmen.utilities.model_helpers import is_overridden
from fulmen.utilities.parsing import AttributeDict, parse_class_init_keys
from fulmen.utilities.rank_zero import rank_zero_warn

__all__ = [
    "AttributeDict",
    "CUDAAccelerator",
    "MPSAccelerator",
    "apply_to_collection",
    "convert",
    "get_filesystem",
    "is_overridden",
    "load_hparams_from_tags_csv",
    "load_hparams_from_yaml",
    "parse_class_init_keys",
    "rank_zero_warn",
    "save_hparams_to_tags_csv",
    "save_hparams_to_yaml",
    "update_hparams",
]
__getattr__ = absent(__name__, __all__)

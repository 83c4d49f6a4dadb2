"""lightning.pytorch.utilities.parsing, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.parsing import (
    AttributeDict,
    clean_namespace,
    collect_init_args,
    get_init_args,
    is_picklable,
    parse_class_init_keys,
    save_hyperparameters,
)
from fulmen.utilities.rank_zero import rank_zero_warn

__all__ = [
    "AttributeDict",
    "clean_namespace",
    "collect_init_args",
    "get_init_args",
    "is_picklable",
    "parse_class_init_keys",
    "rank_zero_warn",
    "save_hyperparameters",
]
__getattr__ = absent(__name__, __all__)

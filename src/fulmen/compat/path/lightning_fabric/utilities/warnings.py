"""lightning_fabric.utilities.warnings, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.errors import PossibleUserWarning
from fulmen.utilities.rank_zero import FulmenDeprecationWarning as LightningDeprecationWarning
from fulmen.utilities.warnings import disable_possible_user_warnings

__all__ = ["LightningDeprecationWarning", "PossibleUserWarning", "disable_possible_user_warnings"]
__getattr__ = absent(__name__, __all__)

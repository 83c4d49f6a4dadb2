"""lightning.fabric.utilities.distributed, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.rank_zero import rank_zero_info
from fulmen.utilities.system import is_shared_filesystem

__all__ = ["is_shared_filesystem", "rank_zero_info"]
__getattr__ = absent(__name__, __all__)

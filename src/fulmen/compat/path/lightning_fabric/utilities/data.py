"""lightning_fabric.utilities.data, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.errors import MisconfigurationException
from fulmen.utilities.enums import LightningEnum
from fulmen.utilities.parsing import AttributeDict
from fulmen.utilities.rank_zero import rank_zero_warn
from fulmen.utilities.seed import pl_worker_init_function
from fulmen.utilities.system import suggested_max_num_workers

__all__ = [
    "AttributeDict",
    "LightningEnum",
    "MisconfigurationException",
    "pl_worker_init_function",
    "rank_zero_warn",
    "suggested_max_num_workers",
]
__getattr__ = absent(__name__, __all__)

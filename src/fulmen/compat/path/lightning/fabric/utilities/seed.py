"""lightning.fabric.utilities.seed, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.rank_zero import rank_prefixed_message, rank_zero_only, rank_zero_warn
from fulmen.utilities.seed import pl_worker_init_function, reset_seed, seed_everything

__all__ = [
    "pl_worker_init_function",
    "rank_prefixed_message",
    "rank_zero_only",
    "rank_zero_warn",
    "reset_seed",
    "seed_everything",
]
__getattr__ = absent(__name__, __all__)

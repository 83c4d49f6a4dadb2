"""lightning.pytorch.callbacks.progress.progress_bar, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.progress.progress_bar import ProgressBar, get_standard_metrics
from fulmen.compat.modules import absent
from fulmen.utilities.rank_zero import rank_zero_warn

__all__ = ["Callback", "ProgressBar", "get_standard_metrics", "rank_zero_warn"]
__getattr__ = absent(__name__, __all__)

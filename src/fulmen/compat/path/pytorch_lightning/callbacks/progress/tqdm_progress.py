"""pytorch_lightning.callbacks.progress.tqdm_progress, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.progress.progress_bar import ProgressBar
from fulmen.callbacks.progress.tqdm_progress import TQDMProgressBar, Tqdm, convert_inf
from fulmen.compat.modules import absent
from fulmen.utilities.rank_zero import rank_zero_debug
from fulmen.utilities.types import STEP_OUTPUT

__all__ = ["ProgressBar", "STEP_OUTPUT", "TQDMProgressBar", "Tqdm", "convert_inf", "rank_zero_debug"]
__getattr__ = absent(__name__, __all__)

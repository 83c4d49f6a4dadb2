"""pytorch_lightning.callbacks.timer, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.timer import Timer
from fulmen.compat.modules import absent
from fulmen.errors import MisconfigurationException
from fulmen.trainer.states import RunningStage
from fulmen.utilities.enums import LightningEnum
from fulmen.utilities.rank_zero import rank_zero_info

__all__ = ["Callback", "LightningEnum", "MisconfigurationException", "RunningStage", "Timer", "rank_zero_info"]
__getattr__ = absent(__name__, __all__)

"""lightning.pytorch.trainer.states, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.trainer.states import RunningStage, TrainerFn, TrainerState, TrainerStatus
from fulmen.utilities.enums import LightningEnum

__all__ = ["LightningEnum", "RunningStage", "TrainerFn", "TrainerState", "TrainerStatus"]
__getattr__ = absent(__name__, __all__)

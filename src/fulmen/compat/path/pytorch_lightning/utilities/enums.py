"""pytorch_lightning.utilities.enums, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.utilities.enums import GradClipAlgorithmType, LightningEnum

__all__ = ["GradClipAlgorithmType", "LightningEnum"]
__getattr__ = absent(__name__, __all__)

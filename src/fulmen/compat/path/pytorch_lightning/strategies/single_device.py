"""pytorch_lightning.strategies.single_device, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.engine.precision.base import Precision
from fulmen.engine.storage.checkpoint_io import CheckpointIO
from fulmen.strategies.single_device import SingleDeviceStrategy
from fulmen.strategies.strategy import Strategy

__all__ = ["CheckpointIO", "Precision", "SingleDeviceStrategy", "Strategy"]
__getattr__ = absent(__name__, __all__)

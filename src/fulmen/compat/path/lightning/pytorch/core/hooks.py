"""lightning.pytorch.core.hooks, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import absent
from fulmen.core.datahooks import DataHooks
from fulmen.errors import MisconfigurationException
from fulmen.utilities.collections import move_data_to_device
from fulmen.utilities.types import STEP_OUTPUT

__all__ = ["DataHooks", "MisconfigurationException", "STEP_OUTPUT", "move_data_to_device"]
__getattr__ = absent(__name__, __all__)

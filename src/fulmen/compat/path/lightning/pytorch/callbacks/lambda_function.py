"""lightning.pytorch.callbacks.lambda_function, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.lambda_function import LambdaCallback
from fulmen.compat.modules import absent

__all__ = ["Callback", "LambdaCallback"]
__getattr__ = absent(__name__, __all__)

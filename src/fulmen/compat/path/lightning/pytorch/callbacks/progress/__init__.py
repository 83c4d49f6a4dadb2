"""lightning.pytorch.callbacks.progress, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = ["ProgressBar", "RichProgressBar", "TQDMProgressBar"]
_NAMES = {
    "fulmen.callbacks.progress.progress_bar": "ProgressBar",
    "fulmen.callbacks.progress.rich_progress": "RichProgressBar",
    "fulmen.callbacks.progress.tqdm_progress": "TQDMProgressBar",
}
_MODULES = "progress_bar rich_progress tqdm_progress"
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

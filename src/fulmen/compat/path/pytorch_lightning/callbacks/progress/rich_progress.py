"""pytorch_lightning.callbacks.progress.rich_progress, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.callbacks.progress.progress_bar import ProgressBar
from fulmen.callbacks.progress.rich_progress import (
    BatchesProcessedColumn,
    CustomBarColumn,
    CustomProgress,
    CustomTimeColumn,
    MetricsTextColumn,
    ProcessingSpeedColumn,
    RichProgressBar,
    RichProgressBarTheme,
)
from fulmen.compat.modules import absent
from fulmen.utilities.collections import apply_to_collection
from fulmen.utilities.types import STEP_OUTPUT

__all__ = [
    "BatchesProcessedColumn",
    "CustomBarColumn",
    "CustomProgress",
    "CustomTimeColumn",
    "MetricsTextColumn",
    "ProcessingSpeedColumn",
    "ProgressBar",
    "RichProgressBar",
    "RichProgressBarTheme",
    "STEP_OUTPUT",
    "apply_to_collection",
]
__getattr__ = absent(__name__, __all__)

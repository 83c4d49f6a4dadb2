"""Callbacks: what acts beside the module at fixed points of a run. Each is imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulmen.callbacks.callback import Callback
    from fulmen.callbacks.checkpoint import Checkpoint
    from fulmen.callbacks.divergence_guard import DivergenceGuard
    from fulmen.callbacks.early_stopping import EarlyStopping
    from fulmen.callbacks.gradient_accumulation_scheduler import GradientAccumulationScheduler
    from fulmen.callbacks.lambda_function import LambdaCallback
    from fulmen.callbacks.lr_monitor import LearningRateMonitor
    from fulmen.callbacks.model_checkpoint import ModelCheckpoint
    from fulmen.callbacks.model_summary import ModelSummary
    from fulmen.callbacks.precise_batch_norm import PreciseBatchNorm
    from fulmen.callbacks.progress.notebook_progress import NotebookProgress
    from fulmen.callbacks.progress.plain_progress import PlainProgress
    from fulmen.callbacks.progress.progress_bar import ProgressBar
    from fulmen.callbacks.progress.rich_progress import RichProgressBar
    from fulmen.callbacks.progress.tqdm_progress import TQDMProgressBar
    from fulmen.callbacks.rich_model_summary import RichModelSummary
    from fulmen.callbacks.timer import Timer

__all__ = [
    "Callback",
    "Checkpoint",
    "DivergenceGuard",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "LambdaCallback",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelSummary",
    "NotebookProgress",
    "PlainProgress",
    "PreciseBatchNorm",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "TQDMProgressBar",
    "Timer",
]

_HOME = {
    "Callback": "callback",
    "Checkpoint": "checkpoint",
    "DivergenceGuard": "divergence_guard",
    "EarlyStopping": "early_stopping",
    "GradientAccumulationScheduler": "gradient_accumulation_scheduler",
    "LambdaCallback": "lambda_function",
    "LearningRateMonitor": "lr_monitor",
    "ModelCheckpoint": "model_checkpoint",
    "ModelSummary": "model_summary",
    "NotebookProgress": "progress.notebook_progress",
    "PlainProgress": "progress.plain_progress",
    "PreciseBatchNorm": "precise_batch_norm",
    "ProgressBar": "progress.progress_bar",
    "RichModelSummary": "rich_model_summary",
    "RichProgressBar": "progress.rich_progress",
    "TQDMProgressBar": "progress.tqdm_progress",
    "Timer": "timer",
}
_MODULES = frozenset({"progress", *(home for home in _HOME.values() if "." not in home)})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""pytorch_lightning.callbacks, as far as Fulmen has it. Written by tools/make_aliases.py."""

from fulmen.compat.modules import lazy

__all__ = [
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "LambdaCallback",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelSummary",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "TQDMProgressBar",
    "Timer",
]
_NAMES = {
    "fulmen.callbacks.callback": "Callback",
    "fulmen.callbacks.checkpoint": "Checkpoint",
    "fulmen.callbacks.early_stopping": "EarlyStopping",
    "fulmen.callbacks.gradient_accumulation_scheduler": "GradientAccumulationScheduler",
    "fulmen.callbacks.lambda_function": "LambdaCallback",
    "fulmen.callbacks.lr_monitor": "LearningRateMonitor",
    "fulmen.callbacks.model_checkpoint": "ModelCheckpoint",
    "fulmen.callbacks.model_summary": "ModelSummary",
    "fulmen.callbacks.progress.progress_bar": "ProgressBar",
    "fulmen.callbacks.progress.rich_progress": "RichProgressBar",
    "fulmen.callbacks.progress.tqdm_progress": "TQDMProgressBar",
    "fulmen.callbacks.rich_model_summary": "RichModelSummary",
    "fulmen.callbacks.timer": "Timer",
}
_MODULES = (
    "callback checkpoint device_stats_monitor early_stopping gradient_accumulation_scheduler lambda_function "
    "lr_monitor model_checkpoint model_summary progress rich_model_summary timer weight_averaging"
)
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)

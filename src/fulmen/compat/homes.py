"""Which Lightning module each public class reports as its own while aliases are on.

Written by tools/make_aliases.py: Fulmen's module → class → Lightning's module.
"""

from __future__ import annotations

HOMES: dict[str, dict[str, str]] = {
    "fulmen.accelerators.accelerator": {
        "Accelerator": "lightning.pytorch.accelerators.accelerator",
    },
    "fulmen.accelerators.cpu": {
        "CPUAccelerator": "lightning.pytorch.accelerators.cpu",
    },
    "fulmen.accelerators.cuda": {
        "CUDAAccelerator": "lightning.pytorch.accelerators.cuda",
    },
    "fulmen.accelerators.mps": {
        "MPSAccelerator": "lightning.pytorch.accelerators.mps",
    },
    "fulmen.callbacks.callback": {
        "Callback": "lightning.pytorch.callbacks.callback",
    },
    "fulmen.callbacks.checkpoint": {
        "Checkpoint": "lightning.pytorch.callbacks.checkpoint",
    },
    "fulmen.callbacks.early_stopping": {
        "EarlyStopping": "lightning.pytorch.callbacks.early_stopping",
        "EarlyStoppingReason": "lightning.pytorch.callbacks.early_stopping",
    },
    "fulmen.callbacks.gradient_accumulation_scheduler": {
        "GradientAccumulationScheduler": "lightning.pytorch.callbacks.gradient_accumulation_scheduler",
    },
    "fulmen.callbacks.lambda_function": {
        "LambdaCallback": "lightning.pytorch.callbacks.lambda_function",
    },
    "fulmen.callbacks.lr_monitor": {
        "LearningRateMonitor": "lightning.pytorch.callbacks.lr_monitor",
    },
    "fulmen.callbacks.model_checkpoint": {
        "ModelCheckpoint": "lightning.pytorch.callbacks.model_checkpoint",
    },
    "fulmen.callbacks.model_summary": {
        "ModelSummary": "lightning.pytorch.callbacks.model_summary",
    },
    "fulmen.callbacks.progress.progress_bar": {
        "ProgressBar": "lightning.pytorch.callbacks.progress.progress_bar",
    },
    "fulmen.callbacks.progress.rich_progress": {
        "BatchesProcessedColumn": "lightning.pytorch.callbacks.progress.rich_progress",
        "CustomBarColumn": "lightning.pytorch.callbacks.progress.rich_progress",
        "CustomProgress": "lightning.pytorch.callbacks.progress.rich_progress",
        "CustomTimeColumn": "lightning.pytorch.callbacks.progress.rich_progress",
        "MetricsTextColumn": "lightning.pytorch.callbacks.progress.rich_progress",
        "ProcessingSpeedColumn": "lightning.pytorch.callbacks.progress.rich_progress",
        "RichProgressBar": "lightning.pytorch.callbacks.progress.rich_progress",
        "RichProgressBarTheme": "lightning.pytorch.callbacks.progress.rich_progress",
    },
    "fulmen.callbacks.progress.tqdm_progress": {
        "TQDMProgressBar": "lightning.pytorch.callbacks.progress.tqdm_progress",
        "Tqdm": "lightning.pytorch.callbacks.progress.tqdm_progress",
    },
    "fulmen.callbacks.rich_model_summary": {
        "RichModelSummary": "lightning.pytorch.callbacks.rich_model_summary",
    },
    "fulmen.callbacks.timer": {
        "Timer": "lightning.pytorch.callbacks.timer",
    },
    "fulmen.core.datahooks": {
        "DataHooks": "lightning.pytorch.core.hooks",
    },
    "fulmen.core.datamodule": {
        "LightningDataModule": "lightning.pytorch.core.datamodule",
    },
    "fulmen.core.hparams": {
        "HyperparametersMixin": "lightning.pytorch.core.mixins.hparams_mixin",
    },
    "fulmen.core.module": {
        "LightningModule": "lightning.pytorch.core.module",
    },
    "fulmen.core.optim_config": {
        "LRSchedulerConfig": "lightning.pytorch.utilities.types",
    },
    "fulmen.core.optimizer": {
        "LightningOptimizer": "lightning.pytorch.core.optimizer",
    },
    "fulmen.demos.boring_classes": {
        "BoringDataModule": "lightning.pytorch.demos.boring_classes",
        "BoringDataModuleNoLen": "lightning.pytorch.demos.boring_classes",
        "BoringModel": "lightning.pytorch.demos.boring_classes",
        "DemoModel": "lightning.pytorch.demos.boring_classes",
        "IterableBoringDataModule": "lightning.pytorch.demos.boring_classes",
        "ManualOptimBoringModel": "lightning.pytorch.demos.boring_classes",
        "Net": "lightning.pytorch.demos.boring_classes",
        "RandomDataset": "lightning.pytorch.demos.boring_classes",
        "RandomDictDataset": "lightning.pytorch.demos.boring_classes",
        "RandomIterableDataset": "lightning.pytorch.demos.boring_classes",
        "RandomIterableDatasetWithLen": "lightning.pytorch.demos.boring_classes",
    },
    "fulmen.engine.environments.cluster_environment": {
        "ClusterEnvironment": "lightning.fabric.plugins.environments.cluster_environment",
    },
    "fulmen.engine.environments.lightning": {
        "LightningEnvironment": "lightning.fabric.plugins.environments.lightning",
    },
    "fulmen.engine.precision.base": {
        "Precision": "lightning.pytorch.plugins.precision.precision",
    },
    "fulmen.engine.precision.mixed": {
        "MixedPrecision": "lightning.pytorch.plugins.precision.amp",
    },
    "fulmen.engine.precision.true": {
        "DoublePrecision": "lightning.pytorch.plugins.precision.double",
        "HalfPrecision": "lightning.pytorch.plugins.precision.half",
    },
    "fulmen.engine.storage.async_io": {
        "AsyncCheckpointIO": "lightning.pytorch.plugins.io.async_plugin",
    },
    "fulmen.engine.storage.checkpoint_io": {
        "CheckpointIO": "lightning.fabric.plugins.io.checkpoint_io",
        "TorchCheckpointIO": "lightning.fabric.plugins.io.torch_io",
    },
    "fulmen.errors": {
        "MisconfigurationException": "lightning.fabric.utilities.exceptions",
        "PossibleUserWarning": "lightning.fabric.utilities.warnings",
        "SIGTERMException": "lightning.pytorch.utilities.exceptions",
    },
    "fulmen.export.summary": {
        "LayerSummary": "lightning.pytorch.utilities.model_summary.model_summary",
        "ModelSummary": "lightning.pytorch.utilities.model_summary.model_summary",
    },
    "fulmen.loggers.csv_logs": {
        "CSVLogger": "lightning.pytorch.loggers.csv_logs",
        "ExperimentWriter": "lightning.pytorch.loggers.csv_logs",
    },
    "fulmen.loggers.logger": {
        "DummyLogger": "lightning.pytorch.loggers.logger",
        "Logger": "lightning.pytorch.loggers.logger",
    },
    "fulmen.loggers.tensorboard": {
        "TensorBoardLogger": "lightning.pytorch.loggers.tensorboard",
    },
    "fulmen.strategies.single_device": {
        "SingleDeviceStrategy": "lightning.pytorch.strategies.single_device",
    },
    "fulmen.strategies.strategy": {
        "Strategy": "lightning.pytorch.strategies.strategy",
    },
    "fulmen.trainer.states": {
        "RunningStage": "lightning.pytorch.trainer.states",
        "TrainerFn": "lightning.pytorch.trainer.states",
        "TrainerState": "lightning.pytorch.trainer.states",
        "TrainerStatus": "lightning.pytorch.trainer.states",
    },
    "fulmen.trainer.trainer": {
        "Trainer": "lightning.pytorch.trainer.trainer",
    },
    "fulmen.utilities.combined_loader": {
        "CombinedLoader": "lightning.pytorch.utilities.combined_loader",
    },
    "fulmen.utilities.enums": {
        "GradClipAlgorithmType": "lightning.pytorch.utilities.enums",
    },
    "fulmen.utilities.parsing": {
        "AttributeDict": "lightning_fabric.utilities.data",
    },
    "fulmen.utilities.types": {
        "LRSchedulerConfigType": "lightning.pytorch.utilities.types",
        "OptimizerConfig": "lightning.pytorch.utilities.types",
        "OptimizerLRSchedulerConfig": "lightning.pytorch.utilities.types",
    },
}

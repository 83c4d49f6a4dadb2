"""Type names under Lightning's spellings, for annotations in user code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypeAlias, TypedDict

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

_PATH: TypeAlias = str | Path
_DEVICE: TypeAlias = torch.device | str | int
_MAP_LOCATION_TYPE: TypeAlias = Any
_METRIC: TypeAlias = Tensor | float | int
STEP_OUTPUT: TypeAlias = Tensor | Mapping[str, Any] | None
_EVALUATE_OUTPUT: TypeAlias = list[Mapping[str, float]]
_PREDICT_OUTPUT: TypeAlias = list[Any] | list[list[Any]]
EVAL_DATALOADERS: TypeAlias = Any
TRAIN_DATALOADERS: TypeAlias = Any
LRSchedulerType: TypeAlias = LRScheduler | ReduceLROnPlateau
LRSchedulerPLType: TypeAlias = LRSchedulerType
LRSchedulerTypeUnion: TypeAlias = LRSchedulerType
LRSchedulerTypeTuple = (LRScheduler, ReduceLROnPlateau)


class LRSchedulerConfigType(TypedDict):
    """What `configure_optimizers` may say about a scheduler."""

    scheduler: LRSchedulerType
    name: NotRequired[str | None]
    interval: NotRequired[str]
    frequency: NotRequired[int]
    reduce_on_plateau: NotRequired[bool]
    monitor: NotRequired[str | None]
    strict: NotRequired[bool]


class OptimizerConfig(TypedDict):
    """A dictionary with an optimizer only."""

    optimizer: Optimizer


class OptimizerLRSchedulerConfig(TypedDict):
    """A dictionary with an optimizer and its scheduler."""

    optimizer: Optimizer
    lr_scheduler: LRSchedulerType | LRSchedulerConfigType
    monitor: NotRequired[str]


OptimizerLRScheduler: TypeAlias = (
    Optimizer
    | Sequence[Optimizer]
    | tuple[Sequence[Optimizer], Sequence[LRSchedulerType | LRSchedulerConfigType]]
    | OptimizerConfig
    | OptimizerLRSchedulerConfig
    | Sequence[OptimizerConfig]
    | Sequence[OptimizerLRSchedulerConfig]
    | None
)

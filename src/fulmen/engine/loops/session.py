"""The frozen set of objects that a run works with; loops get it and cannot reach the Trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.table import HookTable
from fulmen.engine.loops.control import Progress, RunControl
from fulmen.engine.results.hub import MetricsHub
from fulmen.engine.results.store import Results

if TYPE_CHECKING:
    from fulmen.engine.loops.loaders import Loaders
    from fulmen.engine.loops.step_room import StepRoom
    from fulmen.engine.runtime.policy import Policy
    from fulmen.engine.runtime.runtime import Runtime


@dataclass(frozen=True)
class Session:
    """One run of fit, validate, test or predict.

    Attributes:
        module: The user's module.
        model: The module as the strategy wrapped it (the same object on one device).
        loaders: Gives loader plans and moves batches.
        runtime: Strategy, precision and the rest of the hardware layer.
        hooks: Table of overridden hooks.
        cursor: Where the run is.
        hub: Logged values for monitors, loggers and bars.
        train_results: What `self.log` feeds in training.
        eval_results: What it feeds in evaluation.
        progress: Counters.
        control: What may change during the run.
        policy: Differences from Lightning.
        optimization: The step room.
        inference_mode: Whether evaluation runs under `torch.inference_mode`.
    """

    module: Any
    model: Any
    loaders: Loaders
    runtime: Runtime
    hooks: HookTable
    cursor: Cursor
    hub: MetricsHub
    train_results: Results
    eval_results: Results
    progress: Progress
    control: RunControl
    policy: Policy
    optimization: StepRoom
    inference_mode: bool = True

"""A small Trainer stand-in that fires the hooks of checkpointing and early stopping callbacks in a run's order."""

from __future__ import annotations

import json
import math
import os
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fulmen.engine.runtime.policy import Policy
from fulmen.engine.storage import manifest
from fulmen.engine.storage.filesystem import remove


class FakeStrategy:
    """One process; counts its collectives and deletions."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.barriers = 0
        self.refuse_removal = False
        self.other_ranks: list[bool] = []

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return obj

    def barrier(self, name: str | None = None) -> None:
        self.barriers += 1

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        votes = [decision, *self.other_ranks]
        return (min if all else max)(votes)

    def remove_checkpoint(self, path: str) -> None:
        if self.refuse_removal:
            raise PermissionError(13, "not allowed", path)
        self.removed.append(path)
        remove(path)
        folder, name = os.path.split(path)
        if os.path.isdir(folder):
            manifest.forget(folder, name)


class FakeTrainer:
    """Writes a small JSON file for each checkpoint, with the step and the state of all callbacks."""

    def __init__(self, *callbacks: Any, root: Any = ".", policy: Policy = Policy.right, **attributes: Any) -> None:
        self.callbacks = list(callbacks)
        self.policy = policy
        self.strategy = FakeStrategy()
        self.callback_metrics: dict[str, Any] = {}
        self.current_epoch = 0
        self.global_step = 0
        self.state = SimpleNamespace(fn="fit")
        self.sanity_checking = False
        self.fast_dev_run: bool | int = False
        self.check_val_every_n_epoch: int | None = 1
        self.val_check_interval: float = 1.0
        self.val_check_batch: float = math.inf
        self.num_val_batches = [2]
        self.enable_validation = True
        self.is_last_batch = False
        self.is_global_zero = True
        self.global_rank = 0
        self.world_size = 1
        self.loggers: list[Any] = []
        self.default_root_dir = str(root)
        self.ckpt_path: str | None = None
        self.run_id = "run-a"
        self.should_stop = False
        self.accumulate_grad_batches = 1
        self.module = SimpleNamespace(automatic_optimization=True)
        self.full = False
        self.manifest = False
        self.saved: list[str] = []
        self.weights_only: list[Any] = []
        self.states: dict[str, dict[str, Any]] = {}
        for name, value in attributes.items():
            setattr(self, name, value)

    @property
    def checkpoint_callbacks(self) -> list[Any]:
        return [callback for callback in self.callbacks if hasattr(callback, "written_files")]

    @property
    def early_stopping_callbacks(self) -> list[Any]:
        return [callback for callback in self.callbacks if hasattr(callback, "votes_to_stop")]

    def save_checkpoint(self, filepath: str, weights_only: bool | None = None, storage_options: Any = None) -> None:
        if self.full:
            raise OSError(28, "No space left on device", filepath)
        states = {callback.state_key: deepcopy(callback.state_dict()) for callback in self.callbacks}
        if "://" not in filepath:
            os.makedirs(os.path.dirname(filepath) or ".", exist_ok=True)
            temporary = f"{filepath}.part"
            Path(temporary).write_text(json.dumps({"step": self.global_step, "epoch": self.current_epoch}))
            if self.manifest:
                folder, name = os.path.split(filepath)
                entry = manifest.new_entry("", 0, {"run_id": self.run_id})
                manifest.publish(folder, name, entry, lambda: os.replace(temporary, filepath))
            else:
                os.replace(temporary, filepath)
        self.saved.append(filepath)
        self.weights_only.append(weights_only)
        self.states[filepath] = states

    def fire(self, hook: str, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, self.module, *args)

    def start(self, states: dict[str, Any] | None = None) -> FakeTrainer:
        """Begin a fit, resumed from states if there are any."""
        self.fire("setup", "fit")
        for callback in self.callbacks:
            if states and callback.state_key in states:
                callback.load_state_dict(deepcopy(states[callback.state_key]))
        self.fire("on_train_start")
        return self

    def batch(self, batch_idx: int = 0, *, last: bool = False, **metrics: Any) -> None:
        """One training batch with a step."""
        self.global_step += 1
        self.is_last_batch = last
        self.callback_metrics.update(metrics)
        self.fire("on_train_batch_end", {}, None, batch_idx)

    def validate(self, **metrics: Any) -> None:
        self.fire("on_validation_start")
        self.callback_metrics.update(metrics)
        self.fire("on_validation_end")

    def sanity_check(self, **metrics: Any) -> None:
        self.sanity_checking = True
        self.validate(**metrics)
        self.sanity_checking = False
        self.callback_metrics.clear()

    def end_epoch(self, **metrics: Any) -> None:
        self.callback_metrics.update(metrics)
        self.fire("on_train_epoch_end")
        self.current_epoch += 1

    def epoch(self, batches: int = 1, *, validate: bool = True, **metrics: Any) -> None:
        """One epoch with a validation at its end that logs the metrics."""
        for index in range(batches):
            self.batch(index, last=index == batches - 1)
        if validate:
            self.validate(**metrics)
        self.end_epoch()

    def end(self) -> None:
        self.fire("on_train_end")
        self.fire("teardown", "fit")


def files(folder: Any) -> list[str]:
    """Names of all checkpoint files below a folder, sorted."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.ckpt"))


def step_of(path: Any) -> int:
    """The step a checkpoint file was written at; follows links."""
    return int(json.loads(Path(path).read_text())["step"])

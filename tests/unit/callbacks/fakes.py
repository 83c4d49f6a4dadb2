"""A trainer that only has the values which callbacks read, and a run that fires the hooks in the trainer's order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class FakeLogger:
    version: Any = 0

    def __init__(self, version: Any = 0) -> None:
        self.version = version
        self.rows: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.rows.append((step, metrics))


def make_trainer(**changes: Any) -> Any:
    metrics: dict[str, Any] = {}
    values: dict[str, Any] = {
        "loggers": [],
        "callbacks": [],
        "progress_bar_metrics": {"loss": 0.123},
        "callback_metrics": metrics,
        "add_callback_metrics": metrics.update,
        "num_training_batches": 10,
        "num_val_batches": [4],
        "num_sanity_val_batches": [2],
        "num_test_batches": [4, 6],
        "num_predict_batches": [3],
        "max_epochs": 2,
        "max_steps": -1,
        "global_step": 0,
        "current_epoch": 0,
        "accumulate_grad_batches": 1,
        "check_val_every_n_epoch": 1,
        "enable_validation": True,
        "is_global_zero": True,
        "sanity_checking": False,
        "should_stop": False,
        "state": SimpleNamespace(fn="fit"),
        "lightning_module": SimpleNamespace(automatic_optimization=True),
        "lr_scheduler_configs": [],
        "optimizers": [],
        "log_every_n_steps": 1,
        "fit_loop": SimpleNamespace(batches_that_stepped=0),
    }
    return SimpleNamespace(**{**values, **changes})


def evaluate(bar: Any, trainer: Any, kind: str, counts: list[int], each: Callable[[], None] = lambda: None) -> None:
    """Fire the hooks of one evaluation: ``"validation"``, ``"test"`` or ``"predict"``."""
    module = trainer.lightning_module
    getattr(bar, f"on_{kind}_start")(trainer, module)
    for loader, count in enumerate(counts):
        for i in range(count):
            getattr(bar, f"on_{kind}_batch_start")(trainer, module, None, i, loader)
            each()
            getattr(bar, f"on_{kind}_batch_end")(trainer, module, None, None, i, loader)
    getattr(bar, f"on_{kind}_end")(trainer, module)


def fit(bar: Any, trainer: Any, each: Callable[[], None] = lambda: None, start: int = 0) -> None:
    """Fire the hooks of a whole `fit`; `each` is called before every batch's end."""
    module = trainer.lightning_module
    bar.setup(trainer, module, "fit")
    trainer.sanity_checking = True
    bar.on_sanity_check_start(trainer, module)
    evaluate(bar, trainer, "validation", trainer.num_sanity_val_batches)
    bar.on_sanity_check_end(trainer, module)
    trainer.sanity_checking = False
    bar.on_train_start(trainer, module)
    for epoch in range(trainer.current_epoch, trainer.max_epochs):
        trainer.current_epoch = epoch
        bar.on_train_epoch_start(trainer, module)
        for i in range(start, int(trainer.num_training_batches)):
            each()
            trainer.global_step += 1
            bar.on_train_batch_end(trainer, module, {}, None, i)
        start = 0
        evaluate(bar, trainer, "validation", trainer.num_val_batches, each)
        bar.on_train_epoch_end(trainer, module)
    bar.on_train_end(trainer, module)
    bar.teardown(trainer, module, "fit")


class Clock:
    """Stands in for the `time` module; goes on only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def advance(self, seconds: float) -> Callable[[], None]:
        def go() -> None:
            self.now += seconds

        return go

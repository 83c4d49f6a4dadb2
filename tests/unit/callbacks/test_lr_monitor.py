"""LearningRateMonitor: names, intervals, what is logged at which step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR

from fulmen.callbacks import LearningRateMonitor
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from tests.unit.callbacks.fakes import FakeLogger, make_trainer

pytestmark = pytest.mark.feature("K-03")


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(2))


def sgd(*names: str | None, **kwargs: Any) -> SGD:
    groups: list[dict[str, Any]] = [{"params": [parameter()], **({"name": n} if n else {})} for n in names or [None]]
    return SGD(groups, lr=0.1, **kwargs)


def config(optimizer: Optimizer, interval: str = "epoch", name: str | None = None) -> Any:
    return SimpleNamespace(scheduler=StepLR(optimizer, 1, gamma=0.5), interval=interval, name=name)


def trainer_of(*, schedulers: Any = (), optimizers: Any = (), **changes: Any) -> Any:
    every = [*optimizers, *(c.scheduler.optimizer for c in schedulers)]
    return make_trainer(loggers=[FakeLogger()], lr_scheduler_configs=list(schedulers), optimizers=every, **changes)


def step(monitor: LearningRateMonitor, trainer: Any, number: int) -> None:
    trainer.fit_loop.batches_that_stepped = number
    monitor.on_train_batch_start(trainer, trainer.lightning_module, None, number)


def test_names() -> None:
    twice = sgd()
    table: list[tuple[Any, list[str]]] = [
        (trainer_of(optimizers=[sgd()]), ["lr-SGD"]),
        (trainer_of(optimizers=[sgd(), sgd(), Adam([parameter()])]), ["lr-SGD", "lr-SGD-1", "lr-Adam"]),
        (trainer_of(optimizers=[sgd(None, None)]), ["lr-SGD/pg1", "lr-SGD/pg2"]),
        (trainer_of(optimizers=[sgd("body", None)]), ["lr-SGD/body", "lr-SGD/pg2"]),
        (trainer_of(optimizers=[sgd("only")]), ["lr-SGD/only"]),
        (trainer_of(schedulers=[config(sgd())], optimizers=[sgd()]), ["lr-SGD", "lr-SGD-1"]),
        (trainer_of(schedulers=[config(sgd(), name="mine"), config(sgd())]), ["mine", "lr-SGD"]),
        (trainer_of(schedulers=[config(sgd(None, None), name="mine")]), ["mine/pg1", "mine/pg2"]),
        (trainer_of(schedulers=[config(twice), config(twice)]), ["lr-SGD", "lr-SGD-1"]),
    ]
    for trainer, names in table:
        monitor = LearningRateMonitor()
        monitor.on_train_start(trainer, trainer.lightning_module)
        assert list(monitor.lrs) == names


@pytest.mark.parametrize(
    ("interval", "own", "rows"),
    [
        (None, "epoch", [(0, 0.1), (3, 0.05)]),
        (None, "step", [(0, 0.1), (1, 0.1), (2, 0.1), (3, 0.05), (4, 0.05), (5, 0.05)]),
        ("epoch", "step", [(0, 0.1), (3, 0.05)]),
        ("step", "epoch", [(0, 0.1), (1, 0.1), (2, 0.1), (3, 0.05), (4, 0.05), (5, 0.05)]),
    ],
)
def test_intervals(interval: Any, own: str, rows: list[tuple[int, float]]) -> None:
    monitor = LearningRateMonitor(interval)
    trainer = trainer_of(schedulers=[config(sgd(), own)])
    monitor.on_train_start(trainer, trainer.lightning_module)
    for epoch in range(2):
        trainer.fit_loop.batches_that_stepped = 3 * epoch
        monitor.on_train_epoch_start(trainer, trainer.lightning_module)
        for i in range(3):
            step(monitor, trainer, 3 * epoch + i)
        trainer.lr_scheduler_configs[0].scheduler.optimizer.step()
        trainer.lr_scheduler_configs[0].scheduler.step()
    assert trainer.loggers[0].rows == [(number, {"lr-SGD": pytest.approx(rate)}) for number, rate in rows]
    assert monitor.lrs["lr-SGD"] == pytest.approx([rate for _, rate in rows])
    torch.testing.assert_close(trainer.callback_metrics["lr-SGD"], torch.tensor(0.05))


def test_steps_are_logged_every_n_and_before_a_stop() -> None:
    monitor = LearningRateMonitor("step")
    trainer = trainer_of(optimizers=[sgd()], log_every_n_steps=3)
    monitor.on_train_start(trainer, trainer.lightning_module)
    for number in range(8):
        step(monitor, trainer, number)
    assert [number for number, _ in trainer.loggers[0].rows] == [2, 5]
    trainer.should_stop = True
    step(monitor, trainer, 9)
    assert trainer.loggers[0].rows[-1][0] == 9
    trainer.log_every_n_steps = 0
    step(monitor, trainer, 11)
    assert trainer.loggers[0].rows[-1][0] == 9


def test_batches_of_one_accumulation_window_give_one_row() -> None:
    monitor = LearningRateMonitor("step")
    trainer = trainer_of(optimizers=[sgd()])
    monitor.on_train_start(trainer, trainer.lightning_module)
    for number in (0, 0, 0, 1, 1, 1):
        step(monitor, trainer, number)
    assert [number for number, _ in trainer.loggers[0].rows] == [0, 1]
    assert len(monitor.lrs["lr-SGD"]) == 6


def test_momentum_and_weight_decay() -> None:
    optimizers = [sgd(momentum=0.8, weight_decay=0.01), Adam([parameter()], betas=(0.7, 0.9))]
    monitor = LearningRateMonitor("epoch", log_momentum=True, log_weight_decay=True)
    trainer = trainer_of(optimizers=optimizers)
    monitor.on_train_start(trainer, trainer.lightning_module)
    assert monitor.last_momentum_values == {"lr-SGD-momentum": None, "lr-Adam-momentum": None}
    monitor.on_train_epoch_start(trainer, trainer.lightning_module)
    assert trainer.loggers[0].rows == [
        (
            0,
            {
                "lr-SGD": 0.1,
                "lr-SGD-momentum": 0.8,
                "lr-SGD-weight_decay": 0.01,
                "lr-Adam": 0.001,
                "lr-Adam-momentum": 0.7,
                "lr-Adam-weight_decay": 0,
            },
        )
    ]
    assert monitor.last_weight_decay_values["lr-SGD-weight_decay"] == 0.01


def test_optimizers_without_momentum_are_named() -> None:
    trainer = trainer_of(optimizers=[torch.optim.Adagrad([parameter()])])
    with pytest.warns(RuntimeWarning, match="Adagrad has no momentum"):
        LearningRateMonitor(log_momentum=True).on_train_start(trainer, trainer.lightning_module)


def test_a_group_added_later_keeps_the_history() -> None:
    monitor = LearningRateMonitor("step")
    optimizer = sgd()
    trainer = trainer_of(optimizers=[optimizer])
    monitor.on_train_start(trainer, trainer.lightning_module)
    step(monitor, trainer, 0)
    optimizer.add_param_group({"params": [parameter()], "lr": 0.3})
    step(monitor, trainer, 1)
    assert monitor.lrs == {"lr-SGD/pg1": [0.1, 0.1], "lr-SGD/pg2": [0.3]}


def test_a_rate_that_is_a_tensor_is_logged_as_a_number() -> None:
    monitor = LearningRateMonitor("step")
    trainer = trainer_of(optimizers=[Adam([parameter()], lr=torch.tensor(0.25))])
    monitor.on_train_start(trainer, trainer.lightning_module)
    step(monitor, trainer, 0)
    assert type(trainer.loggers[0].rows[0][1]["lr-Adam"]) is float


def test_wrapped_optimizers_are_looked_through() -> None:
    inner = sgd()
    trainer = trainer_of(schedulers=[config(inner)], optimizers=[SimpleNamespace(optimizer=inner)])
    monitor = LearningRateMonitor()
    monitor.on_train_start(trainer, trainer.lightning_module)
    assert list(monitor.lrs) == ["lr-SGD"]


def test_no_logger_is_an_error() -> None:
    trainer = make_trainer(loggers=[])
    with pytest.raises(MisconfigurationException, match="the Trainer has no logger"):
        LearningRateMonitor().on_train_start(trainer, trainer.lightning_module)


def test_groups_of_one_name_are_an_error() -> None:
    trainer = trainer_of(optimizers=[sgd("same", "same", "other")])
    with pytest.raises(MisconfigurationException, match="share the name 'same'"):
        LearningRateMonitor().on_train_start(trainer, trainer.lightning_module)


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"logging_interval": "epochs"}, ArgumentValueError, "'epochs'.*Did you mean 'epoch'"),
        ({"logging_interval": 1}, ArgumentValueError, "logging_interval=1"),
        ({"log_momentum": 1}, ArgumentTypeError, "log_momentum=1"),
        ({"log_weight_decay": "yes"}, ArgumentTypeError, "log_weight_decay='yes'"),
    ],
)
def test_wrong_arguments(kwargs: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        LearningRateMonitor(**kwargs)

"""What may be set during a run has its effect by the next batch boundary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from fulmen.loggers import CSVLogger, Logger
from fulmen.strategies import SingleDeviceStrategy
from tests.integration.toys import Toy, fit, loader, quiet, stream, weights


class Acting(Toy):
    """Does something in a hook, once.

    Args:
        hook: The hook.
        act: Gets the Trainer.
        batch: Which batch, for hooks of batches.
    """

    def __init__(self, hook: str, act: Callable[[Any], Any], batch: int = 1) -> None:
        super().__init__()
        self.validations: list[int] = []
        self.steps: list[int] = []
        done = []

        def acting(*args: Any) -> None:
            if not done and (len(args) < 2 or args[-1] == batch) and not self.trainer.sanity_checking:
                done.append(1)
                act(self.trainer)

        setattr(self, hook, acting)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.steps.append(self.seen[-1])

    def on_validation_start(self) -> None:
        self.validations.append(len(self.seen))


def put(name: str, value: Any) -> Callable[[Any], None]:
    """Set an attribute, which may be one of a part (`fit_loop.max_epochs`)."""

    def act(trainer: Any) -> None:
        *parts, last = name.split(".")
        for part in parts:
            trainer = getattr(trainer, part)
        setattr(trainer, last, value)

    return act


BATCH_HOOKS = ["on_train_batch_start", "on_train_batch_end"]
EARLY_HOOKS = ["on_fit_start", "on_train_start", "on_train_epoch_start"]


# --- stopping ------------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-18", "T-03")
@pytest.mark.parametrize("hook", BATCH_HOOKS)
@pytest.mark.parametrize("data", [loader, stream])
def test_should_stop_ends_after_the_batch(hook: str, data: Any) -> None:
    module = Acting(hook, put("should_stop", True))
    trainer = fit(module, data(), loader(2), max_epochs=3)
    assert module.seen == [0, 1]
    assert module.validations == [2]  # the state it stops with is validated
    assert trainer.current_epoch == 1
    assert trainer.should_stop


@pytest.mark.feature("T-18", "T-03")
@pytest.mark.parametrize("hook", EARLY_HOOKS)
def test_should_stop_before_the_first_batch(hook: str) -> None:
    module = Acting(hook, put("should_stop", True))
    trainer = fit(module, max_epochs=3)
    assert len(module.seen) <= 1
    assert trainer.current_epoch <= 1


@pytest.mark.feature("T-18", "T-03")
@pytest.mark.parametrize(
    ("arguments", "batches"), [({"min_epochs": 2}, 12), ({"min_steps": 4}, 4), ({"min_steps": 8, "min_epochs": 1}, 8)]
)
def test_minimum_epochs_and_steps_hold_it_back(arguments: dict[str, int], batches: int) -> None:
    module = Acting("on_train_batch_end", put("should_stop", True))
    with pytest.warns(UserWarning, match="A stop was asked for, but"):
        fit(module, max_epochs=5, **arguments)
    assert len(module.seen) == batches


@pytest.mark.feature("T-18")
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning])
def test_a_new_fit_forgets_the_stop(policy: Policy) -> None:
    module = Acting("on_train_batch_end", put("should_stop", True))
    trainer = fit(module, max_epochs=3, policy=policy)
    trainer.fit(module, loader())
    assert trainer.current_epoch == 3


@pytest.mark.feature("T-18")
@pytest.mark.parametrize("who", ["module", "callback"])
@pytest.mark.parametrize("at", [0, 2])
def test_minus_one_skips_the_rest_of_the_epoch(who: str, at: int) -> None:
    calls: list[Any] = []

    class Skipping(Toy):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> Any:
            return -1 if who == "module" and batch_idx == at else None

        def on_train_epoch_end(self) -> None:
            calls.append(self.trainer.current_epoch)

    class Callback(L.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> Any:
            return -1 if who == "callback" and batch_idx == at else None

    module = Skipping()
    trainer = fit(module, max_epochs=2, callbacks=Callback())
    expected = list(range(at)) if who == "module" else list(range(6))  # as in Lightning, only the module's counts
    assert module.seen == expected * 2
    assert calls == [0, 1]
    assert trainer.current_epoch == 2


@pytest.mark.feature("T-18")
@pytest.mark.parametrize(
    ("name", "value", "batches"),
    [
        ("fit_loop.max_epochs", 1, 6),
        ("fit_loop.max_epochs", 4, 24),
        ("fit_loop.max_steps", 3, 3),
        ("fit_loop.max_steps", 9, 9),
    ],
)
@pytest.mark.parametrize("hook", [*BATCH_HOOKS, "on_fit_start", "on_train_start"])
def test_limits_of_epochs_and_steps(name: str, value: int, batches: int, hook: str) -> None:
    module = Acting(hook, put(name, value))
    trainer = fit(module, max_epochs=2)
    assert len(module.seen) == batches
    assert getattr(trainer, name.split(".")[1]) == value


# --- limits of batches ---------------------------------------------------------------------------------------------


@pytest.mark.feature("T-18")
@pytest.mark.parametrize("data", [loader, stream])
@pytest.mark.parametrize(
    ("limit", "epochs"),
    [
        (4, [[0, 1, 2, 3], [0, 1, 2, 3]]),
        (1, [[0, 1], [0]]),
        (0, [[0, 1]]),
        (100, [[0, 1, 2, 3, 4, 5]] * 2),
    ],
)
@pytest.mark.parametrize("hook", BATCH_HOOKS)
def test_limit_train_batches(data: Any, limit: int, epochs: list[list[int]], hook: str) -> None:
    module = Acting(hook, put("limit_train_batches", limit))
    trainer = fit(module, data(), loader(2), max_epochs=2, accumulate_grad_batches=3)
    assert module.seen == [batch for epoch in epochs for batch in epoch]
    ends = [sum(map(len, epochs[: i + 1])) for i in range(len(epochs))]
    assert module.validations == ends  # each epoch ends with a validation
    if limit != 100 or data is loader:
        assert trainer.num_training_batches == min(limit, 6)
    # The window that is under way when the epoch ends steps.
    if hook == "on_train_batch_start":
        assert module.steps[-1] == epochs[-1][-1]


@pytest.mark.feature("T-18")
def test_a_share_of_the_batches() -> None:
    module = Acting("on_train_batch_start", put("limit_train_batches", 0.5))
    fit(module, max_epochs=2)
    assert module.seen == [0, 1, 2] * 2


@pytest.mark.feature("T-18")
@pytest.mark.parametrize("hook", [*BATCH_HOOKS, "on_train_start"])
@pytest.mark.parametrize("sanity", [0, 1])
def test_limit_val_batches(hook: str, sanity: int) -> None:
    counts: list[int] = []

    class Counting(Acting):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if not self.trainer.sanity_checking:
                counts.append(batch_idx)

    module = Counting(hook, put("limit_val_batches", 1))
    trainer = fit(module, loader(), loader(8), num_sanity_val_steps=sanity)
    assert counts == [0]
    assert trainer.num_val_batches == [1]


@pytest.mark.feature("T-18")
@pytest.mark.parametrize(("call", "name"), [("validate", "val"), ("test", "test"), ("predict", "predict")])
def test_limits_of_evaluation(call: str, name: str) -> None:
    seen: list[int] = []
    hook = {"val": "validation", "test": "test", "predict": "predict"}[name]

    class Setting(Toy):
        """Sets the limit in its first step."""

    def step(self: Any, batch: Any, batch_idx: int) -> None:
        seen.append(batch_idx)
        setattr(self.trainer, f"limit_{name}_batches", 2)

    module = type("Setting", (Toy,), {f"{hook}_step": step})()
    trainer = quiet()
    getattr(trainer, call)(module, loader())
    assert seen == [0, 1]
    getattr(trainer, call)(module, loader())  # and stays
    assert seen == [0, 1] * 2


@pytest.mark.feature("T-18", "T-01")
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("limit_train_batches", -1, ArgumentValueError),
        ("limit_val_batches", "x", ArgumentTypeError),
        ("accumulate_grad_batches", 0, ArgumentValueError),
        ("accumulate_grad_batches", {0: 1}, ArgumentTypeError),
        ("gradient_clip_val", -1, ArgumentValueError),
        ("gradient_clip_algorithm", "nrom", ArgumentValueError),
        ("log_every_n_steps", -1, ArgumentValueError),
        ("check_val_every_n_epoch", 0, ArgumentValueError),
        ("val_check_interval", 1.5, ArgumentValueError),
        ("num_sanity_val_steps", -2, ArgumentValueError),
        ("reload_dataloaders_every_n_epochs", 1.5, ArgumentTypeError),
        ("fit_loop.max_epochs", 1.5, ArgumentTypeError),
        ("fit_loop.max_steps", None, ArgumentTypeError),
        ("strategy", "ddp", ArgumentTypeError),
    ],
)
def test_wrong_values_are_refused_where_they_are_set(name: str, value: Any, error: type[Exception]) -> None:
    trainer = quiet()
    last = name.split(".")[-1]
    with pytest.raises(error, match=last):
        put(name, value)(trainer)


# --- optimizers, callbacks, loggers ----------------------------------------------------------------------------------


@pytest.mark.feature("T-18")
@pytest.mark.parametrize("hook", [*BATCH_HOOKS, "on_fit_start", "on_train_start"])
def test_optimizers(hook: str) -> None:
    stopped: list[torch.Tensor] = []

    def act(trainer: Any) -> None:
        stopped.append(weights(trainer.lightning_module))
        trainer.optimizers = [torch.optim.SGD(trainer.lightning_module.parameters(), lr=0.0)]

    module = Acting(hook, act)
    trainer = fit(module)
    assert torch.equal(weights(module), stopped[0])
    assert len(module.seen) == 6
    assert type(module.optimizers()).__name__ == "SGD"
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.0


@pytest.mark.feature("T-18")
def test_schedulers() -> None:
    def act(trainer: Any) -> None:
        scheduler = torch.optim.lr_scheduler.StepLR(trainer.optimizers[0], step_size=1, gamma=0.5)
        config = L.pytorch.core.optim_config.LRSchedulerConfig(scheduler, interval="step")
        trainer.lr_scheduler_configs = [config]

    module = Acting("on_train_start", act)
    trainer = fit(module)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**6)


class Counter(L.Callback):
    def __init__(self) -> None:
        self.batches = 0
        self.ends = 0

    def on_train_batch_start(self, *args: Any) -> None:
        self.batches += 1

    def on_train_end(self, *args: Any) -> None:
        self.ends += 1


@pytest.mark.feature("T-18", "K-01")
@pytest.mark.parametrize("how", ["append", "insert", "set", "add"])
@pytest.mark.parametrize(
    ("hook", "batches"),
    [("on_train_batch_start", 4), ("on_train_batch_end", 4), ("on_train_epoch_start", 6), ("on_fit_start", 6)],
)
def test_a_callback_that_is_added_in_a_hook_runs(how: str, hook: str, batches: int) -> None:
    counter = Counter()

    def act(trainer: Any) -> None:
        if how == "append":
            trainer.callbacks.append(counter)
        elif how == "insert":
            trainer.callbacks.insert(0, counter)
        elif how == "set":
            trainer.callbacks = [*trainer.callbacks, counter]
        else:
            trainer.callbacks += [counter]

    fit(Acting(hook, act))
    assert (counter.batches, counter.ends) == (batches, 1)


@pytest.mark.feature("T-18", "K-01")
@pytest.mark.parametrize("how", ["remove", "set", "clear"])
def test_a_callback_that_is_taken_away_stops(how: str) -> None:
    counter = Counter()

    def act(trainer: Any) -> None:
        if how == "remove":
            trainer.callbacks.remove(counter)
        elif how == "clear":
            trainer.callbacks.clear()
        else:
            trainer.callbacks = []

    fit(Acting("on_train_batch_end", act), callbacks=counter)
    assert (counter.batches, counter.ends) == (2, 0)


class Keeping(Logger):
    """Keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int | None] = []

    @property
    def name(self) -> str:
        return "keeping"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.rows.append(step)


@pytest.mark.feature("T-18")
@pytest.mark.parametrize("how", ["logger", "loggers", "append", "none"])
def test_loggers(tmp_path: Path, how: str) -> None:
    first, second = Keeping(), Keeping()

    class Logging(Acting):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    def act(trainer: Any) -> None:
        if how == "logger":
            trainer.logger = second
            assert trainer.logger is second
        elif how == "loggers":
            trainer.loggers = [second]
        elif how == "append":
            trainer.loggers.append(second)
        else:
            trainer.logger = None
            assert trainer.loggers == []

    fit(Logging("on_train_batch_end", act, batch=2), logger=first, log_every_n_steps=1)
    assert first.rows == ([0, 1, 2, 3, 4, 5] if how == "append" else [0, 1])
    assert second.rows == ([] if how == "none" else [2, 3, 4, 5])


@pytest.mark.feature("T-18")
def test_the_interval_of_rows() -> None:
    logger = Keeping()

    class Logging(Acting):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    fit(Logging("on_train_batch_end", put("log_every_n_steps", 3), batch=1), logger=logger, log_every_n_steps=1)
    assert logger.rows == [0, 2, 5]


# --- others --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-18")
def test_stage_flags() -> None:
    trainer = quiet()
    for name in ("training", "validating", "testing", "predicting", "sanity_checking"):
        setattr(trainer, name, True)
        assert getattr(trainer, name)
        assert [getattr(trainer, n) for n in ("training", "validating", "testing")].count(True) <= 1
        setattr(trainer, name, False)
        assert not getattr(trainer, name)
        assert trainer.state.stage is None


@pytest.mark.feature("T-18")
def test_strategy_and_ckpt_path() -> None:
    trainer = quiet()
    strategy = SingleDeviceStrategy("cpu")
    trainer.strategy = strategy
    trainer.ckpt_path = "a.ckpt"
    assert trainer.ckpt_path == "a.ckpt"
    module = Toy()
    trainer.fit(module, loader())
    assert trainer.strategy is strategy
    assert not torch.equal(weights(module), weights(Toy()))
    assert trainer.ckpt_path is None
    with pytest.raises(MisconfigurationException, match="cannot be set during a run"):
        fit(Acting("on_train_start", put("strategy", SingleDeviceStrategy("cpu"))))


@pytest.mark.feature("T-18")
@pytest.mark.parametrize("weights_only", [None, False, True])
def test_save_checkpoint(tmp_path: Path, weights_only: bool | None) -> None:
    trainer = quiet()
    with pytest.raises(MisconfigurationException, match="before a module was attached"):
        trainer.save_checkpoint(tmp_path / "early.ckpt")
    module = Toy()
    trainer.fit(module, loader())
    trainer.save_checkpoint(tmp_path / "deep" / "a.ckpt", weights_only=weights_only)
    checkpoint = torch.load(tmp_path / "deep" / "a.ckpt", weights_only=True)
    assert torch.equal(checkpoint["state_dict"]["net.weight"], module.net.weight)
    assert (checkpoint["epoch"], checkpoint["global_step"]) == (1, 6)
    assert ("optimizer_states" in checkpoint) == (not weights_only)


@pytest.mark.feature("T-18")
def test_save_checkpoint_gives_storage_options_to_the_io(tmp_path: Path) -> None:
    got: list[Any] = []

    class IO(L.pytorch.plugins.TorchCheckpointIO):
        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
            got.append(storage_options)

    trainer = fit(Toy(), plugins=IO())
    trainer.save_checkpoint(tmp_path / "a.ckpt", storage_options={"a": 1})
    assert got == [{"a": 1}]


@pytest.mark.feature("T-18")
def test_init_module_and_enable_validation() -> None:
    trainer = quiet()
    with trainer.init_module(empty_init=True):
        module = Toy()
    assert module.net.weight.shape == (1, 4)
    trainer.fit(Toy(), loader(), loader())
    assert trainer.enable_validation
    trainer = quiet(limit_val_batches=0)
    trainer.fit(Toy(), loader(), loader())
    assert not trainer.enable_validation
    trainer = quiet()
    trainer.fit(Toy(), loader())
    assert not trainer.enable_validation


@pytest.mark.feature("T-18")
def test_the_csv_logger_takes_over_in_a_run(tmp_path: Path) -> None:
    def act(trainer: Any) -> None:
        trainer.logger = CSVLogger(tmp_path)

    class Logging(Acting):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("a", float(batch_idx))
            return super().training_step(batch, batch_idx)

    fit(Logging("on_train_start", act), log_every_n_steps=1)
    rows = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    assert len(rows) == 7

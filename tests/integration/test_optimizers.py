"""What `configure_optimizers` may return, and when schedulers step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, ReduceLROnPlateau, StepLR

from fulmen.callbacks import Callback
from fulmen.core.optim_config import LRSchedulerConfig, parse_optimizers
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from tests.integration.toys import Manual, Toy, fit, loader, quiet, stream, weights


def sgd(module: Any) -> SGD:
    return SGD(module.parameters(), lr=0.1)


def halving(optimizer: Any) -> StepLR:
    return StepLR(optimizer, step_size=1, gamma=0.5)


def built(make: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Optimizers of a module from a function of optimizer and its scheduler."""

    def configure(module: Any) -> Any:
        optimizer = sgd(module)
        return make(optimizer, halving(optimizer))

    return configure


FORMS: list[tuple[Callable[[Any, Any], Any], int]] = [
    (lambda o, s: o, 0),
    (lambda o, s: [o], 0),
    (lambda o, s: (o,), 0),
    (lambda o, s: ([o], [s]), 1),
    (lambda o, s: [[o], [s]], 1),
    (lambda o, s: ([o], s), 1),
    (lambda o, s: ([o], []), 0),
    (lambda o, s: ([o], [{"scheduler": s, "interval": "epoch"}]), 1),
    (lambda o, s: {"optimizer": o}, 0),
    (lambda o, s: {"optimizer": o, "lr_scheduler": s}, 1),
    (lambda o, s: {"optimizer": o, "lr_scheduler": None}, 0),
    (lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "name": "rate", "frequency": 1}}, 1),
    (lambda o, s: ({"optimizer": o, "lr_scheduler": s},), 1),
    (lambda o, s: [{"optimizer": o, "lr_scheduler": {"scheduler": s}}], 1),
    (lambda o, s: {"optimizer": o, "lr_scheduler": LRSchedulerConfig(s)}, 1),
]


@pytest.mark.feature("O-02")
@pytest.mark.parametrize(("make", "schedulers"), FORMS, ids=range(len(FORMS)))
def test_every_form_trains(make: Any, schedulers: int) -> None:
    module = Toy(optimizers=built(make))
    trainer = fit(module, max_epochs=2)
    assert not torch.equal(weights(module), weights(Toy()))
    assert [type(o) for o in trainer.optimizers] == [SGD]
    assert len(trainer.lr_scheduler_configs) == schedulers
    assert trainer.optimizers[0].param_groups[0]["lr"] == (0.025 if schedulers else 0.1)


@pytest.mark.feature("O-02")
def test_none_trains_nothing_and_says_so() -> None:
    module = Toy(optimizers=lambda m: None)
    with pytest.warns(UserWarning, match="returned None"):
        trainer = fit(module)
    assert torch.equal(weights(module), weights(Toy()))
    assert len(module.seen) == 6
    assert trainer.current_epoch == 1


@pytest.mark.feature("O-02")
@pytest.mark.parametrize(
    "make",
    [
        lambda m: [sgd(m), Adam(m.parameters())],
        lambda m: ({"optimizer": sgd(m)}, {"optimizer": Adam(m.parameters())}),
        lambda m: ([sgd(m), Adam(m.parameters())], []),
    ],
)
def test_several_optimizers_are_for_manual_optimization_under_lightnings_policy(make: Any) -> None:
    with pytest.raises(MisconfigurationException, match=r"Toy.* 2 optimizers.*automatic_optimization = False"):
        fit(Toy(optimizers=make), policy=Policy.lightning)
    module = Manual(lambda m, b, i: None, optimizers=make)
    trainer = fit(module, loader(2))
    assert [type(o) for o in trainer.optimizers] == [SGD, Adam]


def foreign(optimizer: Any, scheduler: Any) -> Any:
    return {"optimizer": optimizer, "lr_scheduler": halving(SGD([torch.zeros(1, requires_grad=True)], lr=1.0))}


# what is returned, error, words
WRONG: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
    (lambda o, s: 3, ArgumentTypeError, ("int (3)", "it must return an optimizer")),
    (lambda o, s: "adam", ArgumentTypeError, ("'adam'", "it must return")),
    (lambda o, s: SGD, ArgumentTypeError, ("type", "SGD")),
    (lambda o, s: [], ArgumentValueError, ("empty list", "it must return")),
    (lambda o, s: {}, ArgumentValueError, ("without 'optimizer'",)),
    (lambda o, s: [o, 3], ArgumentTypeError, ("int (3)", "return two lists")),
    (lambda o, s: (o, s), ArgumentTypeError, ("two lists", "'lr_scheduler'")),
    (lambda o, s: [o, [s]], ArgumentTypeError, ("two lists",)),
    (lambda o, s: ([3], [s]), ArgumentTypeError, ("int (3)",)),
    (lambda o, s: ([o], [3]), ArgumentTypeError, ("int (3)", "as scheduler", "lr_scheduler_step")),
    (lambda o, s: {"optimizer": 3}, ArgumentTypeError, ("int (3)",)),
    (lambda o, s: {"optimiser": o}, ArgumentValueError, ("'optimiser'", "Did you mean 'optimizer'?")),
    (lambda o, s: {"optimizer": o, "lr_schedulers": s}, ArgumentValueError, ("Did you mean 'lr_scheduler'?",)),
    (lambda o, s: {"optimizer": o, "scheduler": s}, ArgumentValueError, ("'scheduler'", "'lr_scheduler'")),
    (lambda o, s: {"optimizer": o, "lr_scheduler": 3}, ArgumentTypeError, ("int (3)", "as scheduler")),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"intervall": "step", "scheduler": s}},
        ArgumentValueError,
        ("'intervall'", "Did you mean 'interval'?"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"interval": "step"}},
        ArgumentValueError,
        ("without 'scheduler'",),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "interval": "batch"}},
        ArgumentValueError,
        ("interval='batch'", "'step' or 'epoch'"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "interval": "steps"}},
        ArgumentValueError,
        ("Did you mean 'step'?",),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "frequency": 0}},
        ArgumentValueError,
        ("frequency=0", "at least 1"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "frequency": 1.5}},
        ArgumentTypeError,
        ("frequency=1.5", "int"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "frequency": True}},
        ArgumentTypeError,
        ("frequency=True", "int"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "strict": "yes"}},
        ArgumentTypeError,
        ("strict='yes'", "True or False"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "monitor": 3}},
        ArgumentTypeError,
        ("monitor=3", "string"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "name": 3}},
        ArgumentTypeError,
        ("name=3", "string"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": {"scheduler": s, "reduce_on_plateau": 1}},
        ArgumentTypeError,
        ("reduce_on_plateau=1", "True or False"),
    ),
    (
        lambda o, s: {"optimizer": o, "lr_scheduler": ReduceLROnPlateau(o)},
        MisconfigurationException,
        ("ReduceLROnPlateau", "'monitor': 'val_loss'"),
    ),
    (lambda o, s: ([o], [ReduceLROnPlateau(o)]), MisconfigurationException, ("ReduceLROnPlateau", "'monitor'")),
    (lambda o, s: [o, o], MisconfigurationException, ("the same SGD twice", "[optimizer], [scheduler, scheduler]")),
    (lambda o, s: {"optimizer": [o]}, ArgumentTypeError, ("list ([SGD", "an optimizer is needed")),
    (lambda o, s: {"optimizer": o, "lr_scheduler": [s, s]}, ArgumentTypeError, ("list ([", "scheduler,")),
    (lambda o, s: {"optimizer": o, "name": 3}, ArgumentTypeError, ("name=3", "an optimizer", "string")),
    (lambda o, s: {"optimizer": o, "frequency": -1}, ArgumentValueError, ("frequency=-1", "at least 1")),
    (foreign, MisconfigurationException, ("StepLR whose optimizer is not among those returned",)),
]


@pytest.mark.feature("O-02")
@pytest.mark.parametrize(("make", "error", "words"), WRONG, ids=[w[2][0] for w in WRONG])
def test_another_form_is_an_error_before_training(make: Any, error: type[Exception], words: tuple[str, ...]) -> None:
    module = Toy(optimizers=built(make))
    with pytest.raises(error) as caught:
        fit(module)
    for word in ("Toy.configure_optimizers", *words):
        assert word in str(caught.value)
    assert module.seen == []


@pytest.mark.feature("O-02")
def test_an_unknown_key_far_from_all_others_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"Toy.configure_optimizers.*'xyz'.*not used"):
        fit(Toy(optimizers=lambda m: {"optimizer": sgd(m), "xyz": 1}))


@pytest.mark.feature("O-02")
def test_a_one_cycle_scheduler_per_epoch_is_a_warning() -> None:
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    with pytest.warns(UserWarning, match="OneCycleLR.*'interval': 'step'"):
        parse_optimizers(([optimizer], [scheduler]), "Toy", own_scheduler_step=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = {"scheduler": scheduler, "interval": "step"}
        parse_optimizers({"optimizer": optimizer, "lr_scheduler": config}, "Toy", own_scheduler_step=False)


# --- schedulers ----------------------------------------------------------------------------------------------------


class Rates(Toy):
    """Keeps the learning rate that each batch was trained with."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = config
        self.rates: list[float] = []

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=1.0)
        # The rate is the number of calls, exactly.
        scheduler = LambdaLR(optimizer, lambda calls: 2.0**-calls)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **self.config}}

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return 0.0 * super().training_step(batch, batch_idx)

    @property
    def calls(self) -> list[int]:
        """Calls of the scheduler before each batch."""
        return [round(-torch.tensor(rate).log2().item()) for rate in self.rates]


@pytest.mark.feature("O-03")
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning])
@pytest.mark.parametrize(
    ("config", "arguments", "calls"),
    [
        ({"interval": "epoch"}, {}, [0, 0, 0, 1, 1, 1]),
        ({"interval": "step"}, {}, [0, 1, 2, 3, 4, 5]),
        ({"interval": "step", "frequency": 2}, {"limit_train_batches": 2}, [0, 0, 1, 1]),
        ({"interval": "epoch", "frequency": 2}, {"max_epochs": 3}, [0, 0, 0, 0, 0, 0, 1, 1, 1]),
        ({"interval": "step"}, {"accumulate_grad_batches": 2}, [0, 0, 1, 2, 2, 3]),
        ({"interval": "epoch"}, {"accumulate_grad_batches": 2}, [0, 0, 0, 1, 1, 1]),
    ],
)
def test_when_a_scheduler_steps(policy: Policy, config: Any, arguments: Any, calls: list[int]) -> None:
    module = Rates(**config)
    fit(module, loader(6), policy=policy, **{"max_epochs": 2, **arguments})
    assert module.calls == calls


@pytest.mark.feature("O-03")
@pytest.mark.parametrize("data", [loader, stream])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_the_rate_after_n_updates(data: Any, window: int) -> None:
    module = Rates(interval="step")
    trainer = fit(module, data(10), max_epochs=2, accumulate_grad_batches=window)
    per_epoch = -(-5 // window)
    assert trainer.global_step == 2 * per_epoch
    assert trainer.optimizers[0].param_groups[0]["lr"] == 2.0 ** -(2 * per_epoch)


@pytest.mark.feature("O-03")
def test_a_skipped_update_does_not_move_the_scheduler() -> None:
    class Skipping(Rates):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

    module = Skipping(interval="step")
    trainer = fit(module, loader(8))
    assert module.calls == [0, 1, 1, 2]
    assert trainer.global_step == 3


class Plateau(Toy):
    """A plateau scheduler that cuts the rate to a tenth at once when the value is not better."""

    def __init__(self, monitor: str = "value", values: tuple[float, ...] = (3, 2, 2, 1), **config: Any) -> None:
        super().__init__()
        self.config = {"monitor": monitor, **config}
        self.values = values
        self.rates: list[float] = []

    def on_train_epoch_start(self) -> None:
        self.rates.append(round(self.trainer.optimizers[0].param_groups[0]["lr"], 6))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("value", float(self.values[self.current_epoch]))

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=0.1)
        scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **self.config}}


@pytest.mark.feature("O-03")
def test_a_plateau_scheduler_gets_its_value_after_validation() -> None:
    module = Plateau()
    fit(module, loader(4), loader(2), max_epochs=4)
    assert module.rates == [0.1, 0.1, 0.1, 0.01]


@pytest.mark.feature("O-03")
def test_the_monitor_may_stand_beside_the_scheduler() -> None:
    class Beside(Plateau):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), lr=0.1)
            scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
            return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "value"}

    module = Beside()
    fit(module, loader(4), loader(2), max_epochs=4)
    assert module.rates == [0.1, 0.1, 0.1, 0.01]


@pytest.mark.feature("O-03")
def test_a_value_that_was_not_logged_lists_what_was() -> None:
    with pytest.raises(MisconfigurationException) as caught:
        fit(Plateau("val_acc"), loader(4), loader(2))
    for word in ("ReduceLROnPlateau", "'val_acc'", "Logged so far: ['value']", "self.log('val_acc'"):
        assert word in str(caught.value)


@pytest.mark.feature("O-03")
def test_strict_false_makes_it_a_warning() -> None:
    module = Plateau("val_acc", strict=False)
    with pytest.warns(UserWarning, match="'val_acc', which was not logged"):
        fit(module, loader(4), loader(2), max_epochs=2)
    assert module.rates == [0.1, 0.1]


@pytest.mark.feature("O-03")
def test_an_override_of_lr_scheduler_step_takes_any_scheduler() -> None:
    class Counter:
        """No scheduler of torch's."""

        def __init__(self) -> None:
            self.calls = 0

    counter = Counter()

    class Own(Toy):
        def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
            scheduler.calls += 1

        def configure_optimizers(self) -> Any:
            return {"optimizer": sgd(self), "lr_scheduler": {"scheduler": counter, "interval": "step"}}

    fit(Own())
    assert counter.calls == 6
    with pytest.raises(ArgumentTypeError, match="override `lr_scheduler_step`"):
        fit(Toy(optimizers=lambda m: {"optimizer": sgd(m), "lr_scheduler": counter}))


@pytest.mark.feature("O-03", "O-04")
def test_in_manual_optimization_schedulers_are_left_to_the_module() -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> None:
        optimizer = module.optimizers()
        optimizer.zero_grad()
        module.manual_backward(module.loss(batch))
        optimizer.step()
        if module.trainer.is_last_batch:
            module.lr_schedulers().step()

    def both(module: Any) -> Any:
        optimizer = sgd(module)
        return [optimizer], [{"scheduler": halving(optimizer), "interval": "step"}]

    trainer = fit(Manual(step, both), max_epochs=2)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.025


@pytest.mark.feature("T-05", "O-03")
def test_estimated_stepping_batches_serves_a_scheduler() -> None:
    found = []

    def configure(module: Any) -> Any:
        found.append(module.trainer.estimated_stepping_batches)
        optimizer = sgd(module)
        scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=int(found[-1]))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    trainer = fit(Toy(optimizers=configure), loader(10), max_epochs=3, accumulate_grad_batches=2)
    assert found == [9]
    assert trainer.global_step == 9
    fit(Toy(optimizers=configure), loader(10), max_epochs=3, max_steps=4)
    fit(Toy(optimizers=configure), stream(10), max_epochs=-1, max_steps=3)
    assert found == [9, 4, 3]


@pytest.mark.feature("T-05")
def test_a_scheduler_built_from_missing_max_epochs_names_the_right_property() -> None:
    def configure(module: Any) -> Any:
        optimizer = sgd(module)
        return [optimizer], [OneCycleLR(optimizer, max_lr=0.1, total_steps=module.trainer.max_epochs)]

    trainer = quiet(max_epochs=None, max_steps=3)
    with pytest.raises(ValueError, match="total_steps") as caught:
        trainer.fit(Toy(optimizers=configure), loader())
    assert any("estimated_stepping_batches" in note for note in caught.value.__notes__)


# --- plateau schedulers in epochs without validation ----------------------------------------------------------------


class Waiting(Toy):
    """A plateau scheduler that keeps what it gets; the watched value comes from validation or from training."""

    def __init__(self, monitor: str, interval: str = "epoch") -> None:
        super().__init__()
        self.monitor, self.interval = monitor, interval
        self.got: list[tuple[int, float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("late", float(self.current_epoch))

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        self.got.append((self.current_epoch, float(metric)))
        super().lr_scheduler_step(scheduler, metric)

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=0.1)
        scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=0.9)
        config = {"scheduler": scheduler, "monitor": self.monitor, "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": config}


@pytest.mark.feature("O-03")
@pytest.mark.parametrize(("monitor", "epochs"), [("val_loss", [1, 3]), ("loss", [0, 1, 2, 3]), ("late", [0, 1, 2, 3])])
def test_a_plateau_scheduler_waits_for_validation_only(monitor: str, epochs: list[int]) -> None:
    module = Waiting(monitor)
    fit(module, loader(4), loader(2), max_epochs=4, check_val_every_n_epoch=2)
    assert [epoch for epoch, _ in module.got] == epochs


@pytest.mark.feature("O-03")
def test_a_value_that_no_validation_logs_is_an_error_in_the_epoch_that_has_one() -> None:
    module = Waiting("val_los")
    with pytest.raises(MisconfigurationException, match="watches 'val_los', which was not logged"):
        fit(module, loader(4), loader(2), max_epochs=4, check_val_every_n_epoch=2)
    assert module.got == []


@pytest.mark.feature("O-03", "C-02")
@pytest.mark.parametrize(
    ("monitor", "hook"),
    [
        (monitor, hook)
        for monitor in ("val_loss", "loss", "late")
        for hook in ("on_train_batch_end", "on_validation_end", "on_train_epoch_end")
        if (monitor, hook) != ("late", "on_train_epoch_end")  # there the module logs after the callback saved
    ],
)
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_plateau_schedulers_resume_exactly(monitor: str, hook: str, epoch: int, tmp_path: Path) -> None:
    path = tmp_path / "here.ckpt"

    class Save(Callback):
        def save(self, trainer: Any, *args: Any) -> None:
            if trainer.current_epoch == epoch:
                trainer.save_checkpoint(path)

    callback = Save()
    setattr(callback, hook, callback.save)
    arguments: dict[str, Any] = {"max_epochs": 4, "check_val_every_n_epoch": 2}
    whole, resumed = Waiting(monitor), Waiting(monitor)
    fit(whole, loader(4), loader(2), callbacks=callback, **arguments)
    if not path.exists():
        assert hook == "on_validation_end" and epoch in (0, 2)
        return
    quiet(**arguments).fit(resumed, loader(4), loader(2), ckpt_path=path)
    assert torch.equal(weights(resumed), weights(whole))
    assert resumed.got == whole.got[-len(resumed.got) :]

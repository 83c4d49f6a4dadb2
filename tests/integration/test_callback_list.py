"""Callbacks of a Trainer: order, doubles, foreign objects, state, and those that a module brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import EarlyStopping, LambdaCallback, LearningRateMonitor, ModelCheckpoint
from fulmen.errors import ArgumentTypeError, LoggingError, MisconfigurationException
from tests.integration.toys import Toy, fit, loader, quiet

HOOKS = [
    "setup",
    "on_fit_start",
    "on_train_start",
    "on_train_batch_start",
    "on_train_epoch_end",
    "on_fit_end",
    "teardown",
]


class Noting(L.Callback):
    """Writes its name into a list in some hooks."""

    def __init__(self, name: str, calls: list[Any]) -> None:
        self.name = name
        self.calls = calls

    @property
    def state_key(self) -> str:
        return self.name


for _hook in HOOKS:

    def _note(self: Noting, *args: Any, _hook: str = _hook) -> None:
        self.calls.append((_hook, self.name))

    setattr(Noting, _hook, _note)


class NotingModule(Toy):
    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.calls = calls
        for hook in HOOKS:
            setattr(self, hook, lambda *args, _hook=hook: self.calls.append((_hook, "module")))


@pytest.mark.feature("K-01", "M-01")
def test_callbacks_run_in_their_order_and_before_the_module() -> None:
    calls: list[Any] = []
    fit(NotingModule(calls), loader(2), callbacks=[Noting("a", calls), Noting("b", calls)])
    assert calls == [(hook, who) for hook in HOOKS for who in ("a", "b", "module")]


@pytest.mark.feature("K-01")
def test_checkpoint_callbacks_come_last() -> None:
    first, second = ModelCheckpoint(filename="a", monitor="x"), ModelCheckpoint(filename="b", monitor="y")
    middle = LambdaCallback()
    trainer = quiet(callbacks=[first, middle, second], enable_checkpointing=True)
    assert trainer.callbacks == [middle, first, second]


@pytest.mark.feature("K-01")
def test_deciding_callbacks_run_after_the_modules_hook() -> None:
    order: list[str] = []

    class Stopping(EarlyStopping):
        def on_validation_end(self, *args: Any) -> None:
            order.append("early stopping")
            super().on_validation_end(*args)

    class Module(Toy):
        def on_validation_end(self) -> None:
            order.append("module")

    fit(Module(), loader(2), loader(2), callbacks=Stopping("val_loss"))
    assert order == ["module", "early stopping"]


class Stateful(L.Callback):
    """A callback with a state."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.loaded: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loaded.append(state_dict)


class Told(Stateful):
    """Instances are told apart by their value."""

    @property
    def state_key(self) -> str:
        return self._generate_state_key(value=self.value)


@pytest.mark.feature("K-01")
def test_doubles_are_refused() -> None:
    one = L.Callback()
    with pytest.raises(MisconfigurationException, match=r"same state key 'Stateful'.*override `state_key`"):
        quiet(callbacks=[Stateful(), Stateful()])
    with pytest.raises(MisconfigurationException, match="same state key 'Callback'"):
        quiet(callbacks=[one, one])
    assert len(quiet(callbacks=[Told(1), Told(2)]).callbacks) == 2
    with pytest.raises(MisconfigurationException, match="same state key"):
        quiet(callbacks=[Told(1), Told(1)])
    assert len(quiet(callbacks=[LearningRateMonitor(), L.Callback(), L.Callback()], logger=True).callbacks) == 3


@pytest.mark.feature("K-01")
def test_a_double_that_comes_in_a_hook_is_an_error_when_it_matters(tmp_path: Path) -> None:
    class Adding(Toy):
        def on_train_start(self) -> None:
            self.trainer.callbacks.append(Stateful(2))

    trainer = fit(Adding(), loader(2), callbacks=Stateful(1))
    with pytest.raises(MisconfigurationException, match="same state key 'Stateful'"):
        trainer.save_checkpoint(tmp_path / "a.ckpt")


@pytest.mark.feature("K-01")
def test_state_is_saved_and_comes_back(tmp_path: Path) -> None:
    trainer = fit(Toy(), loader(2), callbacks=[Told(1), Told(2), L.Callback()])
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    stored = torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"]
    assert stored == {"Told{'value': 1}": {"value": 1}, "Told{'value': 2}": {"value": 2}}
    one, two = Told(1), Told(2)
    quiet(max_epochs=2, callbacks=[two, one]).fit(Toy(), loader(2), ckpt_path=tmp_path / "a.ckpt")
    assert (one.loaded, two.loaded) == ([{"value": 1}], [{"value": 2}])
    with pytest.warns(UserWarning, match=r"states of callbacks that this Trainer does not have.*'value': 2"):
        quiet(max_epochs=2, callbacks=[Told(1)]).fit(Toy(), loader(2), ckpt_path=tmp_path / "a.ckpt")


# --- foreign objects -------------------------------------------------------------------------------------------------


class Foreign:
    """Has hooks, a state and no base class."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.calls.append("on_train_start")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.calls.append("on_exception")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.calls.append("on_validation_end")

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.calls.append("setup")

    def state_dict(self) -> dict[str, Any]:
        return {"a": 1}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.calls.append("load")


@pytest.mark.feature("K-01")
def test_an_object_with_hooks_is_adapted_with_one_warning(tmp_path: Path) -> None:
    foreign = Foreign()
    with pytest.warns(UserWarning, match=r"Foreign has the hooks .*'on_train_start'.*does not derive") as caught:
        trainer = quiet(callbacks=foreign)
    assert len(caught) == 1
    trainer.fit(Toy(), loader(2), loader(2))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    quiet(callbacks=foreign, max_epochs=2).fit(Toy(), loader(2), ckpt_path=tmp_path / "a.ckpt")
    assert foreign.calls == ["setup", "on_train_start", "on_validation_end", "setup", "on_train_start"]
    with pytest.raises(ValueError, match="mine"):
        fit(Toy(raising), callbacks=foreign)
    assert foreign.calls[-1] == "on_exception"
    assert torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"] == {}


def raising(*args: Any) -> None:
    raise ValueError("mine")


@pytest.mark.feature("K-01")
@pytest.mark.parametrize("what", [object(), 3, "x", print, Foreign, L.Callback])
def test_an_object_without_hooks_is_refused(what: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is no callback; derive its class from `fulmen.Callback`"):
        quiet(callbacks=what)


@pytest.mark.feature("K-01")
def test_a_foreign_object_that_comes_in_a_hook() -> None:
    foreign = Foreign()

    class Adding(Toy):
        def on_fit_start(self) -> None:
            self.trainer.callbacks.append(foreign)
            self.trainer.callbacks.append(object())

    fit(Adding(), loader(2), loader(2))
    assert foreign.calls == ["on_train_start", "on_validation_end"]


# --- callbacks of a module -------------------------------------------------------------------------------------------


@pytest.mark.feature("K-01", "M-01")
def test_callbacks_of_the_module_replace_those_of_the_same_type() -> None:
    mine, theirs = EarlyStopping("val_loss"), EarlyStopping("other", strict=False)
    extra = L.Callback()

    class Bringing(Toy):
        def configure_callbacks(self) -> Any:
            return [mine, extra]

    trainer = fit(Bringing(), loader(2), loader(2), callbacks=[theirs, LambdaCallback()])
    assert theirs not in trainer.callbacks
    assert [type(c).__name__ for c in trainer.callbacks] == ["LambdaCallback", "EarlyStopping", "Callback"]
    trainer.fit_loop.max_epochs = 2
    trainer.fit(Bringing(), loader(2), loader(2))
    assert trainer.callbacks.count(mine) == 1


@pytest.mark.feature("K-01", "M-01")
@pytest.mark.parametrize(("value", "count"), [([], 0), (None, 0), (L.Callback(), 1), ((L.Callback(),), 1)])
def test_forms_of_configure_callbacks(value: Any, count: int) -> None:
    class Bringing(Toy):
        def configure_callbacks(self) -> Any:
            return value

    assert len(fit(Bringing(), loader(2)).callbacks) == count


@pytest.mark.feature("K-01", "M-01")
def test_doubles_among_the_modules_callbacks_are_refused() -> None:
    class Bringing(Toy):
        def configure_callbacks(self) -> Any:
            return [Stateful(1), Stateful(2)]

    module = Bringing()
    with pytest.raises(MisconfigurationException, match="same state key 'Stateful'"):
        fit(module, loader(2))
    assert module.seen == []


@pytest.mark.feature("K-01", "M-01")
def test_what_is_no_callback_is_named_with_the_module() -> None:
    class Bringing(Toy):
        def configure_callbacks(self) -> Any:
            return [3]

    with pytest.raises(ArgumentTypeError, match=r"Bringing.configure_callbacks: 3 is no callback"):
        fit(Bringing(), loader(2))


# --- logging, and without a Trainer ----------------------------------------------------------------------------------


@pytest.mark.feature("K-01")
def test_callbacks_log() -> None:
    class Logging(L.Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            self.log("a", 1.0, on_epoch=True)

        def on_validation_epoch_end(self, *args: Any) -> None:
            self.log_dict({"b": 2.0, "c": 3})

    trainer = fit(Toy(), loader(2), loader(2), callbacks=Logging())
    assert {key: float(value) for key, value in trainer.callback_metrics.items() if key in "abc"} == {
        "a": 1.0,
        "b": 2.0,
        "c": 3.0,
    }
    with pytest.raises(LoggingError, match=r"Logging.log\('a', ...\) was called outside of a run"):
        Logging().on_train_batch_end()


@pytest.mark.feature("K-01")
def test_a_callback_is_testable_without_a_trainer() -> None:
    callback = Told(3)
    for name in dir(L.Callback):
        if name.startswith("on_"):
            count = getattr(L.Callback, name).__code__.co_argcount - 1
            assert getattr(callback, name)(*[None] * count) is None
    assert callback.state_key == "Told{'value': 3}"
    assert L.Callback().state_dict() == {}
    assert L.Callback().state_key == "Callback"

"""Ctrl-C and SIGTERM: the running batch is finished, everything is told, the caller gets the exception."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import ModelCheckpoint
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import SIGTERMException
from tests.integration.toys import Toy, fit, loader, quiet, weights


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handlers before a test are those after it."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)
    assert after == before


class Signalled(Toy):
    """Sends itself signals in the middle of a batch."""

    def __init__(self, number: int = signal.SIGINT, *, at: int = 2, times: int = 1) -> None:
        super().__init__()
        self.number, self.at, self.times = number, at, times
        self.finished: list[int] = []
        self.calls: list[str] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == self.at:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.finished.append(batch_idx)

    def teardown(self, stage: str) -> None:
        self.calls.append("teardown")


class Watch(L.Callback):
    def __init__(self) -> None:
        self.errors: list[type] = []

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.errors.append(type(exception))


@pytest.mark.feature("T-07")
def test_ctrl_c_finishes_the_batch_and_reaches_the_caller() -> None:
    module, watch = Signalled(), Watch()
    trainer = quiet(callbacks=watch)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(module, loader())
    assert module.finished == [0, 1, 2]
    assert trainer.global_step == 3
    assert trainer.interrupted
    assert watch.errors == [KeyboardInterrupt]
    assert module.calls == ["teardown"]
    assert trainer.session is None


@pytest.mark.feature("T-07")
def test_ctrl_c_twice_stops_at_once() -> None:
    module, watch = Signalled(times=2), Watch()
    with pytest.raises(KeyboardInterrupt):
        fit(module, callbacks=watch)
    assert module.finished == [0, 1]
    assert module.seen == [0, 1]
    assert watch.errors == [KeyboardInterrupt]
    assert module.calls == ["teardown"]


@pytest.mark.feature("T-07")
def test_after_an_interrupt_the_same_trainer_goes_on() -> None:
    module = Signalled()
    trainer = quiet(max_epochs=2)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(module, loader())
    module.at = -1
    trainer.fit(module, loader())
    assert trainer.current_epoch == 2
    assert not trainer.interrupted


@pytest.mark.feature("T-07")
@pytest.mark.parametrize("call", ["validate", "test", "predict"])
def test_ctrl_c_in_evaluation(call: str) -> None:
    seen: list[int] = []

    def step(self: Any, batch: Any, batch_idx: int) -> None:
        seen.append(batch_idx)
        if batch_idx == 1:
            os.kill(os.getpid(), signal.SIGINT)

    names = {"validate": "validation_step", "test": "test_step", "predict": "predict_step"}
    module = type("Stopped", (Toy,), {names[call]: step})()
    with pytest.raises(KeyboardInterrupt):
        getattr(quiet(), call)(module, loader())
    assert seen == [0, 1]


@pytest.mark.feature("T-07")
def test_ctrl_c_in_validation_inside_of_fit() -> None:
    class Stopped(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    module = Stopped()
    module.net.eval()
    module.net.train()
    with pytest.raises(KeyboardInterrupt):
        fit(module, loader(), loader())
    assert module.net.training


@pytest.mark.feature("T-07", "C-01")
def test_an_active_checkpoint_callback_writes_last(tmp_path: Path) -> None:
    module = Signalled()
    callback = ModelCheckpoint(dirpath=tmp_path / "checkpoints")
    trainer = quiet(enable_checkpointing=True, callbacks=callback, default_root_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(module, loader())
    files = [path.name for path in (tmp_path / "checkpoints").glob("*.ckpt")]
    assert files == ["last.ckpt"]
    checkpoint = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == 3
    assert torch.equal(checkpoint["state_dict"]["net.weight"], module.net.weight)
    resumed = Signalled(at=-1)
    again = quiet(enable_checkpointing=True, callbacks=ModelCheckpoint(dirpath=tmp_path / "checkpoints"))
    again.fit(resumed, loader(), ckpt_path="last")
    straight = Toy()
    fit(straight)
    assert torch.equal(weights(resumed), weights(straight))


@pytest.mark.feature("T-07")
def test_without_a_checkpoint_callback_no_file_appears(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(Signalled(), default_root_dir=tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.feature("T-07")
def test_under_lightnings_policy_the_process_ends(tmp_path: Path) -> None:
    module, watch = Signalled(), Watch()
    callback = ModelCheckpoint(dirpath=tmp_path / "checkpoints")
    trainer = quiet(callbacks=[watch, callback], enable_checkpointing=True, policy=Policy.lightning)
    with pytest.raises(SystemExit) as caught:
        trainer.fit(module, loader())
    assert caught.value.code == 1
    assert watch.errors == [KeyboardInterrupt]
    assert module.finished == [0, 1]  # at once
    assert list(tmp_path.rglob("*.ckpt")) == []


@pytest.mark.feature("T-07")
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning])
def test_sigterm_leaves_at_the_batch_boundary(policy: Policy) -> None:
    module, watch = Signalled(signal.SIGTERM), Watch()
    trainer = quiet(callbacks=watch, policy=policy)
    with pytest.raises(SIGTERMException) as caught:
        trainer.fit(module, loader())
    assert caught.value.code == 128 + signal.SIGTERM
    assert trainer.received_sigterm
    assert module.finished == [0, 1, 2]
    assert watch.errors == [SIGTERMException]


@pytest.mark.feature("T-07", "T-05")
def test_received_sigterm_is_of_the_last_run() -> None:
    module = Signalled(signal.SIGTERM)
    trainer = quiet(max_epochs=2)
    assert not trainer.received_sigterm
    with pytest.raises(SIGTERMException):
        trainer.fit(module, loader())
    module.at = -1
    trainer.fit(module, loader())
    assert not trainer.received_sigterm


@pytest.mark.feature("T-07")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_handlers_of_others_are_left_alone(number: int) -> None:
    got: list[int] = []
    signal.signal(number, lambda *args: got.append(1))
    before = signal.getsignal(number)
    try:
        module = Signalled(number)
        fit(module)
        assert got == [1]
        assert len(module.finished) == 6
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def own_handler(*args: Any) -> None: ...


class Owner:
    def handle(self, *args: Any) -> None: ...


@pytest.mark.feature("T-07")
@pytest.mark.parametrize("own", [own_handler, Owner().handle])
def test_a_handler_that_is_set_during_the_run_stays(own: Any) -> None:
    class Setting(Toy):
        def on_train_start(self) -> None:
            signal.signal(signal.SIGTERM, own)

    try:
        fit(Setting())
        assert signal.getsignal(signal.SIGTERM) == own
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.feature("T-07")
def test_handlers_are_put_back_after_every_end() -> None:
    def step(*args: Any) -> None:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fit(Toy(step))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.feature("T-07")
def test_in_another_thread_handlers_are_not_touched() -> None:
    found: list[Any] = []

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        found.append(signal.getsignal(signal.SIGINT))
        return module.loss(batch)

    thread = threading.Thread(target=fit, args=(Toy(step), loader(2)))
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


@pytest.mark.feature("T-07")
def test_nested_runs_share_the_handlers() -> None:
    class Outer(Toy):
        def on_train_epoch_end(self) -> None:
            inner = Signalled()
            with pytest.raises(KeyboardInterrupt):
                fit(inner)
            assert inner.finished == [0, 1, 2]

    trainer = fit(Outer(), max_epochs=1)
    assert trainer.current_epoch == 1

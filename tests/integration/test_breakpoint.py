"""`breakpoint()` in any hook: a real debugger under a real terminal."""

from __future__ import annotations

import pdb
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fulmen.callbacks import PlainProgress, RichProgressBar
from fulmen.callbacks.progress import plain_progress, timed_progress
from tests.integration.terminal import Terminal, plain
from tests.integration.toys import Toy, fit, loader, quiet
from tests.unit.callbacks.fakes import Clock, make_trainer

pytestmark = pytest.mark.feature("T-17")
SCRIPT = str(Path(__file__).parent / "scripts" / "shown_run.py")
SHOW, HIDE = "\x1b[?25h", "\x1b[?25l"  # of the cursor: rich hides it while a bar is live


@pytest.mark.parametrize(("bar", "how"), [("rich", "breakpoint"), ("rich", "set_trace"), ("tqdm", "breakpoint")])
def test_the_bar_makes_room_for_the_prompt_and_comes_back(bar: str, how: str) -> None:
    hooks = ["setup", "on_train_epoch_start", "training_step3", "validation_step", "on_train_end", "on_fit_end"]
    with Terminal(SCRIPT, f"bar={bar}", f"how={how}", "break=" + ",".join(hooks), "epochs=1") as terminal:
        for hook in ["setup", "validation_step", *hooks[1:3], *hooks[4:]]:  # the sanity check validates first
            before = terminal.expect(r"\(Pdb\) ")
            assert "stop_here()" in plain(before)  # the place of the call, not one of ours
            assert re.search(r"(^|[\r\n])> ", plain(before))  # what the debugger says does not follow a bar
            if bar == "rich":
                assert before.rfind(HIDE) <= before.rfind(SHOW)
            last = plain(before).replace("\r", "\n").splitlines()[-1]
            assert last == "(Pdb) "  # on a line of its own
            terminal.send("p answer, where\n")
            assert f"(42, '{hook}')" in terminal.expect(r"\(Pdb\) ")
            terminal.send("continue\n")
        rest = terminal.finish()
        text = plain(terminal.raw.decode())
    assert "DONE" in rest
    after = text.split("training_step3")[-1]
    assert "10/10" in after and "Epoch 0" in after  # the bar came back
    if bar == "rich":
        assert terminal.raw.decode().rfind(HIDE) < terminal.raw.decode().rfind(SHOW)


def test_stepping_and_ctrl_c_at_the_prompt() -> None:
    with Terminal(SCRIPT, "bar=rich", "break=training_step3", "epochs=1") as terminal:
        terminal.expect(r"\(Pdb\) ")
        for _ in range(4):  # out of the step, through the engine's lines
            terminal.send("next\n")
            terminal.expect(r"\(Pdb\) ")
        terminal.send("\x03")
        assert "KeyboardInterrupt" in terminal.expect(r"\(Pdb\) ")
        terminal.send("continue\n")
        assert "DONE" in terminal.finish()
        assert "finishing this batch" not in terminal.raw.decode()


def test_prompts_in_evaluation() -> None:
    stops = "break=validation_step,test_step,predict_step"
    with Terminal(SCRIPT, "bar=rich", "calls=validate,test,predict", stops) as terminal:
        for title in ("Validation", "Testing", "Predicting"):
            before = plain(terminal.expect(r"\(Pdb\) "))
            assert "10/10" in before or title == "Validation"  # the bar of the call before came back
            assert title in before
            terminal.send("continue\n")
        rest = plain(terminal.finish())
    assert "10/10" in rest and "DONE" in rest


@pytest.mark.parametrize(("name", "called"), [("tests.integration.scripts.shown_run.own_debugger", True), ("0", False)])
def test_pythonbreakpoint_is_honoured(name: str, called: bool) -> None:
    root = str(Path(__file__).parents[2])
    environment = {"PYTHONBREAKPOINT": name, "PYTHONPATH": root}
    with Terminal(SCRIPT, "bar=rich", "break=training_step3", "epochs=1", environment=environment) as terminal:
        rest = plain(terminal.finish())
    assert ("OWN DEBUGGER in stop_here () {}" in rest) is called
    assert "10/10" in rest.split("OWN DEBUGGER")[-1]


# ------------------------------------------------------------------------------------------------- in this process
def test_a_hook_of_the_users_gets_the_arguments_and_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def own(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs, sys._getframe(1).f_code.co_name))
        return "answer"

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 0:
            calls.append(breakpoint(1, two=2))
        return module.loss(batch)

    monkeypatch.setattr(sys, "breakpointhook", own)
    fit(Toy(step))
    assert calls == [((1,), {"two": 2}, "step"), "answer"]
    assert sys.breakpointhook is own
    with pytest.raises(ZeroDivisionError):
        fit(Toy(lambda *_: 1 / 0))
    assert sys.breakpointhook is own


def test_a_hook_that_is_set_during_the_run_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "breakpointhook", sys.breakpointhook)  # put back after the test

    def own() -> None: ...

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        sys.breakpointhook = own
        return module.loss(batch)

    fit(Toy(step))
    assert sys.breakpointhook is own


def test_runs_that_end_in_another_order_leave_nothing_behind() -> None:
    hook, prompt = sys.breakpointhook, pdb.Pdb.interaction
    first = quiet().predict(Toy(), loader(), stream=True)
    second = quiet().predict(Toy(), loader(), stream=True)
    next(first), next(second)
    assert sys.breakpointhook is not hook and pdb.Pdb.interaction is not prompt
    first.close()
    assert sys.breakpointhook is not hook
    second.close()
    assert sys.breakpointhook is hook and pdb.Pdb.interaction is prompt


def test_time_at_the_prompt_is_no_training_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    for module in (timed_progress, plain_progress):
        monkeypatch.setattr(module, "time", clock)
    bar, trainer = PlainProgress(), make_trainer(num_training_batches=100, max_epochs=1)
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    for i in range(20):
        clock.now += 1
        if i == 4:
            bar.pause()
            clock.now += 1000
            bar.resume()
        bar.on_train_batch_end(trainer, None, {}, None, i)
    lines = capsys.readouterr().out.splitlines()
    assert "1.00 it/s | ETA 0:01:35 | run 5% | run ETA 0:01:35" in lines[0]


def test_a_bar_that_is_off_has_nothing_to_hide() -> None:
    bar = RichProgressBar(refresh_rate=0)
    bar.pause()
    bar.resume()
    assert bar.progress is None

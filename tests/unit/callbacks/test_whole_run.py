"""The bar over the whole run: what it counts, what it says right after a resume, and how each form shows it."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from fulmen.callbacks import NotebookProgress, PlainProgress, RichProgressBar, Timer, TQDMProgressBar
from fulmen.callbacks import timer as timer_module
from fulmen.callbacks.progress import notebook_progress, plain_progress, timed_progress, tqdm_progress
from fulmen.callbacks.progress.whole_run import RunState, run_length, run_state, sooner
from tests.unit.callbacks.fakes import Clock, evaluate, fit, make_trainer

pytestmark = pytest.mark.feature("T-12")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (timed_progress, plain_progress, tqdm_progress, notebook_progress, timer_module):
        monkeypatch.setattr(module, "time", clock)
    return clock


def rich_bar(clock: Clock | None = None, trainer: Any = None) -> tuple[RichProgressBar, io.StringIO]:
    """A bar that draws into a text; with a clock, rich reads it too."""
    out = io.StringIO()
    console = {"file": out, "force_terminal": True, "width": 160, "color_system": None}
    bar = RichProgressBar(console_kwargs=console, total_bar=True)
    if clock is not None:
        bar.setup(trainer, None, "fit")  # type: ignore[arg-type]  # it takes no notice of the module
        bar._init_progress(trainer)
        assert bar.progress is not None
        bar.progress.get_time = clock.monotonic  # type: ignore[method-assign]  # the test's clock
    return bar, out


@pytest.mark.parametrize(
    ("steps", "window", "per_epoch", "batches"),
    [
        (6, 4, 10, 20),  # an epoch has windows of 4, 4 and 2
        (7, 4, 10, 24),
        (6, 4, 8, 24),
        (3, 4, math.inf, 12),
        (5, 1, 10, 5),
        (2, 20, 10, 20),  # a window is never longer than its epoch
    ],
)
def test_batches_up_to_max_steps(steps: int, window: int, per_epoch: float, batches: int) -> None:
    trainer = make_trainer(
        max_epochs=-1, max_steps=steps, accumulate_grad_batches=window, num_training_batches=per_epoch
    )
    assert run_length(trainer) == batches


def timer(clock: Clock, seconds: float, spent: float) -> Timer:
    callback = Timer({"seconds": int(seconds)})
    callback.on_train_start(None, None)  # type: ignore[arg-type]  # it reads neither
    clock.now += spent
    return callback


@pytest.mark.parametrize(
    ("changes", "limit", "expected"),
    [
        ({}, None, RunState(14, 20, "batches")),
        ({}, (100, 30), RunState(14, 20, "batches", 70)),
        ({"max_epochs": -1}, (100, 30), RunState(30, 100, "seconds", 70)),
        ({"max_epochs": -1}, None, None),
        ({"max_epochs": None}, None, None),
        ({"max_epochs": 0}, None, RunState(14, 0, "batches")),
        ({"num_training_batches": math.inf}, (100, 30), RunState(30, 100, "seconds", 70)),
        ({"num_training_batches": math.inf}, None, RunState(1.5, 2, "epochs")),
    ],
)
def test_what_is_counted(
    changes: dict[str, Any], limit: tuple[int, int] | None, expected: RunState | None, clock: Clock
) -> None:
    callbacks = [timer(clock, *limit)] if limit else []
    trainer = make_trainer(current_epoch=1, callbacks=[*callbacks, Timer()], **changes)
    assert run_state(trainer, 4, per_epoch=8) == expected


def test_the_first_epoch_of_unknown_length_counts_when_it_is_over() -> None:
    trainer = make_trainer(num_training_batches=math.inf)
    assert run_state(trainer, 4) == RunState(0, 2, "epochs")


def test_the_sooner_of_two_limits() -> None:
    assert sooner(None, None) is None
    assert sooner(3.0, None) == sooner(None, 3.0) == sooner(5.0, 3.0) == 3.0


def resume(bar: Any, trainer: Any, clock: Clock, batches: range) -> None:
    """Train the rest of an epoch, a second per batch."""
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    resume_epoch(bar, trainer, clock, batches)


def resume_epoch(bar: Any, trainer: Any, clock: Clock, batches: range) -> None:
    bar.on_train_epoch_start(trainer, None)
    for i in batches:
        clock.now += 1
        bar.on_train_batch_end(trainer, None, {}, None, i)


def test_rich_after_a_resume_knows_its_own_speed(clock: Clock) -> None:
    trainer = make_trainer(num_training_batches=1000, max_epochs=3, current_epoch=1)
    bar, _ = rich_bar(clock, trainer)
    assert bar.progress is not None
    resume(bar, trainer, clock, range(700, 720))
    run, epoch = bar.progress.tasks
    assert (run.completed, run.total, run.description.strip()) == (1720, 3000, "Run")
    assert (epoch.completed, epoch.total) == (720, 1000)
    assert run.speed == pytest.approx(1.0) and epoch.speed == pytest.approx(1.0)
    assert run.time_remaining == pytest.approx(1280, abs=2)
    bar.teardown(trainer, None, "fit")


def test_rich_reckons_with_the_time_between_epochs(clock: Clock) -> None:
    trainer = make_trainer(num_training_batches=100, max_epochs=10)
    bar, out = rich_bar(clock, trainer)
    bar.on_train_start(trainer, None)  # type: ignore[arg-type]  # it takes no notice of the module
    for epoch in range(2):
        trainer.current_epoch = epoch
        resume_epoch(bar, trainer, clock, range(100))
        clock.now += 300  # validation
        bar.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]  # the same
    bar.teardown(trainer, None, "fit")  # type: ignore[arg-type]  # the same
    last = [line for line in out.getvalue().splitlines() if "Run" in line and "200/1000" in line][-1]
    assert "0:13:20 • 0:53:20" in last  # 800 seconds for 200 batches, so 3200 for 800


def test_tqdm_after_a_resume_knows_its_own_speed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = TQDMProgressBar(total_bar=True)
    trainer = make_trainer(num_training_batches=1000, max_epochs=3, current_epoch=1)
    resume(bar, trainer, clock, range(700, 720))
    run = bar.run_progress_bar
    assert (run.n, run.initial, run.total, bar.train_progress_bar.n) == (1720, 1700, 3000, 720)
    bar.teardown(trainer, None, "fit")
    with pytest.raises(TypeError, match="no bar for 'run'"):
        _ = bar.run_progress_bar


def test_tqdm_shows_the_whole_run_below_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    made: list[int] = []

    class Own(TQDMProgressBar):
        def init_run_tqdm(self) -> Any:
            made.append(1)
            bar = super().init_run_tqdm()
            assert abs(bar.pos) == 2
            return bar

    fit(Own(total_bar=True), make_trainer())
    out = capsys.readouterr().out
    assert made == [1]
    assert "Run: 100%" in out.rsplit("Epoch 1", 1)[1] and "20/20" in out
    fit(TQDMProgressBar(), make_trainer())
    assert "Run" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["rich", "tqdm", "plain", "notebook"])
def test_a_limit_in_time_is_shown_in_time(
    kind: str, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Timer({"minutes": 10})
    trainer = make_trainer(num_training_batches=1000, max_epochs=-1, callbacks=[limit])
    rich, out = rich_bar()
    bar: Any = {"rich": rich, "tqdm": TQDMProgressBar(total_bar=True), "plain": PlainProgress()}.get(kind)
    drawn: list[str] = []
    if bar is None:
        bar = NotebookProgress()
        monkeypatch.setattr(bar, "_render", lambda module: drawn.append(bar._rows["run"].html()))
    limit.on_train_start(trainer, None)  # type: ignore[arg-type]  # it reads neither
    resume(bar, trainer, clock, range(60))
    bar.on_train_end(trainer, None)
    bar.teardown(trainer, None, "fit")
    text = capsys.readouterr().out + out.getvalue() + "".join(drawn)
    expected = {
        "rich": "0:01:00/0:10:00",
        "tqdm": "60.0/600.0",
        "plain": "run 8% | run ETA 0:09:10",
        "notebook": "0:01:00/0:10:00",
    }[kind]
    assert expected in text
    if kind in ("rich", "notebook"):
        assert "• 0:09:00" in text


@pytest.mark.parametrize("kind", ["rich", "plain"])
def test_a_limit_in_time_bounds_the_time_left(kind: str, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    limit = Timer({"minutes": 2})
    trainer = make_trainer(num_training_batches=1000, max_epochs=1, callbacks=[limit])
    bar, out = (PlainProgress(), None) if kind == "plain" else rich_bar(clock, trainer)
    limit.on_train_start(trainer, None)  # type: ignore[arg-type]  # it reads neither
    resume(bar, trainer, clock, range(60))
    bar.teardown(trainer, None, "fit")
    text = capsys.readouterr().out + (out.getvalue() if out else "")
    assert ("run 5% | run ETA 0:01:10" if kind == "plain" else "60/1000") in text
    if kind == "rich":
        run = next(line for line in reversed(text.splitlines()) if "Run" in line and "60/1000" in line)
        assert "• 0:01:00" in run


def test_rich_counts_epochs_where_nothing_else_is_known(clock: Clock) -> None:
    trainer = make_trainer(num_training_batches=math.inf, max_epochs=4)
    bar, out = rich_bar(clock, trainer)
    bar.on_train_start(trainer, None)
    for epoch in range(2):
        trainer.current_epoch = epoch
        bar.on_train_epoch_start(trainer, None)
        for i in range(8 if epoch == 0 else 4):
            clock.now += 1
            bar.on_train_batch_end(trainer, None, {}, None, i)
        if epoch == 0:
            bar.on_train_epoch_end(trainer, None)
    assert bar.progress is not None and bar.progress.tasks[0].completed == 1.5
    assert bar.train_progress_bar.total is None  # it pulses, in the second epoch too
    bar.teardown(trainer, None, "fit")
    assert "1/4 epochs" in out.getvalue()


def test_no_end_no_bar(clock: Clock) -> None:
    bar, out = rich_bar()
    resume(bar, make_trainer(max_epochs=-1), clock, range(5))
    assert bar.run_progress_bar_id is None and bar.progress is not None
    bar.teardown(make_trainer(), None, "fit")
    assert "Run" not in out.getvalue()


def test_notebook_after_a_resume_knows_its_own_speed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    bar = NotebookProgress()
    drawn: list[str] = []
    monkeypatch.setattr(
        bar, "_render", lambda module: drawn.append(bar._rows["run"].html() + bar._rows["train"].html())
    )
    trainer = make_trainer(num_training_batches=1000, max_epochs=3, current_epoch=1)
    resume(bar, trainer, clock, range(700, 720))
    assert "1720/3000 0:00:20 • 0:21:20" in drawn[-1].replace("0:00:21", "0:00:20")
    assert "720/1000" in drawn[-1]


# ------------------------------------------------------------------------------------------- the last line of a run
@pytest.mark.feature("T-08")
@pytest.mark.parametrize("kind", ["max_steps", "should_stop", "max_time", "no limit"])
def test_plain_ends_with_a_line_whatever_stops_the_run(
    kind: str, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"max_steps": {"max_steps": 27, "max_epochs": -1}, "no limit": {"max_epochs": -1}}.get(kind, {})
    trainer = make_trainer(**{"max_epochs": 100, **changes})
    if kind == "max_time":
        trainer.callbacks = [timer(clock, 1000, 0)]
    bar, reads = PlainProgress(), 0
    inner = bar.get_metrics

    def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return inner(*args)

    bar.get_metrics = counted  # type: ignore[method-assign]  # counted
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    for epoch in range(3):
        trainer.current_epoch = epoch
        bar.on_train_epoch_start(trainer, None)
        for i in range(7 if epoch == 2 else 10):
            clock.now += 0.001
            bar.on_train_batch_end(trainer, None, {}, None, i)
        trainer.should_stop = kind == "should_stop" and epoch == 2
        bar.on_train_epoch_end(trainer, None)
    trainer.current_epoch += 1  # as the engine does before `on_train_end`
    bar.on_train_end(trainer, None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and reads == 1
    assert lines[0].startswith("Epoch 2") and "| batch 7/" in lines[0] and lines[0].endswith("loss=0.123")
    assert "ETA" not in lines[0]
    evaluate(bar, make_trainer(), "validation", [4])
    assert capsys.readouterr().out == ""

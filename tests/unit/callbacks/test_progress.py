"""Progress bars: what each shows, how often, what a batch costs, and that live objects do not travel."""

from __future__ import annotations

import io
import math
import pickle
import subprocess
import sys
import time
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fulmen.callbacks import NotebookProgress, PlainProgress, ProgressBar, RichProgressBar, TQDMProgressBar
from fulmen.callbacks.progress import (
    RichProgressBarTheme,
    default_progress_bar,
    plain_progress,
    timed_progress,
    tqdm_progress,
)
from fulmen.callbacks.progress.whole_run import run_length, run_position
from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning
from tests.unit.callbacks.fakes import Clock, FakeLogger, evaluate, fit, make_trainer

pytestmark = pytest.mark.feature("K-04")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (timed_progress, plain_progress, tqdm_progress):
        monkeypatch.setattr(module, "time", clock)
    return clock


def rich_bar(**kwargs: Any) -> tuple[RichProgressBar, io.StringIO]:
    out = io.StringIO()
    console = {"file": out, "force_terminal": True, "width": 140, "color_system": None}
    return RichProgressBar(console_kwargs=console, **kwargs), out


# ------------------------------------------------------------------------------------------------------------ the base
def test_totals_follow_the_trainer() -> None:
    bar = ProgressBar()
    with pytest.raises(TypeError, match=r"ProgressBar\.trainer is not there yet"):
        _ = bar.trainer
    trainer = make_trainer(num_val_batches=[4, 5], num_sanity_val_batches=[1, 2])
    bar.setup(trainer, None, "fit")
    assert bar.trainer is trainer
    assert bar.total_train_batches == 10
    assert bar.total_val_batches == 9
    assert bar.has_dataloader_changed(1)
    assert not bar.has_dataloader_changed(1)
    assert bar.total_val_batches_current_dataloader == 5
    assert bar.total_test_batches_current_dataloader == 6
    trainer.sanity_checking = True
    assert bar.total_val_batches_current_dataloader == 2
    bar.reset_dataloader_idx_tracker()
    assert bar.total_predict_batches_current_dataloader == 3
    trainer.check_val_every_n_epoch = 2
    assert bar.total_val_batches == 0
    trainer.current_epoch = 1
    assert bar.total_val_batches == 9
    trainer.enable_validation = False
    assert bar.total_val_batches == 0


@pytest.mark.feature("T-12")
def test_max_steps_ends_the_epochs_bar() -> None:
    bar = ProgressBar()
    trainer = make_trainer(num_training_batches=100, max_epochs=-1, max_steps=30, accumulate_grad_batches=2)
    bar.setup(trainer, None, "fit")
    assert bar.total_train_batches == 60
    trainer.global_step = 20
    assert bar.total_train_batches == 60  # fixed for the epoch, though steps were done
    trainer.current_epoch = 1
    assert bar.total_train_batches == 20
    trainer.num_training_batches = math.inf
    assert bar.total_train_batches == 20


@pytest.mark.feature("T-12")
@pytest.mark.parametrize(
    ("changes", "length", "position"),
    [
        ({"max_epochs": 3}, 30, 14),
        ({"max_epochs": -1}, None, 14),
        ({"max_epochs": None}, None, 14),
        ({"max_epochs": 3, "max_steps": 12}, 12, 14),
        ({"max_epochs": -1, "max_steps": 12, "accumulate_grad_batches": 2}, 24, 14),
        ({"max_epochs": 3, "num_training_batches": math.inf}, None, 7),
        ({"max_epochs": -1, "max_steps": 12, "num_training_batches": math.inf}, 12, 7),
    ],
)
def test_length_and_position_of_the_run(changes: dict[str, Any], length: float | None, position: int) -> None:
    trainer = make_trainer(current_epoch=1, **changes)
    trainer.global_step = 7 // trainer.accumulate_grad_batches
    assert run_length(trainer) == length
    assert run_position(trainer, 4) == position


@pytest.mark.parametrize(
    ("versions", "shown"),
    [
        ([], {}),
        ([3], {"v_num": 3}),
        (["version_1234abcd"], {"v_num": "abcd"}),
        ([""], {}),
        ([None], {}),
        ([1, 2, 1], {"v_num": "1_2"}),
    ],
)
def test_version_of_the_logger_is_shown(versions: list[Any], shown: dict[str, Any]) -> None:
    trainer = make_trainer(loggers=[FakeLogger(v) for v in versions])
    assert ProgressBar().get_metrics(trainer, None) == {**shown, "loss": 0.123}


def test_a_logged_v_num_wins_with_a_warning() -> None:
    trainer = make_trainer(loggers=[FakeLogger(3)], progress_bar_metrics={"v_num": 0.5})
    with pytest.warns(FulmenWarning, match="shows 'v_num' itself"):
        assert ProgressBar().get_metrics(trainer, None) == {"v_num": 0.5}


def test_a_subclass_without_the_constructor_and_with_its_own_switch_works() -> None:
    class Own(ProgressBar):
        def __init__(self) -> None:
            self.enable = True  # type: ignore[assignment, method-assign]  # as written in many a tutorial

        def disable(self) -> None:
            self.enable = False  # type: ignore[assignment, method-assign]  # the same

        @property
        def is_enabled(self) -> bool:
            return self._enabled and bool(self.enable)

    bar = Own()
    bar.setup(make_trainer(is_global_zero=False), None, "fit")
    assert not bar.is_enabled
    assert bar.total_train_batches == 10


@pytest.mark.parametrize("kind", [RichProgressBar, TQDMProgressBar, PlainProgress, NotebookProgress])
def test_other_ranks_show_nothing(kind: type[Any], capsys: pytest.CaptureFixture[str]) -> None:
    bar = kind()
    assert bar.is_enabled
    fit(bar, make_trainer(is_global_zero=False))
    assert bar.is_disabled
    out, err = capsys.readouterr()
    assert out.strip() == err.strip() == ""
    bar.enable()
    assert bar.is_enabled


# ---------------------------------------------------------------------------------------------------- drawing by time
@pytest.mark.feature("T-08")
@pytest.mark.parametrize("kind", ["rich", "tqdm", "plain"])
def test_values_are_read_ten_times_a_second_at_most(
    kind: str, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    reads: list[float] = []
    bar: Any = {"rich": lambda: rich_bar()[0], "tqdm": TQDMProgressBar, "plain": PlainProgress}[kind]()
    inner = bar.get_metrics

    def counted(trainer: Any, module: Any) -> Any:
        reads.append(clock.now)
        return inner(trainer, module)

    bar.get_metrics = counted
    # 2 epochs of 10,000 batches and 4 validation batches, 1 ms each: 20 seconds.
    fit(bar, make_trainer(num_training_batches=10_000), clock.advance(0.001))
    assert 2 <= len(reads) <= 20 * 10 + 2
    steps = [later - earlier for earlier, later in pairwise(reads)]
    assert min(steps[:-1]) >= 0.099  # the last one is the end of training


def test_ten_thousand_short_epochs_are_not_drawn_each(clock: Clock) -> None:
    bar, _ = rich_bar()
    drawn: list[float] = []
    trainer = make_trainer(num_training_batches=2, max_epochs=2000)
    bar.setup(trainer, None, "fit")
    bar._init_progress(trainer)
    assert bar.progress is not None
    bar.progress.draw = lambda: drawn.append(clock.now)  # type: ignore[method-assign]  # counted instead of drawn
    fit(bar, trainer, clock.advance(0.0005))  # 6 batches an epoch: 6 seconds
    assert 30 < len(drawn) <= 70


@pytest.mark.parametrize("kind", ["rich", "tqdm", "plain"])
def test_the_ordinary_batch_costs_a_microsecond_at_most(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    bar: Any = {"rich": lambda: rich_bar()[0], "tqdm": TQDMProgressBar, "plain": PlainProgress}[kind]()
    trainer = make_trainer(num_training_batches=10**9)
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    bar.on_train_batch_end(trainer, None, {}, None, 0)
    hook = bar.on_train_batch_end
    bar._due = math.inf
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for i in range(20_000):
            hook(trainer, None, {}, None, i)
        best = min(best, (time.perf_counter() - start) / 20_000)
    bar.teardown(trainer, None, "fit")
    assert best < 1e-6


def test_a_slow_terminal_is_drawn_less_often(clock: Clock) -> None:
    class Slow(timed_progress.TimedProgressBar):
        drawn = 0

        def _draw(self, *args: Any) -> bool:
            self.drawn += 1
            clock.now += 0.05  # half a second may be drawn in 25
            return True

    bar = Slow()
    trainer = make_trainer()
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    for i in range(10_000):
        clock.now += 0.001
        bar.on_train_batch_end(trainer, None, {}, None, i)
    assert 3 <= bar.drawn <= 6


# ---------------------------------------------------------------------------------------------------------------- rich
def test_rich_bar_shows_epoch_validation_and_values() -> None:
    bar, out = rich_bar()
    fit(bar, make_trainer(loggers=[FakeLogger(7)]))
    text = out.getvalue()
    assert "Epoch 1/1" in text
    assert "10/10" in text
    assert "v_num: 7" in text.replace("7.000", "7")
    assert "loss: 0.123" in text
    assert "Run" not in text
    assert text.rstrip().endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.feature("T-12")
def test_rich_bar_shows_the_whole_run() -> None:
    bar, out = rich_bar(total_bar=True)
    fit(bar, make_trainer())
    last = out.getvalue().rsplit("Run", 1)[1]
    assert "20/20" in last
    assert "10/10" in last


def test_rich_bar_pulses_without_a_length(clock: Clock) -> None:
    bar, out = rich_bar()
    trainer = make_trainer(num_training_batches=math.inf)
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    for i in range(5):
        clock.now += 1
        bar.on_train_batch_end(trainer, None, {}, None, i)
    bar.on_train_end(trainer, None)
    bar.teardown(trainer, None, "fit")
    assert "5/--" in out.getvalue()


@pytest.mark.parametrize("stage", ["validation", "test", "predict"])
def test_rich_bar_of_a_lone_evaluation(stage: str, clock: Clock) -> None:
    bar, out = rich_bar()
    trainer = make_trainer(
        state=SimpleNamespace(fn={"validation": "validate"}.get(stage, stage)),
        num_val_batches=[4, 6],
        num_predict_batches=[4, 6],
    )
    bar.setup(trainer, None, trainer.state.fn)
    evaluate(bar, trainer, stage, [4, 6], clock.advance(1))
    bar.teardown(trainer, None, trainer.state.fn)
    title = {"validation": "Validation", "test": "Testing", "predict": "Predicting"}[stage]
    text = out.getvalue()
    assert f"{title} " in text
    assert f"{title} DataLoader 1" in text
    assert "4/4" in text
    assert "6/6" in text


def test_rich_bar_stops_on_an_exception_and_can_begin_again() -> None:
    bar, out = rich_bar()
    trainer = make_trainer()
    stdout = sys.stdout
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    bar.on_train_batch_end(trainer, None, {}, None, 0)
    assert sys.stdout is not stdout  # what is printed goes above the bar
    print("above the bar")
    bar.on_exception(trainer, None, KeyboardInterrupt())
    assert sys.stdout is stdout
    assert "above the bar" in out.getvalue()
    assert bar.progress is not None and not bar.progress.live.is_started
    bar.teardown(trainer, None, "fit")
    fit(bar, make_trainer())
    assert out.getvalue().count("10/10") >= 1


def test_rich_bar_survives_a_terminal_that_is_gone() -> None:
    bar, out = rich_bar()
    trainer = make_trainer()
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    out.close()
    bar.on_exception(trainer, None, RuntimeError("the error that the user must see"))


def test_rich_bar_leaves_epochs_on_the_screen() -> None:
    bar, out = rich_bar(leave=True, total_bar=True)
    fit(bar, make_trainer(max_epochs=3))
    text = out.getvalue()
    assert "30/30" in text  # the bar of the whole run goes on in the new display
    assert text.count("\x1b[?25h") == 3  # three displays, one per epoch


def test_rich_bar_takes_other_columns_and_metrics() -> None:
    from rich.progress import TextColumn

    class Own(RichProgressBar):
        def configure_columns(self, trainer: Any) -> list[Any]:
            return [TextColumn("OWN"), *super().configure_columns(trainer)]

        def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
            return {"mine": 1.0}

    out = io.StringIO()
    bar = Own(
        theme=RichProgressBarTheme(metrics_format=".1f"),
        console_kwargs={"file": out, "force_terminal": True, "width": 140},
    )
    fit(bar, make_trainer())
    assert "OWN" in out.getvalue()
    assert "mine: 1.0" in out.getvalue()


def test_rich_bar_goes_on_inside_an_epoch(clock: Clock) -> None:
    bar, _ = rich_bar()
    trainer = make_trainer(num_training_batches=100, max_epochs=1, max_steps=70, global_step=50)
    seen: list[tuple[float, float | None]] = []
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    for i in range(50, 70):
        clock.now += 1
        bar.on_train_batch_end(trainer, None, {}, None, i)
        seen.append((bar.train_progress_bar.completed, bar.train_progress_bar.total))
    bar.teardown(trainer, None, "fit")
    assert seen[0] == (51, 70)
    assert seen[-1] == (70, 70)


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"refresh_rate": "fast"}, ArgumentTypeError, "refresh_rate='fast'"),
        ({"refresh_rate": True}, ArgumentTypeError, "refresh_rate=True"),
        ({"refresh_rate": -1}, ArgumentValueError, "refresh_rate=-1"),
        ({"theme": {"description": "red"}}, ArgumentTypeError, "RichProgressBarTheme"),
        ({"console_kwargs": 3}, ArgumentTypeError, "console_kwargs=3"),
    ],
)
def test_rich_bar_refuses_wrong_arguments(kwargs: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RichProgressBar(**kwargs)


def test_refresh_rate_zero_switches_off() -> None:
    bar, out = rich_bar(refresh_rate=0)
    fit(bar, make_trainer())
    assert out.getvalue() == ""
    assert TQDMProgressBar(refresh_rate=0).is_disabled
    assert PlainProgress(0).is_disabled


# ---------------------------------------------------------------------------------------------------------------- tqdm
def test_tqdm_bar_shows_epoch_validation_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    fit(TQDMProgressBar(), make_trainer(loggers=[FakeLogger(7)]))
    out, err = capsys.readouterr()
    assert err == ""
    assert "Epoch 1: 100%" in out
    assert "10/10" in out
    assert "loss=0.123, v_num=7" in out or "v_num=7, loss=0.123" in out


def test_tqdm_bars_can_be_made_by_a_subclass(capsys: pytest.CaptureFixture[str]) -> None:
    class Own(TQDMProgressBar):
        def init_validation_tqdm(self) -> Any:
            bar = super().init_validation_tqdm()
            bar.disable = True
            return bar

        def init_train_tqdm(self) -> Any:
            return tqdm_progress.Tqdm(
                desc="OWN", position=2 * self.process_position, disable=self.is_disabled, file=sys.stdout
            )

        @property
        def train_description(self) -> str:
            return "my training"

    bar = Own(process_position=0)
    with pytest.raises(TypeError, match="no bar for 'train' yet"):
        _ = bar.train_progress_bar
    fit(bar, make_trainer())
    out = capsys.readouterr().out
    assert "OWN" in out
    assert "Validation DataLoader" not in out
    assert bar.train_progress_bar.n == 10


def test_tqdm_draws_by_batches_too(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    class Own(TQDMProgressBar):
        asked: list[int] = []  # noqa: RUF012 (one instance)

        def _should_update(self, current: int, total: int | float | None) -> bool:
            self.asked.append(current)
            return super()._should_update(current, total)

    bar = Own(refresh_rate=4)
    shown: list[int] = []
    trainer = make_trainer(num_training_batches=10, max_epochs=1)
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    for i in range(10):
        clock.now += 1
        bar.on_train_batch_end(trainer, None, {}, None, i)
        shown.append(bar.train_progress_bar.n)
    bar.teardown(trainer, None, "fit")
    assert shown == [0, 0, 0, 4, 4, 4, 4, 8, 8, 10]
    assert bar.asked == list(range(1, 11))


def test_tqdm_starts_no_thread(capsys: pytest.CaptureFixture[str]) -> None:
    import threading

    before = threading.active_count()
    bar = TQDMProgressBar()
    trainer = make_trainer()
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    assert threading.active_count() == before
    bar.on_exception(trainer, None, RuntimeError())


def test_tqdm_prints_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bar = TQDMProgressBar()
    bar.print("plain", 1, sep="-")
    trainer = make_trainer()
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.print("above", 2)
    bar.teardown(trainer, None, "fit")
    out = capsys.readouterr().out
    assert "plain-1\n" in out
    assert "above 2\n" in out


@pytest.mark.parametrize(
    ("n", "text"), [(0.5, "0.500"), (12, "12"), (1e-7, "1e-7"), ("abc", "abc"), ("7", "7.000"), (123456.0, "1.23e+5")]
)
def test_tqdm_numbers_have_one_width(n: float | str, text: str) -> None:
    assert tqdm_progress.Tqdm.format_num(n) == text


@pytest.mark.parametrize(("variable", "value", "rate"), [("COLAB_GPU", "1", 20), ("TQDM_MINITERS", "7", 7)])
def test_tqdm_rate_from_the_environment(variable: str, value: str, rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert TQDMProgressBar().refresh_rate == rate


def test_tqdm_missing_names_the_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tqdm_progress, "_HAS_TQDM", False)
    with pytest.raises(ModuleNotFoundError, match="pip install tqdm"):
        TQDMProgressBar()


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"refresh_rate": 0.5}, ArgumentTypeError, "refresh_rate=0.5"),
        ({"refresh_rate": -1}, ArgumentValueError, "refresh_rate=-1"),
        ({"process_position": None}, ArgumentTypeError, "process_position=None"),
        ({"process_position": -2}, ArgumentValueError, "process_position=-2"),
    ],
)
def test_tqdm_bar_refuses_wrong_arguments(kwargs: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TQDMProgressBar(**kwargs)


# --------------------------------------------------------------------------------------------------------------- plain
@pytest.mark.feature("T-08", "T-12")
def test_plain_lines_say_epoch_batch_rate_time_left_and_values(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(PlainProgress(), make_trainer(num_training_batches=100, max_epochs=1), clock.advance(0.2))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "Epoch 0/0 | batch 50/100 (50%) | 5.00 it/s | ETA 0:00:10 | run 50% | run ETA 0:00:10 | loss=0.123"
    )
    assert lines[-1].startswith("Epoch 0/0 | batch 100/100 (100%) | 5.00 it/s | run 100% | loss=0.123")
    assert len(lines) == 3


@pytest.mark.feature("T-08")
@pytest.mark.parametrize(
    ("seconds", "batches", "epochs", "most"),
    [
        (0.01, 100, 28_800, 600),  # eight hours of epochs that take a second
        (0.1, 288_000, 1, 150),  # eight hours of one epoch
        (0.00001, 10, 10_000, 3),  # ten thousand epochs in a second
    ],
)
def test_plain_lines_never_flood(
    seconds: float, batches: int, epochs: int, most: int, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = PlainProgress()
    trainer = make_trainer(num_training_batches=batches, max_epochs=epochs)
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    for epoch in range(epochs):
        trainer.current_epoch = epoch
        bar.on_train_epoch_start(trainer, None)
        for i in range(0, batches, 10):  # a tenth of the hooks: the same time passes
            clock.now += seconds * 10
            bar.on_train_batch_end(trainer, None, {}, None, i + 9)
        bar.on_train_epoch_end(trainer, None)
    bar.on_train_end(trainer, None)
    lines = capsys.readouterr().out.splitlines()
    assert 1 <= len(lines) <= most
    assert f"batch {batches}/{batches} (100%)" in lines[-1]  # the end is always there
    assert f"Epoch {epochs - 1}/{epochs - 1}" in lines[-1]


@pytest.mark.feature("T-08")
def test_plain_lines_of_an_unknown_length_and_of_a_lone_test(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = PlainProgress()
    trainer = make_trainer(num_training_batches=math.inf, max_epochs=None)
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    for i in range(12):
        clock.now += 1
        bar.on_train_batch_end(trainer, None, {}, None, i)
    assert capsys.readouterr().out == "Epoch 0 | batch 10 | 1.00 it/s | loss=0.123\n"
    trainer = make_trainer(state=SimpleNamespace(fn="test"))
    bar.setup(trainer, None, "test")
    evaluate(bar, trainer, "test", [4, 6], clock.advance(4))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Testing | batch 3/4 (75%) | 4.00 s/it | ETA 0:00:04")
    assert lines[-1].startswith("Testing DataLoader 1 | batch 6/6 (100%)")


def test_plain_time_left_after_a_resume_counts_new_batches_only(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make_trainer(num_training_batches=100, max_epochs=2, current_epoch=1)
    fit(PlainProgress(), trainer, clock.advance(1), start=80)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("Epoch 1/1 | batch 90/100 (90%) | 1.")
    assert "run 95%" in first
    assert "run ETA 0:00:0" in first or "run ETA 0:00:1" in first


@pytest.mark.parametrize(
    ("interval", "error"), [("10", ArgumentTypeError), (True, ArgumentTypeError), (-1, ArgumentValueError)]
)
def test_plain_refuses_wrong_arguments(interval: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="interval="):
        PlainProgress(interval)


# ------------------------------------------------------------------------------------------------------------ notebook
class _Handle:
    def __init__(self, content: str) -> None:
        self.contents = [content]

    def update(self, content: str) -> None:
        self.contents.append(content)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[_Handle]:
    handles: list[_Handle] = []

    def display(content: str, display_id: bool = False) -> _Handle:
        handles.append(_Handle(content))
        return handles[-1]

    ipython, shown = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]  # a stand-in module
    shown.HTML = str  # type: ignore[attr-defined]  # a stand-in module
    shown.display = display  # type: ignore[attr-defined]  # a stand-in module
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return handles


@pytest.mark.feature("T-08", "T-12")
def test_notebook_bar_updates_one_display(notebook: list[_Handle], clock: Clock) -> None:
    bar = default_progress_bar()
    assert isinstance(bar, NotebookProgress)
    fit(bar, make_trainer(progress_bar_metrics={"<loss>": 0.5}), clock.advance(0.1))
    assert len(notebook) == 1
    last = notebook[0].contents[-1]
    assert "Run <progress value='20' max='20'>" in last
    assert "Epoch 1 <progress value='10' max='10'>" in last
    assert "&lt;loss&gt;=0.500" in last
    assert 2 <= len(notebook[0].contents) <= 8  # 2.8 seconds


# -------------------------------------------------------------------------------------------------------------- choice
@pytest.mark.feature("T-08")
@pytest.mark.parametrize(
    ("tty", "term", "kind"),
    [(True, "xterm-256color", RichProgressBar), (True, "dumb", PlainProgress), (False, "xterm", PlainProgress)],
)
def test_the_bar_fits_the_output(tty: bool, term: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: tty))
    bar = default_progress_bar()
    assert type(bar) is kind
    assert getattr(bar, "total_bar", True)


def test_lines_need_no_rich() -> None:
    code = (
        "import sys; from fulmen.callbacks.progress import default_progress_bar as d; d();"
        "sys.exit(any(m.split('.')[0] in ('rich', 'tqdm') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False).returncode == 0


# ------------------------------------------------------------------------------------------------------------ pickling
@pytest.mark.feature("M-12")
@pytest.mark.parametrize("kind", ["rich", "tqdm", "plain", "notebook"])
def test_live_objects_do_not_travel(kind: str, notebook: list[_Handle], capsys: pytest.CaptureFixture[str]) -> None:
    bar: Any = {
        "rich": lambda: RichProgressBar(leave=True, total_bar=True),
        "tqdm": TQDMProgressBar,
        "plain": PlainProgress,
        "notebook": NotebookProgress,
    }[kind]()
    trainer = make_trainer(unpicklable=lambda: None)
    bar.setup(trainer, None, "fit")
    bar.on_train_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    bar.on_train_batch_end(trainer, None, {}, None, 0)
    twin = pickle.loads(pickle.dumps(bar))
    bar.teardown(trainer, None, "fit")
    assert twin._trainer is None
    fit(twin, make_trainer())
    assert len(pickle.dumps(twin)) < 4000

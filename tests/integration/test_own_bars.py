"""Bars of one's own, written as for Lightning, in real runs."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from fulmen.callbacks import ProgressBar, RichProgressBar, TQDMProgressBar
from fulmen.callbacks.progress.tqdm_progress import Tqdm
from tests.integration.toys import Toy, fit, loader, quiet

pytestmark = pytest.mark.feature("K-04")


class Shown(Toy):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, prog_bar=True)
        if batch_idx == 1:
            self.print("printed", "by the module")
        return loss


def run(bar: Any, **arguments: Any) -> Any:
    return fit(Shown(), loader(), loader(4), callbacks=bar, enable_progress_bar=True, **arguments)


def test_a_bar_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Percent(ProgressBar):
        def __init__(self) -> None:
            super().__init__()
            self.enable()
            self.seen: list[float] = []
            self.printed: list[tuple[Any, ...]] = []

        def enable(self) -> None:
            self.is_on = True

        def disable(self) -> None:
            self.is_on = False

        def print(self, *args: Any, **kwargs: Any) -> None:
            self.printed.append(args)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
            if self.is_on:
                self.seen.append(100 * (batch_idx + 1) / self.total_train_batches)
                assert set(self.get_metrics(trainer, pl_module)) == {"loss"}

    bar = Percent()
    trainer = run(bar, limit_train_batches=4)
    assert trainer.progress_bar_callback is bar
    assert bar.seen == [25, 50, 75, 100]
    assert bar.printed == [("printed", "by the module")]
    assert capsys.readouterr().out == ""


def test_tqdm_with_bars_and_numbers_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    class Own(TQDMProgressBar):
        asked: list[tuple[int, Any]] = []  # noqa: RUF012 (one instance)

        @property
        def total_train_batches(self) -> int | float:
            return super().total_train_batches * 10

        def init_train_tqdm(self) -> Any:
            return Tqdm(
                desc="MINE",
                position=2 * self.process_position,
                disable=self.is_disabled,
                leave=True,
                dynamic_ncols=True,
                file=sys.stdout,
                smoothing=0,
            )

        def init_validation_tqdm(self) -> Any:
            bar = super().init_validation_tqdm()
            bar.set_description("running validation...")
            return bar

        def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
            items = super().get_metrics(trainer, pl_module)
            items.pop("v_num", None)
            return {**items, "mine": 7}

        def _should_update(self, current: int, total: Any) -> bool:
            self.asked.append((current, total))
            return super()._should_update(current, total)

    bar = Own(refresh_rate=2)
    run(bar, max_epochs=2)
    out = capsys.readouterr().out
    assert "mine=7" in out and "/60" in out and "running validation..." in out
    assert "printed by the module" in out
    assert all(total == 60 for _, total in bar.asked if total != 2) and bar.asked


@pytest.mark.parametrize("way", ["property", "attribute", "disable"])
@pytest.mark.parametrize("base", [TQDMProgressBar, RichProgressBar])
def test_switched_off_by_a_subclass(base: Any, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Off(base):  # type: ignore[misc]  # a class in a variable
        @property
        def is_enabled(self) -> bool:
            return super().is_enabled and way != "property"

    bar = Off()
    if way == "attribute":
        bar._enabled = False
    elif way == "disable":
        bar.disable()
    run(bar)
    assert "Epoch" not in capsys.readouterr().out
    assert bar.is_disabled


def test_rich_with_metrics_description_and_columns_of_ones_own() -> None:
    from rich.progress import TextColumn

    class Own(RichProgressBar):
        def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
            items = super().get_metrics(trainer, pl_module)
            return {f"my_{name}": value for name, value in items.items()}

        def configure_columns(self, trainer: Any) -> list[Any]:
            return [TextColumn("FIRST"), *super().configure_columns(trainer)]

        def _get_train_description(self, current_epoch: int) -> str:
            return f"Round {current_epoch}"

        @property
        def validation_description(self) -> str:
            return "Checking"

    out = io.StringIO()
    run(Own(console_kwargs={"file": out, "force_terminal": True, "width": 160}))
    text = out.getvalue()
    assert "FIRST" in text and "Round 0" in text and "my_loss" in text
    assert "Epoch 0" not in text


def test_the_print_of_a_module_goes_above_the_bar() -> None:
    out = io.StringIO()
    run(RichProgressBar(console_kwargs={"file": out, "force_terminal": True, "width": 160}))
    assert "printed by the module" in out.getvalue()


def test_validate_test_and_predict_use_the_same_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bar = TQDMProgressBar()
    trainer, module = quiet(callbacks=bar, enable_progress_bar=True), Shown()
    for call, title in (("validate", "Validation"), ("test", "Testing"), ("predict", "Predicting")):
        getattr(trainer, call)(module, loader(8))
        assert f"{title} DataLoader 0: 100%" in capsys.readouterr().out

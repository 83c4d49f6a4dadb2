"""What a run shows: plain progress, the summary, learning rates; with the real Trainer."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

from fulmen.callbacks import LearningRateMonitor, ModelSummary
from fulmen.callbacks.progress.plain_progress import PlainProgress
from fulmen.errors import MisconfigurationException
from tests.integration.test_logging import Memory
from tests.integration.toys import Toy, fit, loader, quiet


class Shown(Toy):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), prog_bar=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [{"scheduler": StepLR(optimizer, 2, 0.5), "interval": "step", "name": "rate"}]


@pytest.mark.feature("K-04", "T-08")
def test_plain_lines_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    trainer = fit(Shown(), None, loader(4), enable_progress_bar=True, max_epochs=2)
    assert isinstance(trainer.progress_bar_callback, PlainProgress)
    shown = capfd.readouterr()
    text = shown.out + shown.err
    assert "6/6" in text
    assert "loss" in text and "val_loss" in text
    assert "\r" not in text and "\x1b" not in text
    assert len(text.splitlines()) <= 6


@pytest.mark.feature("K-04", "T-08")
@pytest.mark.parametrize("call", ["validate", "test", "predict"])
def test_plain_lines_of_evaluation(call: str, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = quiet(enable_progress_bar=None, callbacks=PlainProgress(interval=0.0001))
    getattr(trainer, call)(Shown(), loader(8))
    assert "4/4" in "".join(capfd.readouterr())


@pytest.mark.feature("K-05")
def test_the_summary_comes_once_before_training(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fulmen"):
        trainer = fit(Shown(), enable_model_summary=True, max_epochs=2)
    assert any(isinstance(callback, ModelSummary) for callback in trainer.callbacks)
    text = caplog.text
    assert text.count("Linear") == 1
    assert "net" in text and "5" in text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="fulmen"):
        fit(Shown())
    assert "Linear" not in caplog.text


@pytest.mark.feature("K-03")
@pytest.mark.parametrize("interval", [None, "step", "epoch"])
def test_rates_reach_loggers_and_monitors(interval: str | None) -> None:
    memory = Memory()
    monitor = LearningRateMonitor(logging_interval=interval)  # type: ignore[arg-type]  # a parameter
    trainer = fit(Shown(), callbacks=monitor, logger=memory, log_every_n_steps=1, max_epochs=2)
    rates = [(step, row["rate"]) for step, row in memory.rows if "rate" in row]
    expected = [0.1 * 0.5 ** (step // 2) for step in range(12)]
    if interval == "epoch":
        assert [rate for _, rate in rates] == pytest.approx([expected[0], expected[6]])
    else:
        assert [step for step, _ in rates] == list(range(12))
        assert [rate for _, rate in rates] == pytest.approx(expected)
    assert trainer.callback_metrics["rate"].item() == pytest.approx(rates[-1][1])


@pytest.mark.feature("K-03")
def test_rates_need_a_logger() -> None:
    with pytest.raises(MisconfigurationException, match=r"LearningRateMonitor.*logger"):
        fit(Shown(), callbacks=LearningRateMonitor())

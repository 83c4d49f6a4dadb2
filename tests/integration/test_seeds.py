"""`seed_everything` and the Trainer: printed, recorded, per rank, and not in hooks."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import ModelCheckpoint
from fulmen.errors import FulmenWarning
from fulmen.loggers import CSVLogger
from tests.integration.toys import Toy, fit, loader, quiet


@pytest.mark.feature("T-16", "T-10")
def test_the_seed_is_returned_printed_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fulmen"):
        assert L.seed_everything(1234) == 1234
        callback = ModelCheckpoint(tmp_path, filename="here")
        trainer = fit(
            Toy(), logger=CSVLogger(tmp_path), log_every_n_steps=6, callbacks=callback, enable_checkpointing=True,
            enable_model_summary=True,
        )  # fmt: skip
    assert "Seed set to 1234" in caplog.text
    assert "seed               1234" in caplog.text
    start = json.loads((Path(trainer.log_dir) / "run.jsonl").read_text().splitlines()[0])
    assert start["seed"] == 1234
    assert torch.load(tmp_path / "here.ckpt", weights_only=True)["fulmen"]["seed"] == 1234


@pytest.mark.feature("T-16", "T-10")
def test_without_a_seed_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fulmen"):
        fit(Toy(), enable_model_summary=True)
    assert "none (call seed_everything for repeatable runs)" in caplog.text


def seeding(hook: str) -> Any:
    class Seeds(Toy):
        pass

    def seed(self: Any, *args: Any, **kwargs: Any) -> Any:
        L.seed_everything(1, verbose=False)
        return getattr(super(Seeds, self), hook)(*args, **kwargs)

    setattr(Seeds, hook, seed)
    return Seeds()


@pytest.mark.feature("T-16")
@pytest.mark.parametrize(
    "hook", ["setup", "configure_optimizers", "on_train_start", "training_step", "validation_step"]
)
def test_a_seed_set_in_a_hook_is_reported_once(hook: str) -> None:
    with pytest.warns(FulmenWarning, match=r"seed_everything was called while Trainer\.fit ran.*Seeds") as caught:
        fit(seeding(hook), None, loader(4))
    assert len(caught) == 1


@pytest.mark.feature("T-16")
def test_ranks_draw_the_same_until_the_fit_starts_and_others_then_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Draws(Toy):
        def setup(self, stage: str) -> None:
            self.in_setup = torch.rand(1)

        def on_fit_start(self) -> None:
            self.at_start = torch.rand(1)

    def drawn(rank: int, per_rank: bool) -> tuple[float, float]:
        L.seed_everything(7, per_rank=per_rank, verbose=False)
        module, trainer = Draws(), quiet()
        with monkeypatch.context() as patch:
            patch.setattr(type(trainer), "global_rank", rank)
            trainer.fit(module, loader())
        return module.in_setup.item(), module.at_start.item()

    same = [drawn(rank, per_rank=False) for rank in range(3)]
    assert same[0] == same[1] == same[2]
    own = [drawn(rank, per_rank=True) for rank in range(3)]
    assert own[0] == same[0]
    assert {numbers[0] for numbers in own} == {same[0][0]}
    assert len({numbers[1] for numbers in own}) == 3
    assert own[2] == drawn(2, per_rank=True)

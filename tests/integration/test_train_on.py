"""`fit` with limits of its own, a second `fit`, and checkpoints of runs that are over."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.callbacks import ModelCheckpoint
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from fulmen.loggers import CSVLogger
from tests.integration.toys import Toy, fit, loader, quiet, weights


@pytest.mark.feature("T-14")
def test_limits_given_to_fit_are_the_trainers_from_then_on() -> None:
    module = Toy()
    trainer = quiet(max_epochs=1)
    trainer.fit(module, loader(6), max_epochs=2)
    assert (trainer.current_epoch, trainer.global_step, trainer.max_epochs) == (2, 6, 2)
    trainer.fit(module, loader(6), max_epochs=-1, max_steps=8)
    assert (trainer.current_epoch, trainer.global_step, trainer.max_steps) == (3, 8, 8)


@pytest.mark.feature("T-14")
def test_additional_epochs_give_the_same_weights_as_one_fit() -> None:
    parts, whole = Toy(), Toy()
    trainer = quiet(max_epochs=2)
    trainer.fit(parts, loader(6))
    trainer.fit(parts, loader(6), additional_epochs=3)
    fit(whole, loader(6), max_epochs=5)
    assert (trainer.current_epoch, trainer.max_epochs) == (5, 5)
    assert torch.equal(weights(parts), weights(whole))


@pytest.mark.feature("T-14")
def test_additional_epochs_count_from_the_checkpoint(tmp_path: Path) -> None:
    first = fit(Toy(), loader(6), max_epochs=3)
    first.save_checkpoint(tmp_path / "x.ckpt")

    class Asks(Toy):
        def configure_optimizers(self) -> Any:
            self.steps = self.trainer.estimated_stepping_batches
            return super().configure_optimizers()

    module, trainer = Asks(), quiet(max_epochs=1)
    trainer.fit(module, loader(6), ckpt_path=tmp_path / "x.ckpt", additional_epochs=2)
    assert (trainer.current_epoch, trainer.global_step) == (5, 15)
    assert module.steps == 15
    assert len(module.seen) == 6


@pytest.mark.feature("T-14")
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning], ids=["right", "lightning"])
def test_the_checkpoint_of_a_run_that_is_over_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, policy: Policy
) -> None:
    first = fit(Toy(), loader(6), max_epochs=2)
    first.save_checkpoint(tmp_path / "x.ckpt")
    caplog.clear()
    module, trainer = Toy(), quiet(max_epochs=2, policy=policy)
    with caplog.at_level(logging.INFO, "fulmen"):
        trainer.fit(module, loader(6), ckpt_path=tmp_path / "x.ckpt")
    assert not module.seen
    assert trainer.state.finished
    told = [record.message for record in caplog.records if "max_epochs=2 reached" in record.message]
    assert len(told) == 1
    assert "additional_epochs" in told[0]


@pytest.mark.feature("T-14")
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"max_epochs": 1.5}, ArgumentTypeError, ("Trainer.fit(max_epochs=1.5)", "int")),
        ({"max_epochs": -2}, ArgumentValueError, ("Trainer.fit(max_epochs=-2)", "-1: no limit")),
        ({"max_steps": "3"}, ArgumentTypeError, ("Trainer.fit(max_steps='3')", "int")),
        ({"additional_epochs": 0}, ArgumentValueError, ("Trainer.fit(additional_epochs=0)", "at least 1")),
        ({"additional_epochs": True}, ArgumentTypeError, ("Trainer.fit(additional_epochs=True)", "int")),
        (
            {"additional_epochs": 1, "max_epochs": 3},
            MisconfigurationException,
            ("max_epochs=3, additional_epochs=1", "one of them"),
        ),
        ({"max_epochs": 1}, MisconfigurationException, ("Trainer.fit(min_epochs=2, max_epochs=1)",)),
        (
            {"additional_epochs": 1, "ckpt_path": "auto"},
            MisconfigurationException,
            ("ckpt_path='auto', additional_epochs=1", "give max_epochs"),
        ),
    ],
)
def test_wrong_limits_given_to_fit(arguments: dict[str, Any], error: type[Exception], words: tuple[str, ...]) -> None:
    module = Toy()
    with pytest.raises(error) as caught:
        quiet(max_epochs=3, min_epochs=2).fit(module, loader(6), **arguments)
    for word in words:
        assert word in str(caught.value)
    assert not module.seen


@pytest.mark.feature("T-14")
def test_a_second_fit_with_nothing_to_do_names_the_ways_on() -> None:
    trainer, module = quiet(max_epochs=2), Toy()
    trainer.fit(module, loader(6))
    with pytest.raises(MisconfigurationException) as caught:
        trainer.fit(module, loader(6))
    for word in ("max_epochs=2 reached", "fit(..., max_epochs=3)", "additional_epochs=1"):
        assert word in str(caught.value)
    trainer.fit(module, loader(6), additional_epochs=1)
    with pytest.raises(MisconfigurationException, match=r"max_steps=9 reached.*`fit\(\.\.\., max_steps=10\)`") as again:
        trainer.fit(module, loader(6), additional_epochs=1, max_steps=9)
    assert "additional_epochs" not in str(again.value)  # it would not help
    trainer.fit(module, loader(6), additional_epochs=1, max_steps=10)
    assert trainer.global_step == 10


@pytest.mark.feature("T-01", "T-02")
@pytest.mark.parametrize(
    ("call", "keyword", "meant"),
    [
        ("fit", "train_dataloader", "train_dataloaders"),
        ("fit", "val_dataloader", "val_dataloaders"),
        ("fit", "dataloaders", "train_dataloaders"),
        ("fit", "train_loader", "train_dataloaders"),
        ("fit", "data_module", "datamodule"),
        ("fit", "resume_from_checkpoint", "ckpt_path"),
        ("fit", "epochs", "max_epochs"),
        ("validate", "val_dataloaders", "dataloaders"),
        ("test", "test_dataloaders", "dataloaders"),
        ("test", "dataloader", "dataloaders"),
        ("predict", "ckpt", "ckpt_path"),
    ],
)
def test_an_unknown_keyword_of_a_call_is_named_with_a_suggestion(call: str, keyword: str, meant: str) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(quiet(), call)(Toy(), **{keyword: loader(2)})
    assert f"Trainer.{call}({keyword}=...)" in str(caught.value)
    assert f"Did you mean '{meant}'?" in str(caught.value)


# ------------------------------------------------------------------------------------------------------------- teardown


@pytest.mark.feature("T-07")
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning], ids=["right", "lightning"])
def test_a_teardown_that_raises_does_not_skip_the_others(policy: Policy) -> None:
    called: list[str] = []

    class Raising(L.Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def teardown(self, *args: Any, **kwargs: Any) -> None:
            called.append(self.name)
            raise RuntimeError(f"of {self.name}")

    class Module(Toy):
        def teardown(self, stage: str) -> None:
            called.append("module")

    trainer = quiet(policy=policy, callbacks=[Raising("a"), Raising("b")])
    with pytest.raises(RuntimeError, match="of a") as caught:
        trainer.fit(Module(), loader(2))
    assert called == ["a", "b", "module"]
    assert any("RuntimeError: of b" in note for note in caught.value.__notes__)
    assert trainer.state.status == "interrupted"


@pytest.mark.feature("C-02", "T-03")
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_end"])
def test_what_follows_the_last_batch_is_logged_and_saved_by_the_run_that_goes_on(hook: str, tmp_path: Path) -> None:
    """`max_steps` ends a run inside an epoch; from a checkpoint of that batch its rows and files come out the same."""

    class Saving(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss

    def save(module: Any, *_: Any) -> None:
        if module.trainer.global_step == 9 and not module.trainer.sanity_checking:
            module.trainer.save_checkpoint(tmp_path / "x.ckpt")

    def run(module: Any, where: Path, path: Path | None) -> tuple[str, list[str], float]:
        callback = ModelCheckpoint(where / "c", "{step}", monitor="val_loss", save_top_k=-1)
        trainer = quiet(
            max_epochs=-1, max_steps=9, logger=CSVLogger(where, version=0), log_every_n_steps=2, callbacks=callback,
            enable_checkpointing=True,
        )  # fmt: skip
        trainer.fit(module, loader(12), loader(4), ckpt_path=path)
        names = sorted(file.name for file in (where / "c").glob("*.ckpt"))
        rows = (where / "lightning_logs" / "version_0" / "metrics.csv").read_text()
        return rows, names, float(callback.best_model_score)

    whole = type("Whole", (Saving,), {hook: save})()
    told = run(whole, tmp_path / "run", None)
    assert told[1] == ["step=6.ckpt", "step=9.ckpt"]
    (tmp_path / "run" / "c" / "step=9.ckpt").unlink()
    rest = Saving()
    assert run(rest, tmp_path / "run", tmp_path / "x.ckpt") == told
    assert torch.equal(weights(rest), weights(whole))

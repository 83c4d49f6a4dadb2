"""An exception in user code keeps its type and traceback, gets a note, and leaves nothing open."""

from __future__ import annotations

import traceback
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import fulmen as L
from fulmen.engine.runtime.policy import Policy
from fulmen.loggers import CSVLogger
from fulmen.trainer.notes import describe
from tests.integration.test_module import Data
from tests.integration.toys import Manual, Toy, fit, loader, quiet


class MineError(Exception):
    """The user's."""


def raising(*args: Any, **kwargs: Any) -> Any:
    raise MineError("mine")


# hook, where it is, call, words of the note
PLACES: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("setup", "module", "fit", ("`setup`", "stage train")),
    ("setup", "callback", "fit", ("`setup`",)),
    ("configure_optimizers", "module", "fit", ("`configure_optimizers`",)),
    ("on_fit_start", "callback", "fit", ("`on_fit_start`",)),
    ("on_train_start", "module", "fit", ("`on_train_start`", "epoch 0")),
    ("on_train_epoch_start", "module", "fit", ("`on_train_epoch_start`", "epoch 0")),
    ("on_train_batch_start", "callback", "fit", ("`on_train_batch_start`", "batch 0", "list of 2", "shape=(2, 4)")),
    ("training_step", "module", "fit", ("`training_step`", "stage train", "epoch 0", "batch 0", "rank 0")),
    ("on_before_zero_grad", "module", "fit", ("`on_before_zero_grad`", "batch 0")),
    ("on_before_backward", "module", "fit", ("`on_before_backward`", "batch 0")),
    ("backward", "module", "fit", ("`backward`", "batch 0")),
    ("on_after_backward", "callback", "fit", ("`on_after_backward`", "batch 0")),
    ("optimizer_step", "module", "fit", ("`optimizer_step`", "batch 0")),
    ("optimizer_zero_grad", "module", "fit", ("`optimizer_zero_grad`", "batch 0")),
    ("configure_gradient_clipping", "module", "fit", ("`configure_gradient_clipping`", "batch 0")),
    ("on_before_optimizer_step", "module", "fit", ("`on_before_optimizer_step`", "batch 0")),
    ("on_train_batch_end", "module", "fit", ("`on_train_batch_end`", "batch 0")),
    ("on_validation_start", "callback", "fit", ("`on_validation_start`", "stage validate")),
    ("on_validation_model_eval", "module", "fit", ("`on_validation_model_eval`", "stage validate")),
    ("validation_step", "module", "fit", ("`validation_step`", "stage validate", "batch 0")),
    ("on_validation_epoch_end", "module", "fit", ("`on_validation_epoch_end`", "stage validate")),
    ("on_train_epoch_end", "callback", "fit", ("`on_train_epoch_end`", "epoch 0")),
    ("on_train_end", "module", "fit", ("`on_train_end`",)),
    ("on_fit_end", "callback", "fit", ("`on_fit_end`",)),
    ("teardown", "module", "fit", ("`teardown`",)),
    ("train_dataloader", "module", "fit", ("`train_dataloader`",)),
    ("on_after_batch_transfer", "module", "fit", ("`on_after_batch_transfer`",)),
    ("validation_step", "module", "validate", ("`validation_step`", "stage validate", "batch 0")),
    ("test_step", "module", "test", ("`test_step`", "stage test", "batch 0")),
    ("predict_step", "module", "predict", ("`predict_step`", "stage predict", "batch 0")),
    ("on_predict_batch_end", "callback", "predict", ("`on_predict_batch_end`", "stage predict", "batch 0")),
]


@pytest.mark.feature("M-11")
@pytest.mark.parametrize(("hook", "place", "call", "words"), PLACES, ids=[f"{p[0]}-{p[1]}-{p[2]}" for p in PLACES])
def test_the_note_names_the_place(hook: str, place: str, call: str, words: tuple[str, ...]) -> None:
    module: Any = type("Model", (Toy,), {hook: raising})() if place == "module" else type("Model", (Toy,), {})()
    callbacks = [type("Mine", (L.Callback,), {hook: raising})()] if place == "callback" else []
    trainer = quiet(callbacks=callbacks)
    with pytest.raises(MineError) as caught:
        if call == "fit":
            trainer.fit(module, None if hook == "train_dataloader" else loader(), loader(4))
        else:
            getattr(trainer, call)(module, loader())
    error = caught.value
    assert str(error) == "mine"
    (note,) = error.__notes__
    for word in ("Model", *words):
        assert word in note
    assert traceback.extract_tb(error.__traceback__)[-1].name == "raising"
    assert trainer.state.status == "interrupted"
    assert trainer.interrupted
    assert trainer.session is None
    assert module.trainer is trainer


@pytest.mark.feature("M-11")
def test_the_note_names_epoch_batch_and_loader() -> None:
    class Late(Toy):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            if self.current_epoch == 1 and (batch_idx, dataloader_idx) == (2, 1):
                raise MineError

    with pytest.raises(MineError) as caught:
        fit(Late(), loader(), [loader(2), loader(8)], max_epochs=3)
    note = caught.value.__notes__[0]
    assert note.splitlines()[0] == (
        "While Fulmen ran `validation_step` of Late: stage validate, epoch 1, batch 2, loader 1, rank 0."
    )


@pytest.mark.feature("M-11")
def test_an_exception_of_the_loader_names_the_batch_that_was_wanted() -> None:
    class Broken(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            if index == 4:
                raise MineError
            return torch.zeros(4), torch.zeros(1)

    with pytest.raises(MineError) as caught:
        fit(Toy(), torch.utils.data.DataLoader(Broken(), batch_size=2))
    first, note = caught.value.__notes__
    assert first == "train_dataloader: batch 2 (samples 4, 5) could not be read. The data set failed at sample 4."
    assert "the loader" in note
    assert "batch 2" in note
    assert "shape" not in note


Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Item:
    image: Any
    label: int


@pytest.mark.feature("M-11")
@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (torch.zeros(2, 3), ["Tensor(shape=(2, 3), dtype=torch.float32, device=cpu)"]),
        ({"x": torch.zeros(1), "n": 3}, ["dict of 2", "'x': Tensor(shape=(1,)", "'n': int"]),
        ([torch.zeros(1), "text"], ["list of 2", "str"]),
        (Pair(torch.zeros(1), None), ["Pair of 2", "NoneType"]),
        (Item(torch.zeros(2, dtype=torch.int64), 3), ["Item of 2", "image: Tensor(shape=(2,), dtype=torch.int64"]),
        (list(range(100)), ["list of 100", "… 92 more"]),
        ({"a": {"b": [torch.zeros(1)]}}, ["'a': dict of 1", "'b': list of 1", "Tensor"]),
        (None, ["NoneType"]),
    ],
    ids=["tensor", "dict", "list", "namedtuple", "dataclass", "long", "nested", "none"],
)
def test_the_structure_of_a_batch(batch: Any, words: list[str]) -> None:
    text = describe(batch)
    for word in words:
        assert word in text


@pytest.mark.feature("M-11")
def test_values_of_a_batch_are_never_shown() -> None:
    secret = {"name": "a secret", "x": torch.tensor([123456.0])}
    assert "secret" not in describe(secret)
    assert "123456" not in describe(secret)


@pytest.mark.feature("M-11")
def test_a_class_that_takes_no_notes_is_still_raised() -> None:
    class Own(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one, two)

    def step(*args: Any) -> None:
        raise Own(1, 2)

    with pytest.raises(Own):
        fit(Toy(step))


@pytest.mark.feature("T-07", "M-11")
@pytest.mark.parametrize("policy", [Policy.right, Policy.lightning])
def test_everybody_is_told_and_everything_is_closed(tmp_path: Path, policy: Policy) -> None:
    calls: list[Any] = []

    class Logger(CSVLogger):
        def finalize(self, status: str) -> None:
            calls.append(status)
            super().finalize(status)

    class Watch(L.Callback):
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            calls.append(("callback", type(exception)))

        def teardown(self, *args: Any) -> None:
            calls.append("teardown")

    class Own(Data):
        def on_exception(self, exception: BaseException) -> None:
            calls.append(("data", type(exception)))

    trainer = quiet(callbacks=Watch(), logger=Logger(tmp_path), log_every_n_steps=1, policy=policy)
    with pytest.raises(MineError):
        trainer.fit(Toy(raising), Own())
    assert calls[:3] == [("callback", MineError), ("data", MineError), "failed"]
    assert calls[3:] == (["teardown"] if policy is Policy.right else [])
    assert (tmp_path / "lightning_logs" / "version_0").is_dir()


@pytest.mark.feature("T-07", "M-11")
@pytest.mark.parametrize("where", ["on_exception", "finalize", "teardown"])
def test_an_exception_while_cleaning_up_does_not_hide_the_first(tmp_path: Path, where: str) -> None:
    calls: list[str] = []

    def failing(*args: Any, **kwargs: Any) -> None:
        calls.append("failing")
        raise RuntimeError("second")

    class Watch(L.Callback):
        def on_exception(self, *args: Any) -> None:
            calls.append("later callback")

        def teardown(self, *args: Any) -> None:
            calls.append("later teardown")

    kind = CSVLogger if where == "finalize" else L.Callback
    first = type("Failing", (kind,), {where: failing})
    arguments: dict[str, Any] = {"callbacks": [Watch()], "log_every_n_steps": 1}
    if where == "finalize":
        arguments["logger"] = first(tmp_path)
    else:
        arguments["callbacks"] = [first(), Watch()]
    with pytest.raises(MineError, match="mine") as caught:
        fit(Toy(raising), **arguments)
    assert set(calls) == {"failing", "later callback", "later teardown"}
    assert any("RuntimeError: second" in note for note in caught.value.__notes__)


@pytest.mark.feature("T-07", "M-11")
def test_a_trainer_can_be_used_again_after_an_exception() -> None:
    fails = [True]

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        if fails[0] and batch_idx == 2:
            raise MineError
        return module.loss(batch)

    module, trainer = Toy(step), quiet(max_epochs=2)
    with pytest.raises(MineError):
        trainer.fit(module, loader())
    assert trainer.state.status == "interrupted"
    fails[0] = False
    trainer.fit(module, loader())
    assert trainer.state.status == "finished"
    assert module.seen == [0, 1, 2, *range(6), *range(6)]  # the epoch that was broken off begins anew
    assert (trainer.current_epoch, trainer.global_step) == (2, 14)
    assert trainer.validate(module, loader(2), verbose=False)


@pytest.mark.feature("T-07")
@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_validation_end", "on_train_end"])
def test_an_epoch_whose_batches_were_over_is_not_trained_again(hook: str) -> None:
    fails = [True]

    def failing(self: Any) -> None:
        if fails[0] and not self.trainer.sanity_checking:
            raise MineError

    module, trainer = type("Failing", (Toy,), {hook: failing})(), quiet(max_epochs=2)
    with pytest.raises(MineError):
        trainer.fit(module, loader(), loader(2))
    first = len(module.seen)
    fails[0] = False
    if hook == "on_train_end":
        trainer.fit_loop.max_epochs = 3
    trainer.fit(module, loader(), loader(2))
    expected = {"on_train_epoch_end": (6, 12), "on_validation_end": (6, 18), "on_train_end": (12, 18)}
    assert (first, len(module.seen)) == expected[hook]  # inside of validation the epoch's end is still to come


@pytest.mark.feature("T-07")
def test_a_loader_of_an_interrupted_epoch_has_no_open_workers() -> None:
    data = torch.utils.data.DataLoader(torch.zeros(8, 4), batch_size=2, num_workers=1)
    with pytest.raises(MineError):
        fit(Toy(raising), data)
    import multiprocessing

    assert multiprocessing.active_children() == []


@pytest.mark.feature("O-04", "M-11")
def test_flags_of_toggled_parameters_come_back_after_an_exception() -> None:
    class Two(Manual):
        def __init__(self) -> None:
            super().__init__()
            self.other = torch.nn.Linear(4, 1)

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net, self.other)]

        def training_step(self, batch: Any, batch_idx: int) -> None:
            with self.toggled_optimizer(self.optimizers()[0]):
                raise MineError

    module = Two()
    with pytest.raises(MineError):
        fit(module)
    assert all(p.requires_grad for p in module.parameters())

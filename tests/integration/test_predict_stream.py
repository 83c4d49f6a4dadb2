"""`predict`: what it returns, and `stream=True`, a run that stands still while the caller has an output."""

from __future__ import annotations

import signal
import weakref
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.errors import ArgumentTypeError, DataError, MisconfigurationException
from tests.integration.toys import Toy, fit, loader, quiet

pytestmark = pytest.mark.feature("T-13")


class Predictor(Toy):
    """Counts what was predicted and keeps no output."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout()
        self.predicted: list[tuple[int, int]] = []

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        assert self.training is False and torch.is_inference_mode_enabled()
        self.predicted.append((dataloader_idx, batch_idx))
        return {"out": self.dropout(self.net(batch[0])), "loader": dataloader_idx}


class Calls(L.Callback):
    """Names of the hooks that ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.names.append(f"setup {stage}")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.names.append(f"teardown {stage}")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self.names.append("start")

    def on_predict_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.names.append(f"batch {batch_idx}")

    def on_predict_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.names.append("epoch end")

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        self.names.append("end")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.names.append(f"exception {type(exception).__name__}")


ENDS = ["epoch end", "end", "teardown predict"]


def flat(predictions: Any) -> torch.Tensor:
    return torch.cat([p["out"] for p in predictions])


@pytest.mark.parametrize("limit", [1.0, 0.5, 2])
def test_a_stream_gives_what_predict_returns(limit: float) -> None:
    trainer, module = quiet(limit_predict_batches=limit), Predictor()
    whole = trainer.predict(module, loader())
    streamed = list(trainer.predict(module, loader(), stream=True))
    assert len(whole) == len(streamed) == {1.0: 6, 0.5: 3, 2: 2}[limit]
    assert torch.equal(flat(whole), flat(streamed))


@pytest.mark.filterwarnings("ignore:.*0 length")
def test_several_loaders_come_as_lists_and_as_numbered_outputs() -> None:
    trainer, module = quiet(), Predictor()
    loaders = [loader(4), loader(0), loader(6)]
    whole = trainer.predict(module, loaders)
    assert [len(outputs) for outputs in whole] == [2, 0, 3]
    streamed = list(trainer.predict(module, loaders, stream=True))
    assert [(index, batch) for index, batch, _ in streamed] == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    assert torch.equal(flat(whole[0] + whole[2]), flat(output for _, _, output in streamed))
    assert len(trainer.predict(module, [loader(4)])) == 2  # one loader in a list: no nesting
    assert [p["loader"] for p in trainer.predict(module, [loader(4)], stream=True)] == [0, 0]


def test_outputs_are_not_kept() -> None:
    trainer, module = quiet(), Predictor()
    assert trainer.predict(module, loader(), return_predictions=False) is None
    assert len(module.predicted) == 6
    seen: list[weakref.ref[Any]] = []
    for output in trainer.predict(module, loader(40), stream=True):
        seen.append(weakref.ref(output["out"]))
        del output
        assert sum(ref() is not None for ref in seen) <= 1
    assert len(seen) == 20


def test_a_run_begins_at_the_first_output_and_stands_still_in_between() -> None:
    calls = Calls()
    trainer, module = quiet(callbacks=calls), Predictor()
    stream = trainer.predict(module, loader(), stream=True)
    assert calls.names == []
    next(stream)
    assert calls.names == ["setup predict", "start", "batch 0"]
    next(stream)
    assert calls.names[3:] == ["batch 1"]
    assert module.predicted == [(0, 0), (0, 1)]
    assert len(list(stream)) == 4
    assert calls.names[-3:] == ENDS
    assert module.training and trainer.state.finished
    assert list(stream) == []


@pytest.mark.parametrize("way", ["close", "break", "forget"])
def test_a_stream_that_is_left_early_ends_well(way: str) -> None:
    calls = Calls()
    trainer, module = quiet(callbacks=calls), Predictor()
    if way == "break":
        for _ in trainer.predict(module, loader(), stream=True):
            break
    else:
        stream = trainer.predict(module, loader(), stream=True)
        next(stream)
        if way == "close":
            stream.close()
        else:
            del stream
    assert calls.names == ["setup predict", "start", "batch 0", *ENDS]
    assert module.training and trainer.state.finished and not trainer.predicting
    fit_again(trainer, module)


def test_a_stream_that_was_never_begun_does_nothing() -> None:
    calls = Calls()
    trainer, module = quiet(callbacks=calls), Predictor()
    trainer.predict(module, loader(), stream=True).close()
    assert calls.names == []
    fit_again(trainer, module)


def fit_again(trainer: Any, module: Any) -> None:
    trainer.fit(module, loader())
    assert trainer.global_step == 6


class Wrong(Exception):
    pass


def test_errors_of_a_step_keep_their_type_and_leave_the_trainer_usable() -> None:
    class Failing(Predictor):
        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            if batch_idx == 2:
                raise Wrong("third batch")
            return super().predict_step(batch, batch_idx)

    calls = Calls()
    trainer, module = quiet(callbacks=calls), Failing()
    stream = trainer.predict(module, loader(), stream=True)
    assert len([next(stream), next(stream)]) == 2
    with pytest.raises(Wrong, match="third batch") as caught:
        next(stream)
    assert any("predict" in note and "batch 2" in note for note in caught.value.__notes__)
    assert calls.names[-2:] == ["exception Wrong", "teardown predict"]
    assert module.training and torch.is_grad_enabled()
    fit_again(trainer, module)


def test_an_error_thrown_in_ends_the_run_as_an_error() -> None:
    calls = Calls()
    trainer, module = quiet(callbacks=calls), Predictor()
    stream = trainer.predict(module, loader(), stream=True)
    next(stream)
    with pytest.raises(Wrong):
        stream.throw(Wrong())
    assert calls.names[-2:] == ["exception Wrong", "teardown predict"]
    fit_again(trainer, module)


def test_an_error_of_an_end_hook_comes_out_of_close() -> None:
    class Bad(L.Callback):
        def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
            raise Wrong("at the end")

    trainer, module = quiet(callbacks=[Bad()]), Predictor()
    stream = trainer.predict(module, loader(), stream=True)
    next(stream)
    with pytest.raises(Wrong, match="at the end"):
        stream.close()
    fit_again(trainer, module)


def test_gradients_and_handlers_are_the_callers_in_between() -> None:
    trainer, module = quiet(), Predictor()
    before = signal.getsignal(signal.SIGINT)
    other = Toy()
    for _ in trainer.predict(module, loader(4), stream=True):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert signal.getsignal(signal.SIGINT) is before
        other.loss(next(iter(loader()))).backward()
    assert other.net.weight.grad is not None


def test_ctrl_c_during_a_batch_ends_the_stream() -> None:
    class Interrupted(Predictor):
        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            if batch_idx == 1:
                signal.raise_signal(signal.SIGINT)
            return super().predict_step(batch, batch_idx)

    calls = Calls()
    trainer, module = quiet(callbacks=calls), Interrupted()
    stream = trainer.predict(module, loader(), stream=True)
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert calls.names[-2:] == ["exception KeyboardInterrupt", "teardown predict"]
    fit_again(trainer, module)


@pytest.mark.parametrize("call", ["fit", "validate", "test", "predict", "stream"])
@pytest.mark.parametrize("shared", ["Trainer", "Predictor"])
def test_other_runs_are_refused_while_a_stream_stands_still(call: str, shared: str) -> None:
    trainer, module = quiet(), Predictor()
    stream = trainer.predict(module, loader(), stream=True)
    next(stream)
    other = (trainer, Predictor()) if shared == "Trainer" else (quiet(), module)
    with pytest.raises(MisconfigurationException, match=rf"this {shared} is in the middle of `predict\(stream=True\)`"):
        if call == "stream":
            next(other[0].predict(other[1], loader(), stream=True))
        else:
            getattr(other[0], call)(other[1], loader())
    assert len(list(stream)) == 5  # the refusal did not disturb it
    fit_again(other[0], other[1])


def test_streams_and_runs_of_other_trainers_and_modules_interleave() -> None:
    first, second = Predictor(), Predictor()
    one = quiet().predict(first, loader(), stream=True)
    two = quiet().predict(second, loader(8), stream=True)
    next(one)
    next(two)
    trainer = fit(Toy(), None, loader(4))
    assert "val_loss" in trainer.callback_metrics
    assert len(list(one)) == 5  # the first to begin ends first
    assert len(list(two)) == 3
    assert first.predicted == [(0, i) for i in range(6)]


def test_a_stream_inside_of_another_run_is_refused() -> None:
    class Inside(L.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            with pytest.raises(MisconfigurationException, match="another run of this Trainer"):
                next(trainer.predict(pl_module, loader(), stream=True))
            assert len(trainer.predict(pl_module, loader())) == 6

    trainer = fit(Predictor(), callbacks=Inside())
    assert trainer.global_step == 6


def test_seeding_between_outputs_is_the_callers_business() -> None:
    # Warnings are errors here: a run warns when it is seeded inside (W409).
    outputs = 0
    for _ in quiet().predict(Predictor(), loader(4), stream=True):
        L.seed_everything(1, verbose=False)
        outputs += 1
    assert outputs == 2


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"stream": 1}, ArgumentTypeError, r"predict\(stream=1\)"),
        ({"stream": "yes"}, ArgumentTypeError, "give True or False"),
        ({"stream": True, "return_predictions": False}, MisconfigurationException, "leave one of the two out"),
        ({"streams": True}, TypeError, "Did you mean 'stream'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        quiet().predict(Predictor(), loader(), **arguments)


def test_what_is_missing_is_said_at_the_call() -> None:
    with pytest.raises(DataError, match="predict"):
        quiet().predict(Predictor(), stream=True)


@pytest.mark.filterwarnings("ignore:.*0 length")
def test_no_data_is_an_error_at_the_first_output() -> None:
    stream = quiet().predict(Predictor(), loader(0), stream=True)
    with pytest.raises(DataError):
        next(stream)


def test_the_module_of_the_last_fit_serves() -> None:
    module = Predictor()
    trainer = fit(module)
    assert len(list(trainer.predict(dataloaders=DataLoader(loader().dataset, 4), stream=True))) == 3

"""What `training_step` may return and take, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fulmen as L
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import MisconfigurationException, StepOutputError
from tests.integration.toys import Manual, Toy, fit, loader, number_format, quiet, sgd_by_hand, stream, weights


def scalar(module: Toy, batch: Any, batch_idx: int) -> Any:
    return module.loss(batch)


def one_element(module: Toy, batch: Any, batch_idx: int) -> Any:
    return module.loss(batch).reshape(1)


def in_dict(module: Toy, batch: Any, batch_idx: int) -> Any:
    return {"loss": module.loss(batch), "extra": batch_idx}


@pytest.mark.feature("M-02")
@pytest.mark.parametrize("step", [scalar, in_dict])
@pytest.mark.parametrize("window", [1, 2])
def test_a_tensor_and_a_dict_train_the_same(step: Any, window: int) -> None:
    module = Toy(step)
    fit(module, accumulate_grad_batches=window)
    assert torch.equal(weights(module), sgd_by_hand(list(loader()), window=window))


@pytest.mark.feature("M-02")
def test_a_loss_of_one_element_trains() -> None:
    module = Toy(one_element)
    fit(module)
    assert torch.allclose(weights(module), sgd_by_hand(list(loader())))


class Ends(Toy):
    """Keeps what `on_train_batch_end` gets."""

    def __init__(self, step: Any) -> None:
        super().__init__(step)
        self.outputs: list[Any] = []

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.outputs.append(outputs)


@pytest.mark.feature("M-01", "M-02")
def test_outputs_of_a_batch_are_detached_and_keep_the_other_keys() -> None:
    extra = torch.ones(2)

    def step(module: Toy, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 0:
            return module.loss(batch)
        if batch_idx == 1:
            return {"loss": module.loss(batch), "extra": extra}
        return None

    module = Ends(step)
    fit(module, loader(6))
    first, second, third = module.outputs
    assert list(first) == ["loss"]
    assert not first["loss"].requires_grad
    assert list(second) == ["loss", "extra"]
    assert second["extra"] is extra
    assert third == {}


@pytest.mark.feature("M-02")
@pytest.mark.parametrize("nothing", [None, {"loss": None}])
def test_none_skips_the_update_and_is_not_counted(nothing: Any) -> None:
    skipped = {1, 4}

    def step(module: Toy, batch: Any, batch_idx: int) -> Any:
        return nothing if batch_idx in skipped else module.loss(batch)

    module = Toy(step)
    trainer = fit(module)
    expected = sgd_by_hand([b for i, b in enumerate(loader()) if i not in skipped])
    assert torch.equal(weights(module), expected)
    assert trainer.global_step == 4
    assert module.seen == [0, 1, 2, 3, 4, 5]


@pytest.mark.feature("M-02", "O-05")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "64-true"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("data", [loader, stream])
def test_none_anywhere_in_a_window_contributes_nothing(precision: str, place: int, data: Any) -> None:
    def step(module: Toy, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx == place else module.loss(batch)

    module = Toy(step)
    trainer = fit(module, data(6), accumulate_grad_batches=3, **number_format(precision))
    batches = [b for i, b in enumerate(loader(6)) if i != place]
    tolerance = 1e-6 if precision in ("32-true", "64-true") else 2e-2
    assert torch.allclose(weights(module).float(), sgd_by_hand(batches, window=2), atol=tolerance)
    assert not torch.equal(weights(module).float(), weights(Toy()))
    assert trainer.global_step == 1


@pytest.mark.feature("M-02", "O-05")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_a_window_without_any_loss_does_not_step(precision: str) -> None:
    def step(module: Toy, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx < 2 else module.loss(batch)

    module = Toy(step)
    trainer = fit(module, loader(8), accumulate_grad_batches=2, **number_format(precision))
    assert trainer.global_step == 1
    tolerance = 1e-6 if precision == "32-true" else 2e-2
    assert torch.allclose(weights(module), sgd_by_hand(list(loader(8))[2:], window=2), atol=tolerance)


@pytest.mark.feature("M-02")
@pytest.mark.filterwarnings("ignore:.*returned no loss in the whole epoch")
def test_a_step_that_never_gives_a_loss_changes_nothing() -> None:
    module = Toy(lambda *args: None)
    trainer = fit(module)
    assert torch.equal(weights(module), weights(Toy()))
    assert trainer.global_step == 0
    assert trainer.current_epoch == 1


# what the step returns, words of the message
WRONG: list[tuple[Any, tuple[str, ...]]] = [
    (lambda m, b, i: m.loss(b).item(), ("float", ".item()", "return the tensor itself")),
    (lambda m, b, i: 3, ("int 3", "scalar tensor")),
    (lambda m, b, i: True, ("bool True",)),
    (lambda m, b, i: "0.5", ("str '0.5'", "scalar tensor")),
    (lambda m, b, i: [m.loss(b)], ("list", "scalar tensor")),
    (lambda m, b, i: (m.loss(b), {}), ("tuple", "scalar tensor")),
    (lambda m, b, i: {"Loss": m.loss(b), "acc": 1}, ("without 'loss'", "['Loss', 'acc']", "automatic_optimization")),
    (lambda m, b, i: {}, ("without 'loss'", "automatic_optimization")),
    (lambda m, b, i: {"loss": 0.5}, ("float 0.5", "under 'loss'")),
    (lambda m, b, i: m.loss(b).detach(), ("needs no gradient", ".detach()", "no_grad")),
    (lambda m, b, i: {"loss": m.loss(b).detach()}, ("needs no gradient", ".item()")),
    (lambda m, b, i: m.net(b[0]), ("shape (2, 1)", ".mean()")),
    (lambda m, b, i: {"loss": m.net(b[0]).squeeze()}, ("shape (2,)", ".mean()")),
]


@pytest.mark.feature("M-02")
@pytest.mark.parametrize(("step", "words"), WRONG, ids=[w[1][0] for w in WRONG])
def test_a_wrong_return_is_an_error_before_backward(step: Any, words: tuple[str, ...]) -> None:
    backwards = []

    class Watching(Toy):
        def on_before_backward(self, loss: Tensor) -> None:
            backwards.append(loss)

    with pytest.raises(StepOutputError) as caught:
        fit(Watching(step))
    for word in ("Watching.training_step", *words):
        assert word in str(caught.value)
    assert backwards == []


@pytest.mark.feature("M-02")
def test_a_frozen_model_is_named_as_a_cause() -> None:
    module = Toy()
    module.freeze()
    module.train()
    with pytest.raises(StepOutputError, match="all parameters are frozen"):
        fit(module)


@pytest.mark.feature("M-02", "O-04")
@pytest.mark.parametrize(
    ("value", "outputs"),
    [(None, {}), (torch.tensor(1.0), {"loss": torch.tensor(1.0)}), ({"a": 1}, {"a": 1}), ({"loss": 1}, {"loss": 1})],
    ids=str,
)
def test_manual_steps_may_return_what_they_like_of_these(value: Any, outputs: Any) -> None:
    kept = []

    class Own(Manual):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            kept.append(outputs)

    fit(Own(lambda *args: value), loader(2))
    assert kept == [outputs]


@pytest.mark.feature("M-02", "O-04")
def test_a_wrong_return_in_manual_optimization() -> None:
    with pytest.raises(StepOutputError, match=r"Manual.training_step returned list .*manual optimization"):
        fit(Manual(lambda *args: [1]))


# --- signatures ----------------------------------------------------------------------------------------------------


class Base(L.LightningModule):
    """A module whose steps the tests add."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
        self.got: list[Any] = []

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def with_step(name: str, step: Any) -> Base:
    module = type("Stepping", (Base,), {name: step})()
    if name != "training_step":
        type(module).training_step = lambda self, batch: self.net(batch[0]).mean()
    return module  # type: ignore[no-any-return]  # made by `type`


def batch_only(self: Any, batch: Any) -> Any:
    self.got.append("batch")
    return self.net(batch[0]).mean()


def batch_and_index(self: Any, batch: Any, batch_idx: int) -> Any:
    self.got.append(batch_idx)
    return self.net(batch[0]).mean()


def other_names(self: Any, x: Any, i: int) -> Any:
    self.got.append(i)
    return self.net(x[0]).mean()


def star(self: Any, *args: Any) -> Any:
    self.got.append(len(args))
    return self.net(args[0][0]).mean()


def with_default(self: Any, batch: Any, batch_idx: int = -1, more: int = 7) -> Any:
    self.got.append((batch_idx, more))
    return self.net(batch[0]).mean()


@pytest.mark.feature("M-03")
@pytest.mark.parametrize(
    ("step", "got"),
    [
        (batch_only, ["batch"] * 2),
        (batch_and_index, [0, 1]),
        (other_names, [0, 1]),
        (star, [2, 2]),
        (with_default, [(0, 7), (1, 7)]),
    ],
)
@pytest.mark.parametrize("name", ["training_step", "validation_step", "test_step", "predict_step"])
def test_steps_take_a_batch_and_an_index_if_they_ask_for_it(step: Any, got: list[Any], name: str) -> None:
    module = with_step(name, step)
    trainer = quiet()
    call = {"training_step": trainer.fit, "validation_step": trainer.validate, "test_step": trainer.test}
    call.get(name, trainer.predict)(module, loader(4))
    assert module.got == got


def index_of_loader(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
    self.got.append((batch_idx, dataloader_idx))


def required_index(self: Any, batch: Any, batch_idx: int, dataloader_idx: int) -> None:
    self.got.append((batch_idx, dataloader_idx))


def third_of_another_name(self: Any, batch: Any, i: int, n: int = 0) -> None:
    self.got.append((i, n))


@pytest.mark.feature("M-03")
@pytest.mark.parametrize("step", [index_of_loader, required_index, third_of_another_name])
@pytest.mark.parametrize("name", ["validation_step", "test_step", "predict_step"])
def test_with_several_loaders_steps_get_the_loaders_index(step: Any, name: str) -> None:
    module = with_step(name, step)
    trainer = quiet()
    call = {"validation_step": trainer.validate, "test_step": trainer.test, "predict_step": trainer.predict}
    call[name](module, [loader(4), loader(2)])
    assert module.got == [(0, 0), (1, 0), (0, 1)]


def too_many(self: Any, batch: Any, batch_idx: int, what: int) -> None: ...


def nothing(self: Any) -> None: ...


def keyword(self: Any, batch: Any, *, stage: str) -> None: ...


def old_style(self: Any, batch: Any, batch_idx: int, optimizer_idx: int) -> None: ...


@pytest.mark.feature("M-03")
@pytest.mark.parametrize(
    ("step", "policy", "words"),
    [
        (too_many, None, "training_step(self, batch, batch_idx, what) cannot be called; it must be (self, batch)"),
        (nothing, None, "training_step(self) cannot be called"),
        (keyword, None, "training_step(self, batch, stage) cannot be called"),
        (old_style, Policy.lightning, "automatic_optimization = False"),
    ],
)
def test_a_training_step_that_cannot_be_called_is_an_error_at_the_start(step: Any, policy: Any, words: str) -> None:
    started = []

    class Watch(L.Callback):
        def setup(self, *args: Any) -> None:
            started.append(1)

    with pytest.raises(MisconfigurationException) as caught:
        fit(with_step("training_step", step), callbacks=Watch(), policy=policy)
    assert "Stepping.training_step" in str(caught.value)
    assert words in str(caught.value)
    assert started == []


@pytest.mark.feature("M-03")
@pytest.mark.parametrize("step", [too_many, nothing, keyword])
def test_a_wrong_validation_step_is_an_error_before_training(step: Any) -> None:
    module = with_step("validation_step", step)
    trained = []
    type(module).training_step = lambda self, batch: trained.append(1)
    with pytest.raises(MisconfigurationException, match=r"Stepping.validation_step\(.* cannot be called"):
        fit(module, loader(), loader())
    assert trained == []


@pytest.mark.feature("M-03")
def test_several_loaders_need_the_index() -> None:
    module = with_step("validation_step", batch_and_index)
    trained = []
    type(module).training_step = lambda self, batch: trained.append(1)
    with pytest.raises(MisconfigurationException, match=r"does not take `dataloader_idx`, but there are 2 loaders"):
        fit(module, loader(), [loader(), loader()])
    assert trained == []


@pytest.mark.feature("M-03")
def test_one_loader_does_not_give_the_index() -> None:
    module = with_step("validation_step", required_index)
    with pytest.raises(MisconfigurationException, match="make it optional, `dataloader_idx=0`"):
        quiet().validate(module, loader())


# --- steps that fetch their batches themselves -----------------------------------------------------------------------


def from_iterator(self: Any, dataloader_iter: Any) -> Any:
    batch, batch_idx, dataloader_idx = next(dataloader_iter)
    self.got.append((batch_idx, dataloader_idx))
    return self.net(batch[0]).mean()


@pytest.mark.feature("M-03")
@pytest.mark.parametrize("data", [loader, stream])
def test_a_step_may_take_an_iterator(data: Any) -> None:
    module = with_step("training_step", from_iterator)
    trainer = fit(module, data(6))
    assert module.got == [(0, 0), (1, 0), (2, 0)]
    assert trainer.global_step == 3


@pytest.mark.feature("M-03")
@pytest.mark.parametrize("name", ["validation_step", "test_step", "predict_step"])
def test_an_evaluation_step_may_take_an_iterator(name: str) -> None:
    module = with_step(name, from_iterator)
    trainer = quiet()
    call = {"validation_step": trainer.validate, "test_step": trainer.test, "predict_step": trainer.predict}
    call[name](module, [loader(4), loader(2)])
    assert module.got == [(0, 0), (1, 0), (0, 1)]


@pytest.mark.feature("M-03")
def test_a_step_may_fetch_several_batches_from_the_iterator() -> None:
    def two(self: Any, dataloader_iter: Any) -> Any:
        first, second = next(dataloader_iter), next(dataloader_iter, None)
        self.got.append([first[1]] + ([second[1]] if second else []))
        return self.net(first[0][0]).mean()

    module = with_step("training_step", two)
    trainer = fit(module, loader(10), max_epochs=2)
    assert module.got == [[0, 1], [2, 3], [4]] * 2
    assert trainer.global_step == 6
    assert trainer.current_epoch == 2


# --- Policy --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("M-02")
@pytest.mark.filterwarnings("ignore:.*returned no loss in the whole epoch")
def test_none_under_lightnings_policy_counts_a_step() -> None:
    module = Toy(lambda *args: None)
    trainer = fit(module, policy=Policy.lightning)
    assert trainer.global_step == 6


@pytest.mark.feature("M-02")
def test_a_forgotten_return_is_told_once() -> None:
    class Forgets(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.layer(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(torch.randn(4, 4))
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, barebones=False)
    with pytest.warns(UserWarning, match=r"Forgets\.training_step returned no loss.*return loss.*W606") as caught:
        trainer.fit(Forgets(), torch.utils.data.DataLoader(data, batch_size=2))
    assert sum("W606" in str(w.message) for w in caught) == 1


@pytest.mark.feature("M-02", "C-02")
def test_the_rest_of_an_epoch_without_a_loss_is_no_epoch_without_one() -> None:
    class Saves(Toy):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 0:
                self.trainer.save_checkpoint("a.ckpt")

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        return module.loss(batch) if batch_idx == 0 else None

    fit(Saves(step), loader(4))
    quiet().fit(Toy(step), loader(4), ckpt_path="a.ckpt")  # a warning would be an error here

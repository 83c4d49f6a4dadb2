"""Weights of losses in a window, batches without a finite loss, batches that do not fit into memory."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.errors import DataError, FulmenWarning, MisconfigurationException, StepOutputError
from fulmen.utilities.batch_weights import TokenCount
from tests.integration.toys import Manual, Toy, fit, loader, number_format, quiet, rows, weights

SKIPPED = "ignore:.*FULMEN-W613:fulmen.errors.FulmenWarning"
PARTS = "ignore:.*FULMEN-W614:fulmen.errors.FulmenWarning"
VOCABULARY = 7


class Tagger(L.LightningModule):
    """A tagger over sequences; labels of -100 are padding."""

    def __init__(self, ignore: int = -100, lr: float = 0.5, optimizer: Any = torch.optim.SGD) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.table = nn.Embedding(VOCABULARY, 5)
        self.head = nn.Linear(5, VOCABULARY)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.ignore, self.lr, self.optimizer = ignore, lr, optimizer
        self.outputs: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        tokens, labels = batch.values() if isinstance(batch, dict) else batch
        if (labels == self.ignore).all() and self.ignore == -1:
            return None
        logits = self.head(self.table(tokens))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=self.ignore)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.outputs.append(float(outputs["loss"]) if outputs else float("nan"))

    def configure_optimizers(self) -> Any:
        return self.optimizer(self.parameters(), lr=self.lr)


def sequences(count: int = 6, ignore: int = -100, empty: int | None = None) -> list[tuple[Tensor, Tensor]]:
    """Batches of other sizes and lengths each, a part of the labels ignored; batch `empty` has none left."""
    generator = torch.Generator().manual_seed(5)
    batches = []
    for index in range(count):
        shape = (1 + index % 3, 2 + 3 * (index % 4))
        tokens = torch.randint(0, VOCABULARY, shape, generator=generator)
        labels = torch.randint(0, VOCABULARY, shape, generator=generator)
        labels[torch.rand(shape, generator=generator) < 0.3] = ignore
        labels[0, 0] = 1
        if index == empty:
            labels[:] = ignore
        batches.append((tokens, labels))
    return batches


def big_batches(
    batches: list[tuple[Tensor, Tensor]], window: int, *, ignore: int = -100, clip: float | None = None
) -> Tensor:
    """Weights after steps over each window's sequences at once: one mean over all labels that count."""
    module = Tagger(ignore)
    optimizer = module.configure_optimizers()
    for start in range(0, len(batches), window):
        part = batches[start : start + window]
        logits = torch.cat([module.head(module.table(tokens)).flatten(0, 1) for tokens, _ in part])
        labels = torch.cat([labels.flatten() for _, labels in part])
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, labels, ignore_index=ignore).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    return weights(module)


def data(batches: Any) -> DataLoader[Any]:
    return DataLoader(batches, batch_size=None)


# --- accumulate_normalize --------------------------------------------------------------------------------------------


@pytest.mark.feature("O-06")
@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("policy", [L.Policy.right, L.Policy.lightning])
def test_token_weights_give_the_gradients_of_one_big_batch(window: int, clip: float | None, policy: L.Policy) -> None:
    batches = sequences(6)
    module = Tagger()
    trainer = fit(
        module,
        data(batches),
        accumulate_normalize="tokens",
        accumulate_grad_batches=window,
        gradient_clip_val=clip,
        policy=policy,
    )
    assert trainer.global_step == -(-6 // window)
    torch.testing.assert_close(weights(module), big_batches(batches, window, clip=clip), atol=1e-6, rtol=0)
    plain = Tagger()
    fit(plain, data(batches), accumulate_grad_batches=window, gradient_clip_val=clip)
    assert window == 1 or not torch.allclose(weights(plain), weights(module), atol=1e-4)


@pytest.mark.feature("O-06")
def test_outputs_show_the_loss_of_the_step() -> None:
    plain, weighed = Tagger(lr=0.0), Tagger(lr=0.0)
    fit(plain, data(sequences(4)), accumulate_grad_batches=2)
    fit(weighed, data(sequences(4)), accumulate_grad_batches=2, accumulate_normalize="tokens")
    assert weighed.outputs == pytest.approx(plain.outputs, abs=1e-6)


@pytest.mark.feature("O-06")
@pytest.mark.parametrize("empty", [0, 1, 3])
def test_a_batch_without_labels_or_loss_counts_nothing(empty: int) -> None:
    batches = sequences(4, empty=empty)
    module = Tagger()
    fit(module, data(batches), accumulate_normalize="tokens", accumulate_grad_batches=2)
    torch.testing.assert_close(weights(module), big_batches(batches, 2), atol=1e-6, rtol=0)
    batches = sequences(4, ignore=-1, empty=empty)
    module = Tagger(ignore=-1)  # gives `None` for it
    fit(module, data(batches), accumulate_normalize=TokenCount(ignore_index=-1), accumulate_grad_batches=2)
    torch.testing.assert_close(weights(module), big_batches(batches, 2, ignore=-1), atol=1e-6, rtol=0)


@pytest.mark.feature("O-06")
def test_sample_weights_and_functions() -> None:
    source = rows(11)
    parts = [(0, 4), (4, 5), (5, 11)]
    batches = [source[a:b] for a, b in parts]
    by_hand = Toy()
    optimizer = by_hand.configure_optimizers()
    by_hand.loss(source[0:11]).backward()
    optimizer.step()
    for way in ("samples", lambda batch: len(batch[0]), lambda batch: torch.tensor(float(len(batch[0])))):
        module = Toy()
        fit(module, data(batches), accumulate_normalize=way, accumulate_grad_batches=3)
        torch.testing.assert_close(weights(module), weights(by_hand), atol=1e-6, rtol=0)


@pytest.mark.feature("O-06")
@pytest.mark.parametrize("name", ["bf16-mixed", "16-mixed"])
def test_weights_under_mixed_precision(name: str) -> None:
    batches = sequences(5)
    module = Tagger()
    fit(
        module,
        data(batches),
        accumulate_normalize="tokens",
        accumulate_grad_batches=2,
        gradient_clip_val=0.5,
        **number_format(name),
    )
    torch.testing.assert_close(weights(module), big_batches(batches, 2, clip=0.5), atol=0.02, rtol=0)


@pytest.mark.feature("O-06")
def test_lbfgs_runs_a_window_several_times_with_the_same_weights() -> None:
    batches = sequences(2)
    module = Tagger(optimizer=torch.optim.LBFGS, lr=0.1)
    fit(module, data(batches), accumulate_normalize="tokens")
    other = Tagger(optimizer=torch.optim.LBFGS, lr=0.1)
    fit(other, data(batches))
    torch.testing.assert_close(weights(module), weights(other), atol=1e-5, rtol=0)


class SaveAt(L.Callback):
    def __init__(self, batch: int, path: Path) -> None:
        self.batch, self.path = batch, path

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == self.batch:
            trainer.save_checkpoint(self.path)


@pytest.mark.feature("O-06", "C-01")
@pytest.mark.parametrize("batch", [0, 1, 2, 3, 4])
def test_a_resume_inside_of_a_window_keeps_the_counts(batch: int, tmp_path: Path) -> None:
    batches = sequences(6)
    arguments: dict[str, Any] = {"accumulate_normalize": "tokens", "accumulate_grad_batches": 3}
    whole = Tagger()
    fit(whole, data(batches), callbacks=[SaveAt(batch, tmp_path / "a.ckpt")], **arguments)
    resumed = Tagger()
    quiet(**arguments).fit(resumed, data(batches), ckpt_path=tmp_path / "a.ckpt")
    assert torch.equal(weights(resumed), weights(whole))


PLACES: list[tuple[Any, Any, str]] = [
    ([1, 2], TokenCount(), "is no tensor in the batch (list of 2)"),
    ([torch.ones(2)], TokenCount(), "is not there in the batch (list of 1)"),
    ({"x": torch.ones(2)}, TokenCount(), "one of the keys labels, label, targets, target is not there"),
    ({"x": torch.ones(2)}, TokenCount(key="y"), "key 'y' is not there in the batch (dict with the keys ['x'])"),
    (torch.ones(2), TokenCount(), "is not there in the batch (Tensor)"),
]


@pytest.mark.feature("O-06")
@pytest.mark.parametrize(("batch", "count", "words"), PLACES)
def test_labels_that_are_not_found(batch: Any, count: TokenCount, words: str) -> None:
    with pytest.raises(DataError) as caught:
        count(batch)
    assert words in str(caught.value)


@pytest.mark.feature("O-06")
def test_where_labels_are_found() -> None:
    labels = torch.tensor([[1, -100, 2], [-100, -100, 3]])
    assert int(TokenCount()({"labels": labels, "x": labels * 0})) == 3
    assert int(TokenCount()({"label": labels})) == 3
    assert int(TokenCount(key="y")({"y": labels})) == 3
    assert int(TokenCount(key=0)([labels, labels * 0])) == 3
    assert int(TokenCount(ignore_index=2, shift=1)((None, labels))) == 3
    for wrong in ({"ignore_index": 1.5}, {"shift": True}):
        with pytest.raises(TypeError, match="must be an int"):
            TokenCount(**wrong)


@pytest.mark.feature("O-06")
@pytest.mark.parametrize(
    ("value", "words"), [("many", "'many'"), (-1, "-1"), (float("nan"), "nan"), (torch.ones(2), "tensor")]
)
def test_functions_that_return_no_number(value: Any, words: str) -> None:
    with pytest.raises(MisconfigurationException) as caught:
        fit(Toy(), accumulate_normalize=lambda batch: value)
    assert words in str(caught.value)
    assert "accumulate_normalize" in str(caught.value)


def two_optimizers(module: Any) -> Any:
    return [torch.optim.SGD([p], lr=0.1) for p in module.parameters()]


@pytest.mark.feature("O-06", "O-12", "O-13")
@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        (Manual(), {"accumulate_normalize": "tokens"}, ("accumulate_normalize='tokens'", "Manual.automatic_opt")),
        (Manual(), {"skip_bad_batches": 3}, ("skip_bad_batches=3", "automatic optimization only")),
        (Manual(), {"on_oom": "split"}, ("on_oom='split'", "automatic optimization only")),
        (Toy(optimizers=two_optimizers), {"accumulate_normalize": "samples"}, ("one optimizer", "returned 2")),
        (Toy(optimizers=two_optimizers), {"on_oom": "split"}, ("on_oom", "one optimizer")),
        (Toy(optimizers=lambda m: torch.optim.LBFGS(m.parameters())), {"on_oom": "split"}, ("LBFGS", "several times")),
    ],
)
def test_what_safeguards_do_not_go_with(module: Any, arguments: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(MisconfigurationException) as caught:
        fit(module, **arguments)
    assert all(word in str(caught.value) for word in words)
    assert module.seen == []


# --- skip_bad_batches ------------------------------------------------------------------------------------------------


class Bad(Toy):
    """The loss of some batches is spoilt; everything is logged."""

    def __init__(self, bad: dict[int, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bad = bad
        self.norm = nn.BatchNorm1d(4)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append(batch_idx)
        x = self.norm(batch[0] * self.bad[batch_idx] if self.bad.get(batch_idx) else batch[0])
        loss = nn.functional.mse_loss(self.net(x), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return None if batch_idx in self.bad and self.bad[batch_idx] is None else loss


BAD: dict[int, Any] = {1: float("nan"), 4: None, 5: float("inf")}


@pytest.mark.feature("O-13")
@pytest.mark.filterwarnings(SKIPPED)
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("policy", [L.Policy.right, L.Policy.lightning])
def test_bad_batches_leave_no_trace(window: int, policy: L.Policy) -> None:
    module = Bad(BAD)
    trainer = fit(module, skip_bad_batches=True, accumulate_grad_batches=window, policy=policy)
    by_hand = Bad({})
    optimizer = by_hand.configure_optimizers()
    batches = list(loader())
    losses, steps = [], 0
    for start in range(0, 6, window):
        good = [index for index in range(start, start + window) if index not in BAD]
        optimizer.zero_grad()
        for index in good:
            x, y = batches[index]
            loss = nn.functional.mse_loss(by_hand.net(by_hand.norm(x)), y)
            losses.append(float(loss.detach()))
            (loss / len(good)).backward()
        if good:
            optimizer.step()
            steps += 1
    torch.testing.assert_close(weights(module), weights(by_hand), atol=1e-6, rtol=0)
    torch.testing.assert_close(module.norm.running_mean, by_hand.norm.running_mean)
    assert int(module.norm.num_batches_tracked) == 3
    assert trainer.global_step == steps
    assert float(trainer.callback_metrics["loss_epoch"]) == pytest.approx(sum(losses) / len(losses), abs=1e-6)
    assert module.seen == list(range(6))


@pytest.mark.feature("O-13")
def test_the_warning_the_record_and_the_summary(tmp_path: Path, caplog: Any) -> None:
    source = rows()
    source.tensors[1][9, 0] = float("inf")
    module = Toy()
    trainer = quiet(skip_bad_batches=True, logger=True, default_root_dir=tmp_path)
    with pytest.warns(FulmenWarning) as caught, caplog.at_level("INFO"):
        trainer.fit(module, DataLoader(source, batch_size=2))
    text = [str(w.message) for w in caught if "W613" in str(w.message)]
    assert len(text) == 1
    assert "Toy.training_step gave the loss Inf for batch 4 of epoch 0 from train_dataloader" in text[0]
    assert "The batch itself is bad: batch[1] (1 Inf in 2 entries)." in text[0]
    assert "skip_bad_batches: 1 batch(es) without a finite loss were skipped." in caplog.text
    records = [json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    entry = next(r for r in records if r.get("kind") == "skipped_batch" or r.get("event") == "skipped_batch")
    assert (entry["batch"], entry["epoch"], entry["loss"]) == (4, 0, "Inf")
    assert torch.isfinite(weights(module)).all()


@pytest.mark.feature("O-13")
@pytest.mark.filterwarnings(SKIPPED)
def test_too_many_in_a_row_are_an_error() -> None:
    module = Bad({1: None, 3: None, 4: None, 5: None})
    with pytest.raises(StepOutputError) as caught:
        fit(module, skip_bad_batches=2)
    assert "3 bad batches in a row, more than the limit of 2" in str(caught.value)
    assert "batch 5 of epoch 0 from train_dataloader, with the loss None" in str(caught.value)
    fit(Bad({1: None, 3: None, 4: None}), skip_bad_batches=2)


@pytest.mark.feature("O-13", "C-01")
@pytest.mark.filterwarnings(SKIPPED)
@pytest.mark.parametrize("batch", [1, 4])
def test_counts_and_windows_survive_a_resume(batch: int, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"skip_bad_batches": 5, "accumulate_grad_batches": 3}
    whole = Bad(BAD)
    first = fit(whole, callbacks=[SaveAt(batch, tmp_path / "a.ckpt")], **arguments)
    resumed = Bad(BAD)
    second = quiet(**arguments)
    second.fit(resumed, loader(), ckpt_path=tmp_path / "a.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert second.callback_metrics["loss_epoch"] == first.callback_metrics["loss_epoch"]
    kept = torch.load(tmp_path / "a.ckpt", weights_only=False)["fulmen"]["position"]["window"]["guards"]["skipped"]
    assert kept["skipped"] == sum(index <= batch for index in BAD)


@pytest.mark.feature("O-13")
@pytest.mark.filterwarnings(SKIPPED)
@pytest.mark.parametrize("name", ["bf16-mixed", "16-mixed"])
def test_bad_batches_under_mixed_precision_and_with_two_optimizers(name: str) -> None:
    module = Bad(BAD)
    trainer = fit(module, skip_bad_batches=True, accumulate_grad_batches=2, **number_format(name))
    assert trainer.global_step == 2
    assert torch.isfinite(weights(module)).all()
    both = Bad(BAD, optimizers=two_optimizers)
    trainer = fit(both, skip_bad_batches=True)
    assert torch.isfinite(weights(both)).all()
    assert trainer.global_step == 3


@pytest.mark.feature("O-13", "O-15")
@pytest.mark.filterwarnings(SKIPPED)
def test_a_batch_with_one_bad_loss_of_several_is_left_out_for_all() -> None:
    class Named(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one, two = self.loss(batch), self.loss(batch) * (float("nan") if batch_idx == 2 else 1.0)
            before.append(weights(self).clone())
            return {"loss": {"0": one, "1": two}}

    before: list[torch.Tensor] = []
    module = Named(optimizers=two_optimizers)
    trainer = fit(module, skip_bad_batches=True)
    changed = [not torch.equal(a, b) for a, b in itertools.pairwise([*before, weights(module)])]
    assert changed == [index != 2 for index in range(len(before))]
    assert trainer.global_step == len(before) - 1


@pytest.mark.feature("O-13", "M-08")
def test_bad_batches_are_refused_with_optimizer_idx() -> None:
    class Old(Toy):
        def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:
            return self.loss(batch)

    with pytest.raises(MisconfigurationException, match=r"skip_bad_batches=.*does not go with Old\.training_step"):
        fit(Old(optimizers=two_optimizers), skip_bad_batches=True)


@pytest.mark.feature("O-13")
def test_without_the_option_a_nan_is_trained_on() -> None:
    module = Bad({1: float("nan")})
    fit(module)
    assert not torch.isfinite(weights(module)).all()


# --- on_oom ----------------------------------------------------------------------------------------------------------


class Large(Toy):
    """Runs out of memory for batches above `most`, where `fails` says."""

    def __init__(self, most: int = 1000, fails: str = "forward", error: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.most, self.fails = most, fails
        self.error = torch.OutOfMemoryError("simulated: out of memory") if error is None else error
        self.sizes: list[int] = []
        self.calls: list[str] = []
        self.shown: list[Any] = []
        self.drop = nn.Dropout(0.0)
        self.register_buffer("count", torch.zeros(()))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        self.sizes.append(len(x))
        self.count += 1
        self.drop(x)
        out = self.net(x)
        loss = nn.functional.mse_loss(out, y)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("rows", float(len(x)), reduce_fx="sum", on_step=False, on_epoch=True)
        self.log("most", out.max(), reduce_fx="max", on_step=False, on_epoch=True)
        if len(x) > self.most:
            if self.fails == "forward":
                raise self.error
            out.register_hook(self._raise)
        return {"loss": loss, "out": out.detach(), "mean": out.detach().mean()}

    def _raise(self, gradient: Tensor) -> None:
        raise self.error

    def on_before_zero_grad(self, optimizer: Any) -> None:
        self.calls.append("zero_grad")

    def on_before_backward(self, loss: Tensor) -> None:
        self.calls.append("before")

    def on_after_backward(self) -> None:
        self.calls.append("after")

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.calls.append("step")

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.shown.append((outputs["loss"].clone(), outputs["out"].clone(), outputs["mean"].clone()))


@pytest.mark.feature("O-12")
@pytest.mark.filterwarnings(PARTS)
@pytest.mark.parametrize("fails", ["forward", "backward"])
@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("most", [1, 3, 5])
def test_parts_give_what_the_whole_batch_gives(fails: str, window: int, most: int) -> None:
    arguments: dict[str, Any] = {"accumulate_grad_batches": window, "gradient_clip_val": 1.0, "max_epochs": 2}
    whole, parts = Large(), Large(most, fails)
    first = fit(whole, loader(20, 8), **arguments)
    second = fit(parts, loader(20, 8), on_oom="split", **arguments)
    torch.testing.assert_close(weights(parts), weights(whole), atol=1e-6, rtol=0)
    assert parts.calls == whole.calls
    for one, other in zip(parts.shown, whole.shown, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)
    assert set(first.callback_metrics) == set(second.callback_metrics)
    for key, value in first.callback_metrics.items():
        assert float(second.callback_metrics[key]) == pytest.approx(float(value), rel=1e-5), key
    assert max(parts.sizes[-3:]) <= most
    assert first.global_step == second.global_step


@pytest.mark.feature("O-12")
def test_the_size_that_fits_is_remembered_and_told_once() -> None:
    module = Large(most=3)
    with pytest.warns(FulmenWarning) as caught:
        fit(module, loader(24, 8), on_oom="split")
    assert module.sizes == [8, 4, 2, 2, 2, 2, *[2] * 8]
    text = [str(w.message) for w in caught if "W614" in str(w.message)]
    assert len(text) == 1
    assert "Large: a batch of 8 samples did not fit into memory" in text[0]


@pytest.mark.feature("O-12", "O-06")
@pytest.mark.filterwarnings(PARTS)
def test_parts_and_token_weights_together() -> None:
    class Small(Tagger):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if len(batch[0]) > 1:
                raise torch.OutOfMemoryError("out of memory")
            return super().training_step(batch, batch_idx)

    batches = sequences(6)
    module = Small()
    fit(module, data(batches), on_oom="split", accumulate_normalize="tokens", accumulate_grad_batches=2)
    torch.testing.assert_close(weights(module), big_batches(batches, 2), atol=1e-6, rtol=0)
    plain = Tagger()
    fit(plain, data(batches), accumulate_normalize="tokens", accumulate_grad_batches=2)
    assert module.outputs == pytest.approx(plain.outputs, abs=1e-6)


@pytest.mark.feature("O-12")
@pytest.mark.filterwarnings(PARTS)
def test_states_that_a_failed_attempt_changed_are_put_back() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")

    class Counts(Large):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.metric = torchmetrics.SumMetric()
            self.mean = torchmetrics.MeanMetric()
            self.draws: list[float] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.metric.update(len(batch[0]))
            self.mean(batch[1])
            self.draws.append(float(torch.rand(())))
            self.log("metric", self.mean)
            return super().training_step(batch, batch_idx)

    torch.manual_seed(1)
    module = Counts(most=4)
    ends: list[tuple[float, float, float]] = []
    module.on_train_epoch_end = lambda: ends.append(  # type: ignore[method-assign]
        (float(module.metric.compute()), float(module.mean.compute()), float(module.count))
    )
    data_of = loader(8, 8)
    trainer = fit(module, data_of, on_oom="split")
    assert module.draws[0] == module.draws[1]  # the failed attempt drew nothing
    assert ends == [(8.0, pytest.approx(float(rows(8).tensors[1].mean()), abs=1e-6), 2.0)]
    assert float(trainer.callback_metrics["rows"]) == 8.0


@pytest.mark.feature("O-12")
@pytest.mark.filterwarnings(PARTS)
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8000 bytes."),
        MemoryError(),
    ],
)
def test_errors_of_the_cpu_allocator_count_too(error: Exception) -> None:
    module = Large(most=4, error=error)
    fit(module, loader(8, 8), on_oom="split")
    assert module.sizes == [8, 4, 4]


@pytest.mark.feature("O-12")
@pytest.mark.filterwarnings(PARTS)
def test_what_cannot_be_mended_raises() -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        fit(Large(most=0), loader(8, 8), on_oom="split")
    assert "a single sample does not fit" in "".join(caught.value.__notes__)
    with pytest.raises(torch.OutOfMemoryError):
        fit(Large(most=4), loader(8, 8))
    with pytest.raises(ValueError, match="other"):
        fit(Large(most=4, error=ValueError("other")), loader(8, 8), on_oom="split")

    class Ragged(Large):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(DataError, match="do not share their first dimension: first dimensions in the batch: 2"):
        fit(Ragged(), data([(torch.zeros(2, 4), torch.zeros(3, 1))]), on_oom="split")
    with pytest.raises(MisconfigurationException, match=r"norm \(BatchNorm1d\)"):
        fit(Bad({}), on_oom="split")


@pytest.mark.feature("O-12", "O-13")
@pytest.mark.filterwarnings(PARTS, SKIPPED)
@pytest.mark.parametrize("window", [1, 2])
def test_a_bad_part_makes_the_batch_bad(window: int) -> None:
    class Spoilt(Large):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            output = super().training_step(batch, batch_idx)
            if batch_idx == 1 and len(self.sizes) % 2:
                output["loss"] = output["loss"] * float("nan")
            return output

    module = Spoilt(most=4)
    arguments: dict[str, Any] = {"skip_bad_batches": True, "accumulate_grad_batches": window}
    module.shown = []
    module.on_train_batch_end = lambda *_: None  # type: ignore[method-assign]
    fit(module, loader(24, 8), on_oom="split", **arguments)
    other = Large()
    fit(other, data([b for i, b in enumerate(loader(24, 8)) if i != 1]), **{**arguments, "accumulate_grad_batches": 1})
    assert torch.isfinite(weights(module)).all()
    torch.testing.assert_close(weights(module), weights(other), atol=1e-6, rtol=0)


@pytest.mark.feature("O-12", "C-01")
@pytest.mark.filterwarnings(PARTS)
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_resume_remembers_the_sizes(batch: int, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"on_oom": "split", "accumulate_grad_batches": 2}
    whole = Large(most=3)
    fit(whole, loader(24, 8), callbacks=[SaveAt(batch, tmp_path / "a.ckpt")], **arguments)
    resumed = Large(most=3)
    quiet(**arguments).fit(resumed, loader(24, 8), ckpt_path=tmp_path / "a.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert all(size <= 3 for size in resumed.sizes)


@pytest.mark.feature("O-12")
@pytest.mark.filterwarnings(PARTS)
@pytest.mark.parametrize("name", ["bf16-mixed", "16-mixed"])
def test_parts_under_mixed_precision(name: str) -> None:
    whole, parts = Large(), Large(most=4)
    fit(whole, loader(24, 8), **number_format(name))
    fit(parts, loader(24, 8), on_oom="split", **number_format(name))
    torch.testing.assert_close(weights(parts), weights(whole), atol=2e-3, rtol=0)


@pytest.mark.feature("O-12")
@pytest.mark.filterwarnings(PARTS)
def test_batches_of_all_kinds_are_cut() -> None:
    from fulmen.engine.loops.oom import parts_of

    batch = {
        "x": torch.arange(5),
        "texts": list("abcde"),
        "scalar": torch.tensor(3),
        "pair": (torch.ones(5, 2), "name"),
    }
    parts = list(parts_of(batch, 5, 2))
    assert [samples for _, samples in parts] == [1, 2, 2]
    assert [part["texts"] for part, _ in parts] == [["a"], ["b", "c"], ["d", "e"]]
    assert torch.equal(torch.cat([part["x"] for part, _ in parts]), batch["x"])
    assert all(int(part["scalar"]) == 3 and part["pair"][1] == "name" for part, _ in parts)
    assert [len(part["pair"][0]) for part, _ in parts] == [1, 2, 2]


@pytest.mark.feature("O-06", "O-12", "O-13")
def test_without_safeguards_nothing_of_them_runs() -> None:
    seen: list[str] = []

    class Looks(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            assert self.trainer.session is not None
            seen.append(type(self.trainer.session.optimization).__name__)
            return super().training_step(batch, batch_idx)

    fit(Looks())
    assert set(seen) == {"AutomaticStep"}


@pytest.mark.feature("O-12", "O-13")
def test_marks_copy_large_buffers_only_when_they_changed() -> None:
    from fulmen.engine.loops.marks import StateMarks

    module = nn.Module()
    module.register_buffer("mask", torch.ones(300, 300))
    module.register_buffer("small", torch.zeros(2))
    mask = module.mask
    marks = StateMarks(module, rng=False)
    marks.mark()
    copies = {id(copy) for _, copy in marks._copies.values()}
    marks.mark()
    assert len(copies & {id(copy) for _, copy in marks._copies.values()}) == 1
    module.mask.add_(1)
    module.small = torch.ones(2)
    marks.put_back()
    assert module.mask is mask
    assert float(module.mask.sum()) == 90000
    assert float(module.small.sum()) == 0


@pytest.mark.feature("O-13")
@pytest.mark.filterwarnings(SKIPPED)
def test_named_losses_of_two_optimizers_may_be_none_in_turn() -> None:
    class Turns(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            if batch_idx == 2:
                loss = loss * float("nan")
            return {"loss": {"0": loss if batch_idx % 2 == 0 else None, "1": loss if batch_idx % 2 else None}}

    module = Turns(optimizers=two_optimizers)
    trainer = fit(module, skip_bad_batches=True)
    assert trainer.session is None
    assert torch.isfinite(weights(module)).all()
    assert trainer.global_step == 5


@pytest.mark.feature("O-12")
@pytest.mark.filterwarnings(PARTS)
def test_gradients_that_no_optimizer_clears_are_whole_after_a_second_attempt() -> None:
    class Apart(Large):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.free = nn.Parameter(torch.ones(4))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return super().training_step((x * self.free, y), batch_idx)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

    whole, parts = Apart(), Apart(most=4, fails="backward")
    fit(whole, loader(16, 8))
    fit(parts, loader(16, 8), on_oom="split")
    assert whole.free.grad is not None
    assert parts.free.grad is not None
    torch.testing.assert_close(parts.free.grad, whole.free.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.feature("O-06", "O-12", "O-13")
def test_a_run_ends_with_its_own_store_and_what_a_failing_step_logged_is_dropped() -> None:
    class Fails(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("loss", self.loss(batch))
            if batch_idx == 2:
                raise ValueError("mine")
            return self.loss(batch)

    module = Fails()
    with pytest.raises(ValueError, match="mine") as caught:
        fit(module, skip_bad_batches=True, on_oom="split", accumulate_normalize="samples")
    assert "`training_step` of Fails: stage train, epoch 0, batch 2" in "".join(caught.value.__notes__)

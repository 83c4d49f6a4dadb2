"""Each field of `Policy` in both settings; the test of a field is named after it."""

from __future__ import annotations

import dataclasses
import os
import signal
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset, IterableDataset

import fulmen as L
from fulmen.callbacks import EarlyStopping, ModelCheckpoint
from fulmen.engine.precision import MixedPrecision
from fulmen.engine.runtime.policy import Policy, default_policy, set_default_policy
from fulmen.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DataError,
    FulmenWarning,
    LoggingError,
    MisconfigurationException,
)
from fulmen.loggers import CSVLogger
from tests.integration.toys import Manual, Toy, fit, loader, quiet, rows, sgd_by_hand, weights

FIELDS = [f.name for f in dataclasses.fields(Policy)]


def both(field: str) -> pytest.MarkDecorator:
    """Run a test with one field on and off, from each preset: the other fields must not matter."""
    policies = [
        pytest.param(preset.replace(**{field: on}), on, id=f"{field}={on}, else {name}")
        for on in (True, False)
        for name, preset in (("right", Policy.right), ("lightning", Policy.lightning))
    ]
    return pytest.mark.parametrize(("policy", "on"), policies)


def float16(**scaler: Any) -> dict[str, Any]:
    return {"plugins": MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", **scaler))}


# --- numbers and counting --------------------------------------------------------------------------------------------


@pytest.mark.feature("O-05")
@both("accumulate_actual_window")
def test_accumulate_actual_window(policy: Policy, on: bool) -> None:
    module = Toy()
    fit(module, loader(10), accumulate_grad_batches=3, policy=policy)
    expected = sgd_by_hand(list(loader(10)), window=3, divisor=lambda count: count if on else 3)
    assert torch.allclose(weights(module), expected, atol=1e-6)


class Pair(Manual):
    """Steps two optimizers per batch, one of them raw if asked."""

    def __init__(self, *, raw: bool) -> None:
        super().__init__()
        self.other = nn.Linear(1, 1)
        self.raw = raw

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers(use_pl_optimizer=not self.raw):
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch) + self.other.weight.sum())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [SGD(self.net.parameters(), lr=0.01), SGD(self.other.parameters(), lr=0.01)]


@pytest.mark.feature("O-01", "O-04")
@both("count_batches")
@pytest.mark.parametrize("raw", [True, False])
def test_count_batches(policy: Policy, on: bool, raw: bool) -> None:
    trainer = fit(Pair(raw=raw), loader(8), policy=policy)
    assert trainer.global_step == (4 if on else 0 if raw else 8)


class Overflowing(Toy):
    """The second of three batches has no finite gradients."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch) * (float("inf") if batch_idx == 1 else 1.0)

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


@pytest.mark.feature("O-03")
@both("skip_scheduler_on_overflow")
def test_skip_scheduler_on_overflow(policy: Policy, on: bool) -> None:
    trainer = fit(Overflowing(), loader(6), policy=policy, **float16(init_scale=8.0))
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.5 ** (2 if on else 3))
    assert trainer.global_step == (2 if on else 3)


@pytest.mark.feature("O-04", "O-07")
@both("unscale_before_manual_clip")
def test_unscale_before_manual_clip(policy: Policy, on: bool) -> None:
    def step(module: Any, batch: Any, batch_idx: int) -> None:
        optimizer = module.optimizers()
        optimizer.zero_grad()
        module.manual_backward(100 * module.loss(batch))
        module.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        optimizer.step()

    module = Manual(step)
    before = weights(module)
    fit(module, loader(2), policy=policy, **float16(init_scale=8.0))
    # Clipped while they are multiplied by 8, gradients come out 8 times too small.
    assert float((weights(module) - before).norm()) == pytest.approx(0.05 if on else 0.05 / 8, rel=1e-2)


@pytest.mark.feature("M-02")
@both("none_loss_skips_step")
def test_none_loss_skips_step(policy: Policy, on: bool) -> None:
    class Decaying(Toy):
        """Adam's momentum moves the weights even without a gradient, if its step is called."""

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx else self.loss(batch)

        def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
            optimizer.zero_grad(set_to_none=False)

        def configure_optimizers(self) -> Any:
            return SGD(self.parameters(), lr=0.1, momentum=0.9)

    once, module = Decaying(), Decaying()
    fit(once, loader(6), policy=policy, limit_train_batches=1)
    trainer = fit(module, loader(6), policy=policy)
    assert torch.equal(weights(module), weights(once)) == on
    assert trainer.global_step == (1 if on else 3)


@pytest.mark.feature("O-08", "O-05")
@both("closure_keeps_window")
def test_closure_keeps_window(policy: Policy, on: bool) -> None:
    def lbfgs(module: Any) -> Any:
        return torch.optim.LBFGS(module.parameters(), lr=0.5, max_iter=3, tolerance_grad=0, tolerance_change=0)

    module = Toy(optimizers=lbfgs)
    fit(module, loader(4), policy=policy, accumulate_grad_batches=2)
    by_hand = Toy()
    optimizer = lbfgs(by_hand)
    first, last = list(loader(4))
    (by_hand.loss(first) / 2).backward()
    kept = [p.grad.clone() for p in by_hand.parameters() if p.grad is not None]

    def closure() -> Any:
        if on:
            for param, gradient in zip(by_hand.parameters(), kept, strict=True):
                param.grad = gradient.clone()
        loss = by_hand.loss(last) / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    assert torch.equal(weights(module), weights(by_hand))


@pytest.mark.feature("O-15", "M-08")
@both("several_optimizers")
def test_several_optimizers(policy: Policy, on: bool) -> None:
    class Indexed(Toy):
        def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:  # type: ignore[override]
            self.seen.append(optimizer_idx)
            return self.loss(batch)

    def two(module: Any) -> Any:
        return [SGD([module.net.weight], lr=0.1), SGD([module.net.bias], lr=0.1)]

    module, indexed = Toy(optimizers=two), Indexed(optimizers=two)
    if on:
        fit(module, policy=policy)
        assert torch.equal(weights(module), sgd_by_hand(list(loader())))
        fit(indexed, loader(4), policy=policy)
        assert indexed.seen == [0, 1, 0, 1]
        return
    with pytest.raises(MisconfigurationException, match=r"2 optimizers.*automatic_optimization = False"):
        fit(module, policy=policy)
    with pytest.raises(
        MisconfigurationException, match=r"training_step\(self, batch, batch_idx, optimizer_idx\) cannot"
    ):
        fit(indexed, policy=policy)
    assert module.seen == indexed.seen == []


@pytest.mark.feature("O-03")
@both("scheduler_counts_updates")
@pytest.mark.parametrize("how", ["plain", "accumulated", "skipped"])
def test_scheduler_counts_updates(policy: Policy, on: bool, how: str) -> None:
    class Rates(Toy):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if how == "skipped" and batch_idx == 3 else None

        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), lr=1e-9)
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda calls: 2.0**-calls)
            return [optimizer], [{"scheduler": scheduler, "interval": "step", "frequency": 2}]

    # Batches of an epoch, batches of a window; calls of the scheduler in two epochs, with and without the field.
    count, window, calls = {"plain": (5, 1, (5, 4)), "accumulated": (6, 3, (2, 2)), "skipped": (6, 1, (3, 4))}[how]
    trainer = fit(Rates(), loader(2 * count), policy=policy, max_epochs=2, accumulate_grad_batches=window)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 1e-9 * 2.0 ** -calls[0 if on else 1]


@pytest.mark.feature("O-03")
@both("plateau_waits")
def test_plateau_waits(policy: Policy, on: bool) -> None:
    class Plateau(Toy):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), lr=0.0)  # the value never gets better
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=10)
            self.scheduler = scheduler
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}

        def on_train_start(self) -> None:
            if not on:  # else the first epoch is an error
                self.trainer.callback_metrics["val_loss"] = torch.tensor(1e9)

    module = Plateau()
    fit(module, loader(4), loader(2), policy=policy, max_epochs=5, check_val_every_n_epoch=2)
    assert module.scheduler.last_epoch == (2 if on else 5)
    if not on:
        Plateau.on_train_start = Toy.on_train_start  # type: ignore[method-assign]
        with pytest.raises(MisconfigurationException, match="'val_loss', which was not logged"):
            fit(Plateau(), loader(4), loader(2), policy=policy, max_epochs=5, check_val_every_n_epoch=2)


@pytest.mark.feature("L-01")
@both("keep_integers")
def test_keep_integers(policy: Policy, on: bool) -> None:
    class Logging(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("count", 2**24 + 1, reduce_fx="max")

    trainer = quiet(policy=policy)
    (result,) = trainer.validate(Logging(), loader(2), verbose=False)
    assert result["count"] == (2**24 + 1 if on else 2**24)


@pytest.mark.feature("O-01")
@both("cpu_fp16_is_fp16")
def test_cpu_fp16_is_fp16(policy: Policy, on: bool) -> None:
    types: list[torch.dtype] = []

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        types.append(module.net(batch[0]).dtype)
        return module.loss(batch)

    trainer = quiet(policy=policy, precision="16-mixed")
    trainer.fit(Toy(step), loader(2))
    assert types == [torch.float16 if on else torch.bfloat16]
    assert (trainer.scaler is not None) == on


# --- flow ------------------------------------------------------------------------------------------------------------


def failing(*args: Any) -> None:
    raise ValueError("mine")


@pytest.mark.feature("T-07")
@both("teardown_after_exception")
def test_teardown_after_exception(policy: Policy, on: bool) -> None:
    calls: list[str] = []

    class Watch(L.Callback):
        def teardown(self, *args: Any) -> None:
            calls.append("callback")

    class Module(Toy):
        def teardown(self, stage: str) -> None:
            calls.append("module")

    class Data(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            return loader()

        def teardown(self, stage: str) -> None:
            calls.append("data")

    with pytest.raises(ValueError, match="mine"):
        quiet(policy=policy, callbacks=Watch()).fit(Module(failing), Data())
    assert calls == (["data", "callback", "module"] if on else [])


@pytest.fixture
def own_signals() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.feature("T-07")
@pytest.mark.usefixtures("own_signals")
@both("raise_keyboard_interrupt")
def test_raise_keyboard_interrupt(policy: Policy, on: bool, tmp_path: Path) -> None:
    ended: list[int] = []

    class Stopped(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return super().training_step(batch, batch_idx)

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            ended.append(batch_idx)

    trainer = quiet(policy=policy, enable_checkpointing=True, callbacks=ModelCheckpoint(dirpath=tmp_path))
    with pytest.raises(KeyboardInterrupt if on else SystemExit) as caught:
        trainer.fit(Stopped(), loader())
    assert ended == ([0, 1, 2] if on else [0, 1])
    assert [path.name for path in tmp_path.glob("*.ckpt")] == (["last.ckpt"] if on else [])
    if not on:
        assert caught.value.code == 1  # type: ignore[attr-defined]  # of SystemExit


@pytest.mark.feature("T-14")
@both("refit_checked")
def test_refit_checked(policy: Policy, on: bool) -> None:
    module = Toy()
    trainer = fit(module, policy=policy)
    seen = len(module.seen)
    if on:
        with pytest.raises(MisconfigurationException, match=r"nothing left to train.*additional_epochs=1"):
            trainer.fit(module, loader())
    else:
        trainer.fit(module, loader())
    assert len(module.seen) == seen
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, loader())
    assert len(module.seen) == 2 * seen


@pytest.mark.feature("K-01")
@both("monitors_last")
def test_monitors_last(policy: Policy, on: bool) -> None:
    order: list[str] = []

    class Stopping(EarlyStopping):
        def on_validation_end(self, *args: Any) -> None:
            order.append("decides")
            super().on_validation_end(*args)

    class Other(L.Callback):
        def on_validation_end(self, *args: Any) -> None:
            order.append("other")

    class Module(Toy):
        def on_validation_end(self) -> None:
            order.append("module")

    fit(Module(), loader(2), loader(2), policy=policy, callbacks=[Stopping("val_loss"), Other()])
    assert order == (["other", "module", "decides"] if on else ["decides", "other", "module"])


@pytest.mark.feature("L-01", "L-02")
@both("counts_first_batch")
def test_counts_first_batch(policy: Policy, on: bool) -> None:
    class Turns(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            self.log("before", 1.0, on_step=False, on_epoch=True, reduce_fx="sum")
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()
            self.log("after", 1.0, on_step=False, on_epoch=True, reduce_fx="sum")

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.log("between", 1.0, on_step=False, on_epoch=True, reduce_fx="sum")

    trainer = fit(Turns(), policy=policy, max_epochs=2)
    assert dict(trainer.callback_metrics) == {"before": 6.0 if on else 5.0, "after": 6.0, "between": 6.0}


@pytest.mark.feature("L-08")
@both("named_loaders")
def test_named_loaders(policy: Policy, on: bool) -> None:
    class Named(Toy):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("v", float(dataloader_idx))

    trainer = fit(Named(), None, {"clean": loader(4), "noisy": loader(2)}, policy=policy)
    names = ["clean", "noisy"] if on else ["dataloader_idx_0", "dataloader_idx_1"]
    assert dict(trainer.callback_metrics) == {f"v/{names[0]}": 0.0, f"v/{names[1]}": 1.0}


@pytest.mark.feature("L-08")
@both("merge_loaders")
def test_merge_loaders(policy: Policy, on: bool) -> None:
    class Merges(Toy):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("v", float(dataloader_idx), add_dataloader_idx=False)

    trainer, loaders = quiet(policy=policy), [loader(6), loader(2)]
    if on:
        assert trainer.validate(Merges(), loaders, verbose=False) == [{"v": 0.25}, {"v": 0.25}]
        assert trainer.callback_metrics["v"].item() == 0.25
    else:
        with pytest.raises(LoggingError, match=r"'v'.*second loader.*add_dataloader_idx=False.*another name"):
            trainer.validate(Merges(), loaders, verbose=False)


@pytest.mark.feature("C-01")
@both("last_is_newest")
def test_last_is_newest(policy: Policy, on: bool, tmp_path: Path) -> None:
    class Worsening(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("v", float(self.current_epoch))

    callback = ModelCheckpoint(dirpath=tmp_path, monitor="v", save_top_k=1, save_last=True)
    arguments: dict[str, Any] = {"max_epochs": 3, "enable_checkpointing": True, "policy": policy}
    fit(Worsening(), loader(), loader(2), callbacks=callback, **arguments)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert last["global_step"] == (18 if on else 6)


class Recovering(Toy):
    """Its value worsens in the second epoch and is better than ever from the third on; notes its validations."""

    def __init__(self) -> None:
        super().__init__()
        self.validated: list[int] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        epoch = self.current_epoch
        self.log("v", 2.0 if epoch == 1 else 1.0 / (1 + epoch))

    def on_validation_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.validated.append(self.trainer.global_step)


@pytest.mark.feature("K-02", "T-03")
@both("stops_anew")
def test_stops_anew(policy: Policy, on: bool) -> None:
    callback = EarlyStopping("v", patience=1)
    arguments: dict[str, Any] = {"max_epochs": 6, "min_epochs": 4, "policy": policy, "callbacks": callback}
    with pytest.warns(UserWarning, match="min_epochs=4"):
        trainer = fit(Recovering(), loader(), loader(2), **arguments)
    assert trainer.current_epoch == (6 if on else 4)
    assert trainer.should_stop is not on


@pytest.mark.feature("C-01")
@both("monitors_wait")
def test_monitors_wait(policy: Policy, on: bool, tmp_path: Path) -> None:
    class ByStep(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("v", float(self.trainer.global_step))

    callback = ModelCheckpoint(
        tmp_path, "{step}-{v:.0f}", monitor="v", save_top_k=-1, every_n_train_steps=2, auto_insert_metric_name=False
    )
    arguments: dict[str, Any] = {"max_epochs": 1, "val_check_interval": 3, "enable_checkpointing": True}
    fit(ByStep(), loader(12), loader(2), callbacks=callback, policy=policy, num_sanity_val_steps=0, **arguments)
    # Validations after 3 and 6 of 6 steps, occasions after 2, 4 and 6: there is no value yet at the first, and
    # Lightning too waits at the last batch of an epoch.
    names = sorted(path.stem for path in tmp_path.iterdir() if path.suffix == ".ckpt")
    assert names == (["3-3", "6-6"] if on else ["3-3", "4-3", "6-6"])


@pytest.mark.feature("T-03", "T-04")
@both("end_validates")
def test_end_validates(policy: Policy, on: bool, tmp_path: Path) -> None:
    module = Recovering()
    callback = ModelCheckpoint(tmp_path, "{step}", monitor="v", save_on_train_epoch_end=False, save_top_k=-1)
    arguments: dict[str, Any] = {"max_epochs": -1, "max_steps": 9, "enable_checkpointing": True}
    fit(module, loader(12), loader(2), callbacks=callback, policy=policy.replace(last_is_newest=False), **arguments)
    assert module.validated == ([6, 9] if on else [6])
    names = sorted(path.stem for path in tmp_path.iterdir() if path.suffix == ".ckpt")
    assert names == (["step=6", "step=9"] if on else ["step=6"])


@pytest.mark.feature("T-03")
@both("end_validates")
def test_end_validates_after_a_stop_in_an_epoch_without_validation(policy: Policy, on: bool) -> None:
    class Stopping(Recovering):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.trainer.should_stop = self.trainer.global_step >= 7
            return super().training_step(batch, batch_idx)

    module = Stopping()
    fit(module, loader(12), loader(2), policy=policy, max_epochs=5, check_val_every_n_epoch=3)
    assert module.validated == ([8] if on else [])


@pytest.mark.feature("C-02", "T-03")
@both("end_validates")
def test_end_validates_after_a_resume_at_the_last_batch(policy: Policy, on: bool, tmp_path: Path) -> None:
    """A checkpoint of the batch that `max_steps` ends at goes on with what follows it: validation, the epoch's end."""

    class Ends(Recovering):
        def on_train_epoch_end(self) -> None:
            self.validated.append(-self.trainer.global_step)

        def on_train_batch_end(self, *args: Any) -> None:
            if self.trainer.global_step == 9 and not (tmp_path / "x.ckpt").exists():
                self.trainer.save_checkpoint(tmp_path / "x.ckpt")

    whole, rest = Ends(), Ends()
    fit(whole, loader(12), loader(2), policy=policy, max_epochs=-1, max_steps=9)
    assert whole.validated == ([6, -6, 9, -9] if on else [6, -6, -9])
    trainer = quiet(policy=policy, max_epochs=-1, max_steps=9)
    trainer.fit(rest, loader(12), loader(2), ckpt_path=tmp_path / "x.ckpt")
    assert rest.validated == ([9, -9] if on else [])
    assert trainer.current_epoch == (2 if on else 1)
    assert torch.equal(weights(rest), weights(whole))


@pytest.mark.feature("T-03")
@both("min_steps_alone")
def test_min_steps_alone(policy: Policy, on: bool) -> None:
    class Stopping(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.trainer.should_stop = True
            return super().training_step(batch, batch_idx)

    with pytest.warns(UserWarning, match="min_steps=2"):
        trainer = fit(Stopping(), loader(12), policy=policy, max_epochs=3, min_steps=2)
    assert trainer.global_step == (2 if on else 6)


@pytest.mark.feature("T-02", "C-03")
@both("evaluates_at_checkpoint")
@pytest.mark.parametrize("call", ["validate", "test"])
def test_evaluates_at_checkpoint(policy: Policy, on: bool, call: str, tmp_path: Path) -> None:
    class Steps(Toy):
        seen: tuple[int, int] = (0, 0)

        def on_validation_start(self) -> None:
            type(self).seen = (self.trainer.global_step, self.trainer.current_epoch)

        on_test_start = on_validation_start

    first = fit(Toy(), loader(12), max_epochs=2, policy=policy)
    first.save_checkpoint(tmp_path / "x.ckpt")
    logger = CSVLogger(tmp_path)
    trainer = quiet(policy=policy, logger=logger)
    getattr(trainer, call)(Steps(), loader(2), ckpt_path=tmp_path / "x.ckpt", verbose=False)
    (line,) = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[1:]
    header = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0].split(",")
    row = dict(zip(header, line.split(","), strict=True))
    assert (row["step"], row["epoch"]) == (("12", "2") if on else ("0", "0"))
    assert Steps.seen == ((12, 2) if on else (0, 0))
    assert (trainer.global_step, trainer.current_epoch) == (0, 0)


class Lying(IterableDataset[Any]):
    """Has 5 batches and says 8."""

    def __len__(self) -> int:
        return 16

    def __iter__(self) -> Any:
        data = rows(10)
        return (data[index] for index in range(len(data)))


@pytest.mark.feature("D-01", "T-03")
@pytest.mark.filterwarnings("ignore:.*the data ended after 5 batches")
@pytest.mark.filterwarnings("ignore:Length of IterableDataset:UserWarning")
@both("ends_with_data")
def test_ends_with_data(policy: Policy, on: bool) -> None:
    validated: list[int] = []

    class Module(Toy):
        def on_validation_start(self) -> None:
            validated.append(len(self.seen))

    module = Module()
    trainer = fit(module, DataLoader(Lying(), batch_size=2), loader(2), policy=policy, max_epochs=2)
    assert module.seen == [0, 1, 2, 3, 4] * 2
    assert validated == ([5, 10] if on else [])
    assert trainer.current_epoch == 2


@pytest.mark.feature("D-02")
@both("ends_with_data")
def test_ends_with_data_or_with_a_stop_iteration(policy: Policy, on: bool) -> None:
    class Stops(Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return rows(8)[index] if index < 5 else next(iter(()))

    module = Toy()
    if on:
        with pytest.raises(DataError, match="train_dataloader: a StopIteration was raised while batch 2 was read"):
            fit(module, DataLoader(Stops(), batch_size=2), policy=policy)
    else:
        with pytest.warns(FulmenWarning, match="ended after 2 batches although len.. of the loader says 4"):
            fit(module, DataLoader(Stops(), batch_size=2), policy=policy)
    assert module.seen == [0, 1]


@pytest.mark.feature("D-02")
@both("empty_data_raises")
def test_empty_data_raises(policy: Policy, on: bool) -> None:
    empty = DataLoader(rows(3), batch_size=4, drop_last=True)
    words = "train_dataloader.*no batches.*3 samples, fewer than batch_size=4.*drop_last=False"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*has 0 length")
        if on:
            with pytest.raises(DataError, match=words):
                fit(Toy(), empty, policy=policy)
        else:
            fit(Toy(), empty, policy=policy)


@pytest.mark.feature("S-06")
@both("survive_logger_failure")
def test_survive_logger_failure(policy: Policy, on: bool, tmp_path: Path) -> None:
    class Away(CSVLogger):
        def log_metrics(self, metrics: Any, step: Any = None) -> None:
            raise ConnectionError("server is away")

    module = Toy(step=lambda module, batch, batch_idx: module.log("a", 1.0) or module.loss(batch))
    call = partial(fit, module, policy=policy, logger=Away(tmp_path), log_every_n_steps=1)
    if on:
        with pytest.warns(FulmenWarning, match="W320"), pytest.warns(FulmenWarning, match="W319"):
            call()
    else:
        with pytest.raises(ConnectionError, match="server is away"):
            call()
    assert len(module.seen) == (6 if on else 1)


@pytest.mark.feature("G-02")
@both("run_record")
def test_run_record(policy: Policy, on: bool, tmp_path: Path) -> None:
    fit(Toy(), policy=policy, logger=CSVLogger(tmp_path), log_every_n_steps=1)
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == (["run.jsonl"] if on else [])


@pytest.mark.feature("P-05")
@both("old_epoch_end_warns")
def test_old_epoch_end_warns(policy: Policy, on: bool) -> None:
    module = type("Old", (Toy,), {"training_epoch_end": lambda self, outputs: None})()
    if on:
        with pytest.warns(FulmenWarning, match=r"Old\.training_epoch_end .*never called\. Use `on_train_epoch_end`"):
            fit(module, loader(2), policy=policy)
    else:
        with pytest.raises(NotImplementedError, match=r"Old\.training_epoch_end .*Use `on_train_epoch_end`"):
            fit(module, loader(2), policy=policy)


@pytest.mark.feature("M-07")
@both("unknown_arguments_raise")
def test_unknown_arguments_raise(policy: Policy, on: bool, tmp_path: Path) -> None:
    class Small(L.LightningModule):
        def __init__(self, width: int = 1) -> None:
            super().__init__()
            self.save_hyperparameters()

    torch.save({"state_dict": {}, "hyper_parameters": {"width": 3}}, tmp_path / "a.ckpt")
    words = r"'widht' is no argument of Small.*Did you mean 'width'\? Its arguments: width\. Stored .*: width"
    former = set_default_policy(policy)  # there is no Trainer to ask
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*the checkpoint has no weights")
            if on:
                with pytest.raises(ArgumentTypeError, match=words):
                    Small.load_from_checkpoint(tmp_path / "a.ckpt", widht=4)
            else:
                with pytest.warns(FulmenWarning, match=words):
                    assert Small.load_from_checkpoint(tmp_path / "a.ckpt", widht=4).hparams.width == 3
    finally:
        set_default_policy(former)


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-01")
def test_every_field_has_a_test_in_both_settings() -> None:
    for field in FIELDS:
        test = globals().get(f"test_{field}")
        assert test is not None, f"write test_{field}, marked with @both({field!r})"
        marks = [mark for mark in test.pytestmark if mark.name == "parametrize" and mark.args[0] == ("policy", "on")]
        settings = {(getattr(param.values[0], field), param.values[1]) for mark in marks for param in mark.args[1]}
        assert settings == {(True, True), (False, False)}


@pytest.mark.feature("T-01")
def test_every_field_says_what_both_settings_do() -> None:
    for field in dataclasses.fields(Policy):
        assert field.metadata["kind"] in ("numbers", "flow")
        assert field.metadata["lightning"]
        assert field.metadata["fulmen"]


@pytest.mark.feature("T-01")
def test_the_presets_are_all_on_and_all_off() -> None:
    assert all(getattr(Policy.right, field) is True for field in FIELDS)
    assert all(getattr(Policy.lightning, field) is False for field in FIELDS)


@pytest.mark.feature("T-01")
def test_replace() -> None:
    policy = Policy.right.replace(count_batches=False)
    assert policy.count_batches is False
    assert policy.replace(count_batches=True) == Policy.right
    with pytest.raises(ArgumentValueError, match=r"count_batch=.*Did you mean 'count_batches'"):
        Policy.right.replace(count_batch=False)
    with pytest.raises(ArgumentTypeError, match=r"count_batches=1.*True \(Fulmen's way\) or False"):
        Policy.right.replace(count_batches=1)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.count_batches = True  # type: ignore[misc]  # the point of the test


@pytest.mark.feature("T-01")
def test_where_the_default_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quiet().policy is Policy.right
    monkeypatch.setenv("FULMEN_COMPAT", "strict")
    assert quiet().policy is Policy.lightning
    assert quiet(policy=Policy.right).policy is Policy.right
    monkeypatch.setenv("FULMEN_COMPAT", "loose")
    with pytest.raises(ArgumentValueError, match=r"FULMEN_COMPAT='loose'.*'strict'"):
        quiet()
    monkeypatch.setenv("FULMEN_COMPAT", "off")
    own = Policy.right.replace(run_record=False)
    former = set_default_policy(own)
    try:
        assert quiet().policy is own
    finally:
        set_default_policy(former)
    assert default_policy() is Policy.right


@pytest.mark.feature("T-08", "T-12")
@both("progress_fits_output")
def test_progress_fits_output(policy: Policy, on: bool) -> None:
    # Standard output is no terminal here.
    bar = quiet(enable_progress_bar=True, policy=policy).progress_bar_callback
    assert type(bar).__name__ == ("PlainProgress" if on else "RichProgressBar")
    assert getattr(bar, "total_bar", on) is on  # plain lines always tell of the whole run


@pytest.mark.feature("T-04")
@both("reloads_draw_once")
def test_reloads_draw_once(policy: Policy, on: bool) -> None:
    starts: list[int] = []

    class Counted(list[Any]):
        def __iter__(self) -> Any:
            starts.append(1)
            return super().__iter__()

    class Reloads(Toy):
        def train_dataloader(self) -> Any:
            return Counted(loader(4))

    trainer = quiet(policy=policy, max_epochs=3, reload_dataloaders_every_n_epochs=1)
    trainer.fit(module := Reloads())
    assert len(starts) == (3 if on else 5)
    trainer.fit(module, max_epochs=4)  # a further fit
    assert len(starts) == (4 if on else 7)


@pytest.mark.feature("T-04")
@both("overfit_own_batches")
@pytest.mark.filterwarnings("ignore:.*W118")
def test_overfit_own_batches(policy: Policy, on: bool) -> None:
    seen: list[Any] = []
    batches = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(range(12)), 2, False)
    train = torch.utils.data.DataLoader(rows(12), batch_sampler=batches)

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        seen.append(batch[0].tolist())
        return module.loss(batch)

    torch.manual_seed(1)
    fit(Toy(step), train, policy=policy, overfit_batches=2, max_epochs=3)
    assert len(seen) == 6
    assert (seen[:2] == seen[2:4] == seen[4:]) is on


@pytest.mark.feature("T-04")
@both("trial_writes_nothing")
def test_trial_writes_nothing(policy: Policy, on: bool, tmp_path: Path) -> None:
    callback = ModelCheckpoint(tmp_path / "c", save_last=True, every_n_train_steps=1, save_top_k=-1)
    fit(Toy(), None, loader(4), fast_dev_run=2, callbacks=callback, enable_checkpointing=True, policy=policy)
    found = sorted(path.name for path in (tmp_path / "c").glob("*.ckpt"))
    assert found == ([] if on else ["last.ckpt"])  # as measured with Lightning 2.6.6
    assert bool(callback.last_model_path) is not on

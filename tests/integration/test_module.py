"""LightningModule: its properties inside and outside of runs, without a Trainer, copied, pickled and spawned."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

import fulmen as L
from fulmen.errors import MisconfigurationException
from fulmen.loggers import CSVLogger
from tests.integration.toys import QUIET, Manual, Toy, fit, loader, quiet, weights


class Data(L.LightningDataModule):
    """A data module over the toy rows."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[str] = []

    def setup(self, stage: str) -> None:
        self.stages.append(stage)

    def train_dataloader(self) -> Any:
        return loader()

    def val_dataloader(self) -> Any:
        return loader(4)


# --- properties ----------------------------------------------------------------------------------------------------


@pytest.mark.feature("M-04")
def test_properties_outside_of_a_run() -> None:
    module = Toy()
    assert (module.current_epoch, module.global_step, module.global_rank, module.local_rank) == (0, 0, 0, 0)
    assert module.logger is None
    assert module.loggers == []
    assert module.fabric is None
    assert module.device == torch.device("cpu")
    assert module.dtype == torch.float32
    assert module.on_gpu is False
    assert module.automatic_optimization is True
    assert module.strict_loading is True
    assert module.example_input_array is None
    with pytest.raises(RuntimeError, match="Toy is not attached to a `Trainer`"):
        _ = module.trainer
    with pytest.raises(RuntimeError, match="not attached"):
        module.optimizers()


@pytest.mark.feature("M-04")
def test_settable_properties() -> None:
    module = Toy()
    module.example_input_array = torch.ones(1, 4)
    module.strict_loading = False
    module.automatic_optimization = False
    assert module.example_input_array.shape == (1, 4)
    assert (module.strict_loading, module.automatic_optimization) == (False, False)
    with pytest.raises(RuntimeError, match=r"module\.to"):
        module.dtype = torch.float64
    with pytest.raises(AttributeError):
        module.device = torch.device("cpu")  # type: ignore[misc]  # the point of the test


@pytest.mark.feature("M-04")
@pytest.mark.parametrize(
    ("move", "dtype"),
    [
        (lambda m: m.double(), torch.float64),
        (lambda m: m.half(), torch.float16),
        (lambda m: m.to(torch.bfloat16), torch.bfloat16),
        (lambda m: m.to("cpu"), torch.float32),
        (lambda m: m.to(torch.zeros(1, dtype=torch.float64)), torch.float64),
        (lambda m: m.cpu().float(), torch.float32),
    ],
)
def test_dtype_follows_the_module(move: Any, dtype: torch.dtype) -> None:
    module = Toy()
    assert move(module) is module
    assert module.dtype == dtype
    assert module.device == torch.device("cpu")


@pytest.mark.feature("M-04")
def test_device_follows_the_module_to_meta() -> None:
    assert Toy().to("meta").device == torch.device("meta")


@pytest.mark.feature("M-04")
def test_properties_inside_of_a_run(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    seen: dict[str, Any] = {}

    class Looking(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.child = Toy()

        def on_train_batch_end(self, *args: Any) -> None:
            seen.update(
                epoch=self.current_epoch,
                step=self.global_step,
                ranks=(self.global_rank, self.local_rank),
                logger=self.logger,
                loggers=self.loggers,
                optimizer=type(self.optimizers()).__name__,
                raw=type(self.optimizers(use_pl_optimizer=False)),
                schedulers=self.lr_schedulers(),
                trainer=self.trainer,
                child=self.child.trainer,
            )

    module = Looking()
    trainer = fit(module, max_epochs=2, logger=logger, log_every_n_steps=1)
    assert seen == {
        "epoch": 1,
        "step": 12,
        "ranks": (0, 0),
        "logger": logger,
        "loggers": [logger],
        "optimizer": "LightningSGD",
        "raw": torch.optim.SGD,
        "schedulers": None,
        "trainer": trainer,
        "child": trainer,
    }


@pytest.mark.feature("M-04")
def test_several_optimizers_and_schedulers_are_lists() -> None:
    found: dict[str, Any] = {}

    def step(module: Any, batch: Any, batch_idx: int) -> None:
        found["optimizers"] = module.optimizers()
        found["schedulers"] = module.lr_schedulers()

    def two(module: Any) -> Any:
        optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for _ in range(2)]
        return optimizers, [torch.optim.lr_scheduler.StepLR(o, 1) for o in optimizers]

    fit(Manual(step, two), loader(2))
    assert [len(found[name]) for name in ("optimizers", "schedulers")] == [2, 2]
    assert all(isinstance(o, torch.optim.SGD) for o in found["optimizers"])
    assert all(isinstance(o, L.pytorch.core.optimizer.LightningOptimizer) for o in found["optimizers"])


@pytest.mark.feature("M-04")
def test_freeze_and_unfreeze() -> None:
    module = Toy()
    module.freeze()
    assert not any(p.requires_grad for p in module.parameters())
    assert not any(m.training for m in module.modules())
    module.unfreeze()
    assert all(p.requires_grad for p in module.parameters())
    assert all(m.training for m in module.modules())


@pytest.mark.feature("M-04")
def test_print_and_all_gather(capsys: pytest.CaptureFixture[str]) -> None:
    module = Toy()
    module.print("outside", 1)
    gathered: list[Any] = []

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        module.print("inside", batch_idx)
        gathered.append(module.all_gather({"a": torch.ones(2), "b": 3}))
        return module.loss(batch)

    fit(Toy(step), loader(2))
    assert capsys.readouterr().out == "outside 1\ninside 0\n"
    assert torch.equal(gathered[0]["a"], torch.ones(2))
    assert torch.equal(gathered[0]["b"], torch.tensor(3))


# --- without a Trainer -----------------------------------------------------------------------------------------------


class Logging(Toy):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss)
        self.log_dict({"a": 1, "b": 2})
        return loss


@pytest.mark.feature("M-05")
def test_a_step_runs_without_a_trainer_and_warns_once() -> None:
    batch = next(iter(loader()))
    module = Logging()
    with pytest.warns(UserWarning, match=r"Logging.log\('loss', ...\).*nothing is logged") as caught:
        first = module.training_step(batch, 0)
        second = module.training_step(batch, 0)
    assert len(caught) == 1
    assert torch.equal(first, second)


@pytest.mark.feature("M-05")
def test_the_same_seed_and_batch_give_the_same_loss() -> None:
    class Dropping(Toy):
        def loss(self, batch: Any) -> Any:
            return nn.functional.dropout(super().loss(batch), 0.5) + nn.functional.dropout(batch[0], 0.5).sum()

    batch = next(iter(loader()))
    losses = []
    for _ in range(2):
        L.seed_everything(7, verbose=False)
        losses.append(Dropping().training_step(batch, 0))
    assert torch.equal(*losses)


@pytest.mark.feature("M-05")
def test_optimizers_and_data_modules_work_without_a_trainer() -> None:
    module, data = Toy(), Data()
    data.setup("fit")
    optimizer = module.configure_optimizers()
    for batch in data.train_dataloader():
        optimizer.zero_grad()
        module.training_step(batch, 0).backward()
        optimizer.step()
    trained = Toy()
    fit(trained, data)
    assert torch.equal(weights(module), weights(trained))


@pytest.mark.feature("M-05")
@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.training_step(None, 0),
        lambda m: m.validation_step(None, 0),
        lambda m: m.test_step(None, 0),
        lambda m: m.configure_optimizers(),
    ],
)
def test_what_is_not_defined_says_so(call: Any) -> None:
    with pytest.raises(MisconfigurationException, match=r"LightningModule has no `\w+`; define it"):
        call(L.LightningModule())


# --- copies and pickles ----------------------------------------------------------------------------------------------


def by_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def by_torch(value: Any) -> Any:
    import io

    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = [by_pickle, copy.deepcopy, by_torch]


def works_anew(module: Any, data: Any, trainer: Any) -> None:
    """Fit copies of all three to the end of the epoch that they were in, and one more."""
    trainer.fit_loop.max_epochs = trainer.current_epoch + 2
    module.train()  # copies made in validation are in evaluation mode
    before, epoch = weights(module), trainer.current_epoch
    trainer.fit(module, data)
    assert trainer.current_epoch == epoch + 2
    assert not torch.equal(weights(module), before)


@pytest.mark.feature("M-12")
@pytest.mark.parametrize("way", WAYS)
def test_before_and_after_fit(way: Any) -> None:
    module, data, trainer = Toy(), Data(), quiet()
    module, data, trainer = way(module), way(data), way(trainer)
    trainer.fit(module, data)
    fitted = weights(module)
    for again in (way(module), way((trainer, module))[1]):
        assert torch.equal(weights(again), fitted)
        assert again._trainer is None
    works_anew(way(module), way(data), way(trainer))
    assert torch.equal(weights(module), fitted)


@pytest.mark.feature("M-12", "T-05")
@pytest.mark.parametrize("way", WAYS)
def test_a_copied_trainer_knows_where_it_was(way: Any) -> None:
    trainer = fit(Toy(), loader(), loader(4), max_epochs=2)
    other = way(trainer)
    for name in ("current_epoch", "global_step", "max_epochs", "precision", "state.fn", "state.status", "run_id"):
        mine, others = trainer, other
        for part in name.split("."):
            mine, others = getattr(mine, part), getattr(others, part)
        assert mine == others, name
    assert other.callback_metrics == trainer.callback_metrics
    assert other.session is None


class Copying(Toy):
    """Copies itself, the data module and the Trainer in hooks; the copies stay usable."""

    def __init__(self, way: Any) -> None:
        super().__init__()
        self.way = way
        self.copies: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "way": None, "copies": []}

    def take(self) -> None:
        trainer = self.trainer
        self.copies.append((self.way(self), self.way(trainer.datamodule), self.way(trainer)))

    def on_fit_start(self) -> None:
        self.take()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 1 and self.way is not None:
            self.take()
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 1 and self.way is not None:
            self.take()
        return super().validation_step(batch, batch_idx)

    def on_fit_end(self) -> None:
        if self.way is not None:
            self.take()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None: ...


class Untroubled(Copying):
    def on_fit_start(self) -> None:
        if self.way is not None:
            super().on_fit_start()


@pytest.mark.feature("M-12")
@pytest.mark.parametrize("way", WAYS)
def test_inside_of_fit(way: Any) -> None:
    plain = Toy()
    fit(plain, Data())
    module, data = Untroubled(way), Data()
    trainer = fit(module, data, inference_mode=False)  # what is copied under it cannot be trained, says torch
    assert torch.equal(weights(module), weights(plain))
    assert module.trainer is trainer
    assert len(module.copies) == 4
    for other, other_data, other_trainer in module.copies:
        works_anew(other, other_data, other_trainer)
    assert torch.equal(weights(module), weights(plain))


@pytest.mark.feature("M-12")
def test_callbacks_loggers_and_schedulers_are_pickled_with_the_trainer(tmp_path: Path) -> None:
    def both(module: Any) -> Any:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    arguments = {**QUIET, "enable_checkpointing": True, "enable_progress_bar": True, "enable_model_summary": True}
    trainer = L.Trainer(
        **{**arguments, "logger": [CSVLogger(tmp_path), L.pytorch.loggers.TensorBoardLogger(tmp_path)]},
        default_root_dir=tmp_path,
        max_epochs=1,
        log_every_n_steps=1,
        callbacks=[L.pytorch.callbacks.LearningRateMonitor()],
    )
    module = Toy(optimizers=both)
    trainer.fit(module, loader(), loader(4))
    other = by_pickle_without_functions(trainer)
    assert [type(c) for c in other.callbacks] == [type(c) for c in trainer.callbacks]
    assert [type(c) for c in other.loggers] == [type(c) for c in trainer.loggers]


def by_pickle_without_functions(trainer: Any) -> Any:
    trainer.lightning_module.own_optimizers = None
    return by_pickle(trainer)


@pytest.mark.feature("M-12")
def test_one_module_in_two_trainers() -> None:
    module, data = Toy(), Data()
    first, second = quiet(), quiet(max_epochs=2)
    first.fit(module, data)
    second.fit(module, data)
    assert (first.current_epoch, second.current_epoch) == (1, 2)
    assert module.trainer is second
    assert data.trainer is second
    first.fit_loop.max_epochs = 3
    first.fit(module, data)
    assert module.trainer is first
    assert (first.global_step, second.global_step) == (18, 12)
    assert first.validate(module, data, verbose=False) == second.validate(module, data, verbose=False)


@pytest.mark.feature("M-12")
def test_a_trainer_inside_of_another_ones_hook() -> None:
    class Nested(Toy):
        def on_train_epoch_end(self) -> None:
            inner = Toy()
            other = fit(inner, loader(4))
            assert other.global_step == 2
            assert inner.trainer is other
            self.log("after", 1.0)

    module = Nested()
    trainer = fit(module, max_epochs=2)
    assert trainer.global_step == 12
    assert float(trainer.callback_metrics["after"]) == 1.0


def child(trainer: Any, module: Any, data: Any, queue: Any) -> None:
    torch.set_num_threads(1)
    trainer.fit(module, data)
    queue.put((trainer.global_step, weights(module).tolist()))


@pytest.mark.feature("M-12")
def test_all_three_go_into_a_spawned_process() -> None:
    module, data, trainer = Toy(), Data(), quiet()
    trainer.validate(module, data, verbose=False)  # set up, and used
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(trainer, module, data, queue))
    process.start()
    step, values = queue.get()
    process.join()
    assert process.exitcode == 0
    other = Toy()  # torch shares the tensors of the first one with the child
    trainer.fit(other, data)
    assert step == trainer.global_step == 6
    assert torch.equal(torch.tensor(values), weights(other))

"""`self.log` in real runs: where it works, what it costs, and what reaches loggers, bar, record and monitors."""

from __future__ import annotations

import csv
import json
import math
import random
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.accelerators import CPUAccelerator
from fulmen.callbacks import LearningRateMonitor, ModelCheckpoint
from fulmen.engine.hooks.spec import SPECS
from fulmen.engine.results.store import to_numbers
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import FulmenWarning, LoggingError
from fulmen.loggers import CSVLogger, Logger, TensorBoardLogger
from fulmen.strategies import SingleDeviceStrategy
from fulmen.utilities.seed import collect_rng_states
from tests.integration.toys import Toy, fit, loader, quiet, rows


class Memory(Logger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, dict[str, float]]] = []

    name = version = None  # type: ignore[assignment]  # nothing is written

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, dict(metrics)))  # type: ignore[arg-type]  # the Trainer always gives a step

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass


# --- where ---------------------------------------------------------------------------------------------------------

HOOKS = [name for name, spec in SPECS.items() if spec.log is not None]
CALLBACK_HOOKS = [name for name in HOOKS if SPECS[name].callback]


def logging_module(names: list[str], log: Any) -> Any:
    """A module that logs in each hook of `names`, and does what the hook is for."""

    def method(name: str) -> Any:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            log(self, name)
            base = getattr(super(cls, self), name)
            return base(*args, **kwargs)

        return hook

    cls: Any = type("Logs", (Toy,), {name: method(name) for name in names})
    return cls()


@pytest.mark.feature("L-05", "L-01")
def test_a_module_may_log_in_every_allowed_hook() -> None:
    memory = Memory()
    module = logging_module(HOOKS, lambda m, name: m.log(f"at {name}", 1.0))
    trainer = quiet(logger=memory, log_every_n_steps=1, num_sanity_val_steps=2)
    trainer.fit(module, loader(), loader(4))
    trainer.test(module, loader(4), verbose=False)
    keys = {key for _, row in memory.rows for key in row}
    assert {f"at {name}" for name in HOOKS} <= keys


@pytest.mark.feature("L-05", "K-01")
def test_a_callback_may_log_in_every_allowed_hook() -> None:
    memory = Memory()

    def method(name: str) -> Any:
        def hook(self: Any, *args: Any) -> None:
            self.log(f"at {name}", 1.0)
            self.log_dict({f"dict at {name}": torch.tensor(2.0)})

        return hook

    callback: Any = type("Logs", (L.Callback,), {name: method(name) for name in CALLBACK_HOOKS})()
    trainer = quiet(logger=memory, log_every_n_steps=1, callbacks=callback)
    trainer.fit(Toy(), loader(), loader(4))
    trainer.test(Toy(), loader(4), verbose=False)
    keys = {key for _, row in memory.rows for key in row}
    assert {f"{kind} {name}" for name in CALLBACK_HOOKS for kind in ("at", "dict at")} <= keys


@pytest.mark.feature("L-01", "L-05")
@pytest.mark.parametrize(
    "hook",
    ["setup", "on_fit_start", "on_fit_end", "on_train_end", "on_validation_end", "configure_optimizers", "teardown"],
)
def test_elsewhere_it_is_an_error_that_names_the_hook(hook: str) -> None:
    def log(module: Any, name: str) -> None:
        module.log("x", 1.0)

    with pytest.raises(LoggingError, match=f"'x'.*{hook}.*logging is not allowed"):
        fit(logging_module([hook], log), None, loader(4))


@pytest.mark.feature("L-05")
def test_a_callback_outside_of_a_run() -> None:
    with pytest.raises(LoggingError, match=r"Callback\.log\('x', \.\.\.\) was called outside of a run"):
        L.Callback().log("x", 1.0)


@pytest.mark.feature("L-01")
def test_the_hook_inside_another_one_counts_and_then_the_outer_one_again() -> None:
    """`on_before_optimizer_step` runs inside of `optimizer_step`, hooks of backward inside of the closure."""
    seen: list[Any] = []

    class Looks(L.Callback):
        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            seen.append(trainer.cursor.hook.name)

        def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
            seen.append(trainer.cursor.hook.name)

    class Steps(Toy):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            seen.append(self.trainer.cursor.hook.name)
            super().optimizer_step(*args, **kwargs)
            seen.append(self.trainer.cursor.hook.name)

    fit(Steps(), limit_train_batches=1, callbacks=Looks())
    assert seen == ["optimizer_step", "on_after_backward", "on_before_optimizer_step", "optimizer_step"]


@pytest.mark.feature("L-01")
def test_no_hook_is_left_over_after_an_exception() -> None:
    class Fails(Toy):
        def on_after_backward(self) -> None:
            raise ValueError("broken")

    module = Fails()
    trainer = quiet()
    with pytest.raises(ValueError, match="broken"):
        trainer.fit(module, loader())
    assert (trainer.cursor.hook, trainer.cursor.results, trainer.cursor.batch) == (None, None, None)
    with pytest.raises(LoggingError, match="outside of a run"):
        L.Callback().log("x", 1.0)
    trainer.validate(Toy(), loader(4), verbose=False)


# --- batch sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.feature("L-02")
@pytest.mark.parametrize("nested", [False, True])
def test_means_are_weighted_by_the_batch_size(nested: bool) -> None:
    """10 rows in batches of 4: the last one has 2."""

    class Means(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch["deep"][0]["xy"] if nested else batch
            self.log("mean", x.mean(), on_step=False, on_epoch=True)
            return self.loss((x, y))

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            x, _ = batch["deep"][0]["xy"] if nested else batch
            self.log("val_mean", x.mean())

    def collate(samples: Any) -> Any:
        x, y = (torch.stack(part) for part in zip(*samples, strict=True))
        return {"text": ["a"] * 7, "deep": [{"xy": (x, y)}], "scalar": torch.tensor(1.0)} if nested else [x, y]

    data = DataLoader(rows(10), batch_size=4, collate_fn=collate)
    trainer = fit(Means(), data, data)
    exact = rows(10).tensors[0].double().mean().item()
    assert trainer.callback_metrics["mean"].item() == pytest.approx(exact, abs=1e-7)
    assert trainer.callback_metrics["val_mean"].item() == pytest.approx(exact, abs=1e-7)


class Ragged(Toy):
    """Batches whose tensors have different first dimensions."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.log("mean", batch[0].float().mean(), on_step=False, on_epoch=True)
        return self.net(torch.ones(1, 4)).sum()


def ragged(samples: list[Any]) -> Any:
    value = float(samples[0][1] > 0)
    return [torch.full((len(samples),), float(len(samples))), torch.zeros(3 + len(samples), 2), value]


@pytest.mark.feature("L-02")
def test_an_ambiguous_batch_takes_the_samplers_number() -> None:
    trainer = fit(Ragged(), DataLoader(rows(10), batch_size=4, collate_fn=ragged))
    assert trainer.callback_metrics["mean"].item() == pytest.approx((4 * 4 + 4 * 4 + 2 * 2) / 10)


@pytest.mark.feature("L-02")
def test_in_validation_too() -> None:
    class Validates(Ragged):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val", batch[0].mean())

    data = DataLoader(rows(10), batch_size=4, collate_fn=ragged)
    result = quiet().validate(Validates(), data, verbose=False)
    assert result[0]["val"] == pytest.approx(3.6)
    trainer = fit(Validates(), DataLoader(rows(12), batch_size=3, collate_fn=ragged), data, val_check_interval=1)
    assert trainer.callback_metrics["val"].item() == pytest.approx(3.6)


@pytest.mark.feature("L-02")
def test_without_any_number_one_warning_names_the_fix() -> None:
    batches = [ragged([(0, 0)] * size) for size in (4, 2)]
    with pytest.warns(FulmenWarning, match=r"batch size cannot be told.*`batch_size=` to `self\.log`") as caught:
        trainer = fit(Ragged(), DataLoader(batches, batch_size=None))
    assert len([w for w in caught if "batch size" in str(w.message)]) == 1
    assert trainer.callback_metrics["mean"].item() == pytest.approx(3.0)


# --- cost ----------------------------------------------------------------------------------------------------------


class Nowhere(CPUAccelerator):
    """A device without data: each look at a value is an error, as a sync would be on a real one."""

    def setup_device(self, device: torch.device) -> None:
        pass


class Far(SingleDeviceStrategy):
    """Leaves the module there at the end."""

    def teardown(self) -> None:
        pass


def far(**arguments: Any) -> Any:
    """A Trainer whose device holds no data."""
    strategy = Far(device=torch.device("meta"), accelerator=Nowhere())
    return quiet(**{"strategy": strategy, "accelerator": "auto", "gradient_clip_val": 1.0, **arguments})


class Logs(Toy):
    """Several values of each kind."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)
        self.log_dict({"both": loss * 2, "more": loss + 1}, on_step=True, on_epoch=True)
        self.log("largest", loss, reduce_fx="max", on_epoch=True)
        self.log("median", loss, reduce_fx=torch.median, on_epoch=True)
        self.log("number", 1.5, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", self.loss(batch), on_step=True, on_epoch=True, prog_bar=True)


@pytest.mark.feature("L-04")
def test_no_step_waits_for_the_device() -> None:
    trainer = far(logger=Memory(), log_every_n_steps=151)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer batches than log_every_n_steps
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
            trainer.fit(Logs(), loader(300))
    assert trainer.global_step == 150  # all of them; the epoch's row is what could not be read


@pytest.mark.feature("L-04")
def test_without_loggers_nothing_is_read_at_all() -> None:
    trainer = far(max_epochs=3)
    trainer.fit(Logs(), loader(300))
    assert trainer.global_step == 450
    assert trainer.callback_metrics["loss"].device.type == "meta"
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        _ = trainer.progress_bar_metrics


@pytest.mark.feature("L-04")
def test_a_row_is_read_when_due() -> None:
    trainer = far(logger=Memory(), log_every_n_steps=20)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        trainer.fit(Logs(), loader(300))
    assert trainer.progress.total_batches == 20


@pytest.mark.feature("L-04")
def test_validation_steps_do_not_wait_either() -> None:
    steps: list[int] = []

    class Counts(Logs):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val", self.loss(batch), prog_bar=True)
            steps.append(batch_idx)

        def on_validation_end(self) -> None:
            steps.append(-1)

    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        far().validate(Counts(), loader(20), verbose=False)
    assert steps == [*range(10), -1]


@pytest.mark.feature("L-04")
def test_one_transfer_for_all_keys_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    transfers: list[int] = []

    def tolist(self: Tensor) -> list[float]:
        transfers.append(len(self))
        return [0.0] * len(self)

    monkeypatch.setattr(Tensor, "tolist", tolist)
    floats = {f"f{index}": torch.empty((), device="meta") for index in range(9)}
    doubles = {f"d{index}": torch.empty((), device="meta", dtype=torch.float64) for index in range(2)}
    numbers = {f"n{index}": torch.empty((), device="meta", dtype=torch.int64) for index in range(3)}
    assert list(to_numbers({**floats, **numbers, **doubles})) == [*floats, *numbers, *doubles]
    assert sorted(transfers) == [3, 11]


@pytest.mark.feature("L-04")
def test_a_value_changed_after_it_was_logged_keeps_what_it_was() -> None:
    class Changes(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = self.loss(batch)
            self.log("loss", loss, on_step=True, on_epoch=True)
            self.kept = getattr(self, "kept", [])
            self.kept.append(loss.item())
            loss *= 1000
            return loss

    memory = Memory()
    module = Changes(lr=1e-6)
    trainer = fit(module, logger=memory, log_every_n_steps=1)
    assert [row["loss_step"] for _, row in memory.rows if "loss_step" in row] == module.kept
    assert trainer.callback_metrics["loss_epoch"].item() == pytest.approx(sum(module.kept) / 6)


@pytest.mark.feature("L-06")
def test_memory_is_flat() -> None:
    """A few thousand steps; the long run is a test of its own."""

    class Watches(L.Callback):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx % 800 == 799:
                self.seen.append(tracemalloc.get_traced_memory()[0])

    class Flat(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = self.loss(batch)
            for index in range(10):
                self.log(f"t{index}", loss, on_epoch=True)
                self.log(f"n{index}", 1.0, on_epoch=True)
            return loss

    watches = Watches()
    batch = [torch.ones(2, 4), torch.ones(2, 1)]
    tracemalloc.start()
    fit(
        Flat(lr=1e-4),
        DataLoader([batch] * 4000, batch_size=None),
        callbacks=watches,
        logger=Memory(),
        log_every_n_steps=4000,
    )
    tracemalloc.stop()
    assert len(watches.seen) == 5
    assert max(watches.seen[1:]) - watches.seen[1] < 60_000  # one number per step and key would be 128,000


# --- loggers and record --------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.feature("G-01", "G-02", "G-06")
def test_two_loggers_have_one_version_each_and_the_same_rows(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    table, board = CSVLogger(tmp_path, name="csv"), TensorBoardLogger(str(tmp_path), name="tb")
    fit(Logs(), None, loader(4), logger=[table, board], log_every_n_steps=2, max_epochs=2)
    assert [path.name for path in (tmp_path / "csv").iterdir()] == ["version_0"]
    assert [path.name for path in (tmp_path / "tb").iterdir()] == ["version_0"]
    events = EventAccumulator(board.log_dir)
    events.Reload()
    with open(Path(table.log_dir) / "metrics.csv") as file:
        written = list(csv.DictReader(file))
    for key in ("loss", "both_step", "both_epoch", "val_epoch", "median_epoch", "number_step"):
        from_table = [(int(row["step"]), float(row[key])) for row in written if row[key]]
        from_board = [(event.step, event.value) for event in events.Scalars(key)]
        assert len(from_table) >= 2, key
        assert [step for step, _ in from_board] == [step for step, _ in from_table]
        assert [v for _, v in from_board] == pytest.approx([v for _, v in from_table])


@pytest.mark.feature("G-01", "G-02")
def test_the_default_logger_and_the_next_version(tmp_path: Path) -> None:
    for version in (0, 1):
        trainer = fit(Logs(), logger=True, log_every_n_steps=2, default_root_dir=tmp_path)
        assert Path(trainer.log_dir) == tmp_path / "lightning_logs" / f"version_{version}"
        assert isinstance(trainer.logger, TensorBoardLogger)
        assert len(list(Path(trainer.log_dir).glob("events.out.tfevents.*"))) == 1


@pytest.mark.feature("G-08")
def test_the_run_record(tmp_path: Path) -> None:
    trainer = fit(Logs(), None, loader(4), logger=CSVLogger(tmp_path), log_every_n_steps=2)
    record = lines(Path(trainer.log_dir) / "run.jsonl")
    assert [record[0]["kind"], record[-1]["kind"]] == ["start", "end"]
    assert (record[0]["call"], record[0]["run_id"]) == ("fit", trainer.run_id)
    assert (record[-1]["status"], record[-1]["epoch"], record[-1]["step"]) == ("finished", 1, 6)
    metrics = [line for line in record if line["kind"] == "metrics"]
    assert [line["step"] for line in metrics if "loss" in line["values"]] == [1, 3, 5]
    assert any("val_epoch" in line["values"] for line in metrics)
    trainer.validate(Logs(), loader(4), verbose=False)
    assert [line["call"] for line in lines(Path(trainer.log_dir) / "run.jsonl") if line["kind"] == "start"] == [
        "fit", "validate",
    ]  # fmt: skip


@pytest.mark.feature("G-08")
def test_the_record_of_a_run_that_fails(tmp_path: Path) -> None:
    class Fails(Logs):
        def on_train_epoch_end(self) -> None:
            raise ValueError("broken")

    trainer = quiet(logger=CSVLogger(tmp_path), log_every_n_steps=1)
    with pytest.raises(ValueError, match="broken"):
        trainer.fit(Fails(), loader())
    record = lines(Path(trainer.log_dir) / "run.jsonl")
    assert [line["kind"] for line in record[-2:]] == ["error", "end"]
    assert record[-2]["type"] == "ValueError" and "broken" in record[-2]["message"]
    assert record[-1]["status"] == "error"


@pytest.mark.feature("G-08")
@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ({}, True),
        ({"logger": False, "enable_checkpointing": True}, True),
        ({"logger": False}, False),
        ({"fast_dev_run": True}, False),
        ({"policy": Policy.lightning}, False),
        ({"policy": Policy.right.replace(run_record=False)}, False),
    ],
)
def test_when_there_is_a_record(tmp_path: Path, arguments: dict[str, Any], written: bool) -> None:
    made = {"logger": CSVLogger(tmp_path), "log_every_n_steps": 1, "default_root_dir": tmp_path, **arguments}
    fit(Logs(), **made)
    assert len(list(tmp_path.rglob("run.jsonl"))) == written


@pytest.mark.feature("L-01", "G-01")
def test_the_x_axis_may_be_given_and_nan_is_kept(tmp_path: Path) -> None:
    class Axis(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.log("step", float(100 + batch_idx))
            self.log("bad", float("nan"))
            return self.loss(batch)

    memory = Memory()
    trainer = fit(Axis(), logger=[CSVLogger(tmp_path), memory], log_every_n_steps=2)
    assert [step for step, _ in memory.rows] == [101, 103, 105]
    assert all(math.isnan(row["bad"]) for _, row in memory.rows)
    metrics = lines(tmp_path / "lightning_logs" / "version_0" / "run.jsonl")
    assert [line["values"]["bad"] for line in metrics if line["kind"] == "metrics"] == ["NaN"] * 3
    assert math.isnan(trainer.callback_metrics["bad"])


# --- nothing draws -------------------------------------------------------------------------------------------------


@pytest.mark.feature("T-16", "K-03", "K-05", "G-01")
def test_callbacks_and_loggers_draw_no_random_numbers(tmp_path: Path) -> None:
    """Design: no code of ours draws from a global generator."""

    def end(**arguments: Any) -> tuple[Any, Tensor]:
        L.seed_everything(5, verbose=False)
        module = Logs()
        data = DataLoader(rows(), batch_size=2, shuffle=True)
        trainer = quiet(max_epochs=2, default_root_dir=tmp_path, **arguments)
        trainer.fit(module, data, loader(4))
        return collect_rng_states(), module.net.weight.detach().clone()

    bare_states, bare_weights = end()
    states, weights = end(
        logger=[CSVLogger(tmp_path), TensorBoardLogger(str(tmp_path))],
        callbacks=[LearningRateMonitor(), ModelCheckpoint(tmp_path, monitor="val_epoch", save_last=True)],
        enable_progress_bar=True,
        enable_model_summary=True,
        enable_checkpointing=True,
        num_sanity_val_steps=2,
        log_every_n_steps=1,
    )
    assert torch.equal(bare_weights, weights)
    assert torch.equal(bare_states["torch"], states["torch"])
    assert bare_states["python"] == states["python"]
    assert torch.equal(bare_states["numpy"][1], states["numpy"][1])
    assert bare_states["numpy"][2:] == states["numpy"][2:]


@pytest.mark.feature("T-04", "T-16")
def test_the_sanity_check_leaves_no_trace() -> None:
    class Draws(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val", torch.rand(()) + random.random() + float(np.random.rand()))
            self.seen_sanity = getattr(self, "seen_sanity", 0) + int(self.trainer.sanity_checking)

        def on_train_start(self) -> None:
            self.at_start = collect_rng_states()
            assert dict(self.trainer.callback_metrics) == {}
            assert dict(self.trainer.logged_metrics) == {}
            assert dict(self.trainer.progress_bar_metrics) == {}

    def run(steps: int) -> tuple[Any, Memory]:
        L.seed_everything(1, verbose=False)
        memory, module = Memory(), Draws()
        fit(module, None, loader(8), logger=memory, num_sanity_val_steps=steps, log_every_n_steps=1)
        assert module.seen_sanity == max(steps, 0) or steps == -1
        return module.at_start, memory

    without, memory = run(0)
    for steps, expected in ((2, 2), (-1, 4)):
        module_states, other = run(steps)
        assert torch.equal(module_states["torch"], without["torch"])
        assert module_states["python"] == without["python"]
        assert torch.equal(module_states["numpy"][1], without["numpy"][1])
        assert other.rows == memory.rows
        assert expected

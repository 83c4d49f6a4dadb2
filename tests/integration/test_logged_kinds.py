"""What reaches loggers, bar and monitors: reductions by functions, silent runs, shared keys, loggers of any kind."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.callbacks import ModelCheckpoint
from fulmen.errors import FulmenWarning, LoggingError, PossibleUserWarning
from fulmen.loggers import CSVLogger, DummyLogger, TensorBoardLogger
from tests.integration.test_logging import Memory
from tests.integration.toys import Toy, fit, loader, quiet, rows

# --- functions as reductions -----------------------------------------------------------------------------------------


def spread(values: Tensor) -> Tensor:
    return values.max() - values.min()


class Reduces(Toy):
    """Logs losses reduced by functions: torch's, a function of a module, and a lambda made anew at each call."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        flags: dict[str, Any] = {"on_step": False, "on_epoch": True}
        self.log("median", loss, reduce_fx=torch.median, **flags)
        self.log("spread", loss.item(), reduce_fx=spread, **flags)
        self.log("first", loss, reduce_fx=lambda values: values[0], **flags)
        self.log("count", loss, reduce_fx=len, **flags)
        self.kept = [*getattr(self, "kept", []), loss.item()]
        return loss


@pytest.mark.feature("L-01")
def test_functions_get_all_values_in_their_order() -> None:
    module = Reduces(lr=0.01)
    trainer = fit(module, max_epochs=2)
    values = torch.tensor(module.kept[6:], dtype=torch.float64)
    metrics = {key: value.item() for key, value in trainer.callback_metrics.items()}
    assert metrics == pytest.approx(
        {"median": values.median().item(), "spread": spread(values).item(), "first": values[0].item(), "count": 6}
    )


@pytest.mark.feature("L-01", "C-02")
@pytest.mark.parametrize("at", [1, 4, 6, 8])
def test_functions_over_a_resume(tmp_path: Path, at: int) -> None:
    def run(path: Path | None) -> dict[str, float]:
        saves = ModelCheckpoint(tmp_path, every_n_train_steps=at, save_top_k=-1, filename="{step}")
        trainer = quiet(max_epochs=2, callbacks=saves, enable_checkpointing=True)
        trainer.fit(Reduces(lr=0.01), loader(), ckpt_path=path)
        return {key: value.item() for key, value in trainer.callback_metrics.items()}

    assert run(None) == run(tmp_path / f"step={at}.ckpt")


@pytest.mark.feature("L-01")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda values: values, r"returned Tensor of shape \(2,\)"),
        (lambda values: "no", "returned str"),
        (lambda values: None, "returned NoneType"),
        (torch.sort, "returned sort"),
    ],
)
def test_functions_that_make_no_number(function: Any, words: str) -> None:
    class Bad(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("x", 1.0, reduce_fx=function)

    with pytest.raises(LoggingError, match=rf"'x'.*validation_step.*must make one number.*{words}"):
        quiet().validate(Bad(), loader(4), verbose=False)


# --- silence ---------------------------------------------------------------------------------------------------------


class Steps(Toy):
    """Logs in training steps only."""

    def validation_step(self, batch: Any, batch_idx: int) -> None: ...

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss


@pytest.mark.feature("L-09")
def test_a_run_that_wrote_nothing_says_so_once_with_the_number(tmp_path: Path) -> None:
    with pytest.warns(FulmenWarning) as seen:
        fit(Steps(), loader(8), logger=CSVLogger(tmp_path), max_epochs=3)
    texts = [str(warning.message) for warning in seen if "W208" in str(warning.message)]
    assert len(texts) == 1
    assert "CSVLogger got no value in the whole run: it made 12 steps" in texts[0]
    assert "log_every_n_steps=50" in texts[0] and "at most 12" in texts[0]
    assert not list(tmp_path.rglob("metrics.csv"))


@pytest.mark.feature("L-09")
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (Steps, {"log_every_n_steps": 4}),
        (Steps, {"log_every_n_steps": 0}),  # wished
        (Steps, {"logger": False}),
        (Steps, {"fast_dev_run": True}),
        (Steps, {"max_steps": 0, "log_every_n_steps": 1}),
        (Toy, {"log_every_n_steps": 1}),  # nothing was logged in steps
    ],
)
def test_runs_that_need_no_word(module: Any, arguments: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PossibleUserWarning)
        trainer = fit(module(), loader(8), loader(4), **{"logger": Memory(), **arguments})
    assert trainer.state.finished


@pytest.mark.feature("L-09", "T-08")
def test_the_bar_shows_the_raw_value_of_the_last_step() -> None:
    shown: list[tuple[float, float]] = []

    class Looks(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            shown.append((trainer.progress_bar_metrics["loss"], outputs["loss"].item()))

    fit(Steps(), callbacks=Looks())
    assert len(shown) == 6
    assert all(bar == loss for bar, loss in shown)


@pytest.mark.feature("L-09")
@pytest.mark.parametrize("value", ["text", None, torch.ones(2), {"a": 1.0}, 1j, object()])
@pytest.mark.parametrize("place", ["training_step", "on_validation_epoch_end", "callback"])
def test_what_cannot_be_logged_names_key_and_place(value: Any, place: str) -> None:
    class Bad(Toy):
        pass

    def log(self: Any, *args: Any) -> None:
        self.log("bad", value)

    callbacks = []
    if place == "callback":
        callbacks = [type("Calls", (L.Callback,), {"on_train_batch_end": log})()]
    else:
        setattr(Bad, place, log)
    where = "on_train_batch_end" if place == "callback" else place
    with pytest.raises(LoggingError, match=rf"self\.log\('bad', .*in `{where}`") as caught:
        fit(Bad(), None, loader(4), callbacks=callbacks)
    assert type(value).__name__ in str(caught.value) or "shape (2,)" in str(caught.value)


@pytest.mark.feature("L-09", "L-01")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -math.inf])
def test_values_that_are_not_finite_are_logged(value: float) -> None:
    class Odd(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.log("odd", value, on_step=True, on_epoch=True, prog_bar=True)
            return self.loss(batch)

    memory = Memory()
    trainer = fit(Odd(), logger=memory, log_every_n_steps=6)
    read = [trainer.callback_metrics["odd_epoch"].item(), trainer.progress_bar_metrics["odd_step"]]
    for number in (*read, memory.rows[0][1]["odd_step"]):
        assert number == value or (math.isnan(number) and math.isnan(value))


@pytest.mark.feature("L-01")
@pytest.mark.parametrize("dictionary", [[1.0], "text", 3, None])
def test_log_dict_needs_a_mapping(dictionary: Any) -> None:
    class Bad(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.log_dict(dictionary)
            return self.loss(batch)

    with pytest.raises(LoggingError, match=r"self\.log_dict\(.*needs a mapping.*MetricCollection, not"):
        fit(Bad())


# --- who logs --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("L-05", "K-01")
def test_one_key_of_two_callbacks_and_the_module() -> None:
    """In one hook they share it; in another hook it is a key of its own, and the later one is shown."""

    def callback(name: str, value: float) -> Any:
        def hook(self: Any, *args: Any) -> None:
            self.log("shared", value, on_step=True, on_epoch=True, batch_size=1)

        return type(name, (L.Callback,), {"on_train_batch_end": hook})()

    class Module(Toy):
        def on_train_batch_end(self, *args: Any) -> None:
            self.log("shared", 6.0, on_step=True, on_epoch=True, batch_size=2)

    memory = Memory()
    trainer = fit(Module(), logger=memory, log_every_n_steps=1, callbacks=[callback("A", 1.0), callback("B", 2.0)])
    assert [row["shared_step"] for _, row in memory.rows if "shared_step" in row] == [6.0] * 6
    assert trainer.callback_metrics["shared"].item() == (1 + 2 + 6 * 2) / 4


@pytest.mark.feature("L-05", "L-01")
def test_two_callbacks_with_other_flags_for_one_key_are_told_apart() -> None:
    def callback(name: str, **flags: Any) -> Any:
        def hook(self: Any, *args: Any) -> None:
            self.log("shared", 1.0, **flags)

        return type(name, (L.Callback,), {"on_train_batch_end": hook})()

    with pytest.raises(LoggingError, match=r"'shared'.*on_train_batch_end.*prog_bar=True \(was False\).*First call: "):
        fit(Toy(), callbacks=[callback("A"), callback("B", prog_bar=True)])


@pytest.mark.feature("L-01")
@pytest.mark.parametrize(
    "hook",
    ["configure_optimizers", "configure_callbacks", "configure_model", "train_dataloader", "setup", "prepare_data"],
)
def test_hooks_in_which_no_loop_runs(hook: str) -> None:
    class Bad(Toy):
        def train_dataloader(self) -> Any:
            return loader()

    def log(self: Any, *args: Any) -> Any:
        self.log("x", 1.0)
        return getattr(super(Bad, self), hook)(*args)

    setattr(Bad, hook, log)
    with pytest.raises(LoggingError, match=rf"'x'.*`{hook}`: logging is not allowed there.* It is in: .*training_step"):
        quiet().fit(Bad())


@pytest.mark.feature("L-01", "C-01")
@pytest.mark.parametrize("owner", ["module", "callback"])
@pytest.mark.parametrize("hook", ["on_save_checkpoint", "on_load_checkpoint"])
def test_hooks_of_checkpoints_log_nothing(hook: str, owner: str, tmp_path: Path) -> None:
    """They run inside of other hooks, which may log."""

    def log(self: Any, *args: Any) -> None:
        (args[1] if owner == "callback" else self).log("x", 1.0)

    bad: Any = type("Bad", (Toy if owner == "module" else L.Callback,), {hook: log})()
    module, callbacks = (bad, []) if owner == "module" else (Toy(), [bad])
    saves = ModelCheckpoint(tmp_path, filename="x")
    fit(Toy(), callbacks=saves, enable_checkpointing=True)
    path = None
    if hook == "on_load_checkpoint":
        path = tmp_path / "x.ckpt"
    trainer = quiet(callbacks=[*callbacks, saves], enable_checkpointing=True, max_epochs=2)
    with pytest.raises(LoggingError, match=rf"'x'.*`{hook}`: logging is not allowed there"):
        trainer.fit(module, loader(), ckpt_path=path)


@pytest.mark.feature("L-01")
def test_outside_of_a_run_it_is_one_warning() -> None:
    module = Steps()
    with pytest.warns(FulmenWarning, match=r"Steps\.log\('loss', \.\.\.\) was called outside of a run") as seen:
        for batch in loader(4):
            module.training_step(batch, 0)
    assert len(seen) == 1


@pytest.mark.feature("L-01")
def test_flags_for_ranks_change_nothing_on_one_device() -> None:
    class Ranks(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = self.loss(batch)
            self.log("plain", loss, on_epoch=True)
            self.log("synced", loss, on_epoch=True, sync_dist=True)
            self.log("zero", loss, on_epoch=True, rank_zero_only=True)
            return loss

    metrics = fit(Ranks()).callback_metrics
    assert metrics["plain_epoch"] == metrics["synced_epoch"] == metrics["zero_epoch"]


# --- batch sizes -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Pairs:
    """A batch as a data class."""

    x: Tensor
    more: dict[str, list[Tensor]]


class Graph:
    """A batch of graphs, as of torch_geometric: its tensors' first dimension is the number of nodes."""

    def __init__(self, samples: list[Any]) -> None:
        self.x = torch.cat([torch.full((1 + index, 4), float(len(samples))) for index in range(len(samples))])

    def to(self, *args: Any, **kwargs: Any) -> Graph:
        return self


@pytest.mark.feature("L-02")
@pytest.mark.parametrize("kind", ["data class", "nested", "ragged", "graph"])
def test_means_are_weighted_whatever_the_batch_is_made_of(kind: str) -> None:
    """10 rows in batches of 4, 4 and 2; each batch logs its size, whose weighted mean is 3.6."""

    def collate(samples: list[Any]) -> Any:
        x = torch.stack([sample[0] for sample in samples])
        ragged = [torch.zeros(3 + index) for index in range(len(samples))]
        return {
            "data class": lambda: Pairs(x, {"a": [x, x]}),
            "nested": lambda: {"a": [{"b": (x, "text")}], "c": {"d": x}, "e": ["id"] * len(samples)},
            "ragged": lambda: {"x": x, "lengths": ragged},
            "graph": lambda: Graph(samples),
        }[kind]()

    class Sizes(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("size", [4.0, 4.0, 2.0][batch_idx])

    data = DataLoader(rows(10), batch_size=4, collate_fn=collate)
    assert quiet().validate(Sizes(), data, verbose=False) == [{"size": pytest.approx(3.6)}]


# --- loggers ---------------------------------------------------------------------------------------------------------


@pytest.mark.feature("L-03", "G-01")
def test_log_every_0_writes_no_step_and_all_epochs() -> None:
    class Both(Toy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = self.loss(batch)
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss

    memory = Memory()
    trainer = fit(Both(), None, loader(4), logger=memory, log_every_n_steps=0)
    assert {key for _, row in memory.rows for key in row} == {"loss_epoch", "val_loss", "epoch"}
    assert trainer.callback_metrics.keys() >= {"loss_step", "loss_epoch"}


@pytest.mark.feature("L-04", "G-01")
def test_several_loggers_of_all_kinds_get_the_same_rows(tmp_path: Path) -> None:
    class Old:
        """A logger that shares nothing with ours."""

        name, version, save_dir, log_dir, root_dir = "old", 0, None, None, None

        def __init__(self) -> None:
            self.rows: list[Any] = []

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            self.rows.append((step, dict(metrics)))
            metrics.clear()  # what it does with its row is its own business

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...
        def log_graph(self, *args: Any, **kwargs: Any) -> None: ...
        def save(self) -> None: ...
        def finalize(self, status: str) -> None: ...
        def after_save_checkpoint(self, callback: Any) -> None: ...

    old, memory = Old(), Memory()
    loggers = [old, memory, CSVLogger(tmp_path), TensorBoardLogger(str(tmp_path)), DummyLogger()]
    trainer = fit(Steps(), None, loader(4), logger=loggers, log_every_n_steps=2)
    assert old.rows == memory.rows
    assert [step for step, _ in memory.rows] == [1, 3, 5]
    assert trainer.loggers == loggers


@pytest.mark.feature("L-05")
def test_a_run_that_logs_nothing(tmp_path: Path) -> None:
    class Silent(Toy):
        def validation_step(self, batch: Any, batch_idx: int) -> None: ...
        def test_step(self, batch: Any, batch_idx: int) -> None: ...

    logger = CSVLogger(tmp_path)
    trainer = fit(Silent(), None, loader(4), logger=logger, log_every_n_steps=1)
    assert dict(trainer.callback_metrics) == dict(trainer.logged_metrics) == {}
    assert trainer.progress_bar_metrics == {}
    assert trainer.test(Silent(), loader(4)) == [{}]
    assert not Path(logger.log_dir, "metrics.csv").exists()

"""Values of several validation and test loaders: names in keys, one value over all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import fulmen as L
from fulmen.callbacks import EarlyStopping, ModelCheckpoint
from fulmen.engine.runtime.policy import Policy
from fulmen.errors import LoggingError
from tests.integration.test_logging import Memory
from tests.integration.toys import Toy, fit, loader, quiet, rows

NAMED = {"clean": 10, "noisy": 6}
BATCH = 4


def loaders(counts: dict[str, int] = NAMED) -> dict[str, DataLoader[Any]]:
    return {name: DataLoader(rows(count, seed=count), batch_size=BATCH) for name, count in counts.items()}


def first_mean(count: int) -> float:
    """Mean over the rows of a loader of the first number in each."""
    return rows(count, seed=count).tensors[0][:, 0].double().mean().item()


OVER_ALL = sum(count * first_mean(count) for count in NAMED.values()) / sum(NAMED.values())


class Logs(Toy):
    """Logs the mean of the first column, with any flags."""

    def __init__(self, **flags: Any) -> None:
        super().__init__()
        self.flags = flags

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("v", batch[0][:, 0].mean(), **self.flags)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("v", batch[0][:, 0].mean(), **self.flags)


def near(values: dict[str, float]) -> Any:
    return pytest.approx(values, abs=1e-6)


@pytest.mark.feature("L-08")
@pytest.mark.parametrize("stage", ["validate", "test"])
def test_the_names_of_a_dict_are_in_keys(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = quiet()
    result = getattr(trainer, stage)(Logs(), loaders())
    expected = [{f"v/{name}": first_mean(count)} for name, count in NAMED.items()]
    assert [near(row) for row in expected] == result
    assert set(trainer.callback_metrics) == set(trainer.logged_metrics) == {"v/clean", "v/noisy"}
    table = [line.split() for line in capsys.readouterr().out.splitlines() if line and line[0] not in "-"]
    assert table[0] == [stage.capitalize(), "metric", "clean", "noisy"]
    assert [table[1][0], len(table)] == ["v", 2]


@pytest.mark.feature("L-08")
def test_one_weighted_value_over_all_beside_those_of_each() -> None:
    memory = Memory()
    module = Logs(reduce_loaders="mean", on_step=True, on_epoch=True, prog_bar=True)
    trainer = fit(module, None, loaders(), logger=memory, log_every_n_steps=1)
    assert trainer.callback_metrics["v"].item() == pytest.approx(OVER_ALL, abs=1e-6)
    assert trainer.callback_metrics["v_epoch"].item() == pytest.approx(OVER_ALL, abs=1e-6)
    for name, count in NAMED.items():
        assert trainer.callback_metrics[f"v/{name}"].item() == pytest.approx(first_mean(count), abs=1e-6)
    row = memory.rows[-1][1]
    assert row["v_epoch"] == pytest.approx(OVER_ALL, abs=1e-6)
    assert {"v_epoch/clean", "v_epoch/noisy", "v_epoch"} <= set(row)
    assert trainer.progress_bar_metrics["v_epoch"] == pytest.approx(OVER_ALL, abs=1e-6)
    result = quiet().test(Logs(reduce_loaders="mean"), loaders(), verbose=False)
    assert result == [near({f"v/{name}": first_mean(count), "v": OVER_ALL}) for name, count in NAMED.items()]


@pytest.mark.feature("L-08")
@pytest.mark.parametrize(
    ("reduce_fx", "expected"),
    [
        ("mean", OVER_ALL),
        ("sum", None),
        ("min", None),
        ("max", None),
        (torch.median, None),
    ],
)
def test_one_name_in_all_loaders_is_one_value(reduce_fx: Any, expected: float | None) -> None:
    means = [batch[0][:, 0].mean() for each in loaders().values() for batch in each]
    if expected is None:
        function = getattr(torch, reduce_fx) if isinstance(reduce_fx, str) else reduce_fx
        expected = function(torch.stack(means)).item()
    module = Logs(add_dataloader_idx=False, reduce_fx=reduce_fx)
    result = quiet().validate(module, loaders(), verbose=False)
    assert result == [near({"v": expected})] * 2


@pytest.mark.feature("L-08")
def test_names_that_belong_to_one_loader_stay_with_it() -> None:
    class Own(Toy):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log(f"v{dataloader_idx}", float(dataloader_idx), add_dataloader_idx=False)

    assert quiet().validate(Own(), loaders(), verbose=False) == [{"v0": 0.0}, {"v1": 1.0}]


@pytest.mark.feature("L-08", "K-05")
def test_callbacks_watch_the_value_over_all(tmp_path: Path) -> None:
    class Worse(Toy):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("v", float(self.current_epoch + dataloader_idx), reduce_loaders="mean")

    saves = ModelCheckpoint(tmp_path, monitor="v", filename="{v:.2f}", auto_insert_metric_name=False)
    stops = EarlyStopping("v/noisy", patience=2)
    trainer = fit(
        Worse(), None, loaders(), max_epochs=9, callbacks=[saves, stops], enable_checkpointing=True, logger=False
    )
    assert trainer.current_epoch == 3
    assert saves.best_model_score is not None
    assert saves.best_model_score.item() == pytest.approx(6 / 16)
    assert Path(saves.best_model_path).name == "0.38.ckpt"


@pytest.mark.feature("L-08")
def test_the_value_is_there_when_the_epoch_ends_and_not_before() -> None:
    seen: list[tuple[str, set[str]]] = []

    class Looks(L.Callback):
        def on_validation_batch_end(self, trainer: Any, *args: Any) -> None:
            seen.append(("batch", set(trainer.callback_metrics)))

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            seen.append(("epoch", set(trainer.callback_metrics)))

    quiet(callbacks=Looks()).validate(Logs(reduce_loaders="mean"), loaders(), verbose=False)
    assert [names for where, names in seen if where == "epoch"] == [{"v", "v/clean", "v/noisy"}]
    assert all("v" not in names for where, names in seen if where == "batch")


@pytest.mark.feature("L-08")
@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({"only": 4}, ["v"]),
        ({1: 4, "1": 4}, ["v/dataloader_idx_0", "v/dataloader_idx_1"]),
        ({1: 4, "b": 4}, ["v/1", "v/b"]),
        ([4, 4], ["v/dataloader_idx_0", "v/dataloader_idx_1"]),
        ({"a": [4, 4]}, ["v/a[0]", "v/a[1]"]),
    ],
)
def test_which_loaders_have_names(given: Any, keys: list[str]) -> None:
    def made(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: made(item) for key, item in value.items()}
        return [made(item) for item in value] if isinstance(value, list) else loader(value)

    result = quiet().validate(Logs(), made(given), verbose=False)
    assert [list(row) for row in result] == [[key] for key in keys]


@pytest.mark.feature("L-08", "D-02")
def test_loaders_that_are_made_anew_may_have_other_names() -> None:
    class Data(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            return loader()

        def val_dataloader(self) -> Any:
            return loaders({f"epoch{self.trainer.current_epoch}": 4, "same": 4})

    trainer = quiet(max_epochs=2, reload_dataloaders_every_n_epochs=1)
    trainer.fit(Logs(reduce_loaders="mean"), datamodule=Data())
    assert set(trainer.callback_metrics) == {"v", "v/epoch0", "v/epoch1", "v/same"}


@pytest.mark.feature("L-08", "L-01")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"reduce_loaders": "sum"}, "reduce_loaders='sum' must be 'mean' or None"),
        ({"reduce_loaders": True}, "reduce_loaders=True must be 'mean' or None"),
        ({"reduce_loaders": "mean", "reduce_fx": "max"}, "needs reduce_fx='mean', not 'max'"),
        ({"reduce_loaders": "mean", "on_step": True, "on_epoch": False}, "set on_epoch=True"),
        ({"reduce_loaders": "mean", "add_dataloader_idx": False}, "leave one of them out"),
    ],
)
def test_wrong_flags(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(LoggingError, match=rf"'v'.*validation_step.*{words}"):
        quiet().validate(Logs(**flags), loaders(), verbose=False)


@pytest.mark.feature("L-08")
def test_under_lightnings_policy_the_value_over_all_can_still_be_asked_for() -> None:
    result = quiet(policy=Policy.lightning).validate(Logs(reduce_loaders="mean"), loaders(), verbose=False)
    assert [set(row) for row in result] == [{"v/dataloader_idx_0", "v"}, {"v/dataloader_idx_1", "v"}]
    assert result[0]["v"] == pytest.approx(OVER_ALL, abs=1e-6)

"""Data that is empty, broken or gone: the error names loader and batch; what was written before stays whole."""

from __future__ import annotations

import csv
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from fulmen.callbacks import ModelCheckpoint
from fulmen.errors import DataError, FulmenWarning, PossibleUserWarning
from fulmen.loggers import CSVLogger
from tests.integration.toys import Toy, fit, loader, quiet, rows

pytestmark = pytest.mark.feature("D-02")


class Breaks(Dataset[Any]):
    """Raises at its last row after so many reads of it."""

    def __init__(self, good: int, error: type[Exception]) -> None:
        self.rows = rows(12)
        self.good = good
        self.error = error

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == 11 and self.good == 0:
            raise self.error("torn row")
        self.good -= index == 11
        return self.rows[index]


class Logging(Toy):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss


@pytest.mark.filterwarnings("ignore:.*states of callbacks that this Trainer does not have")
@pytest.mark.parametrize("error", [ValueError, StopIteration])
def test_checkpoints_and_logs_before_the_fault_are_whole(tmp_path: Path, error: type[Exception]) -> None:
    saved = ModelCheckpoint(dirpath=tmp_path / "kept", every_n_epochs=1, save_top_k=-1)
    arguments: dict[str, Any] = {"max_epochs": 4, "enable_checkpointing": True, "log_every_n_steps": 1}
    broken, module = DataLoader(Breaks(2, error), batch_size=4), Logging()
    with pytest.raises(ValueError if error is ValueError else DataError) as caught:
        fit(module, broken, **arguments, callbacks=[saved], logger=CSVLogger(tmp_path / "log", name=""))
    notes = "\n".join([*caught.value.__notes__, *getattr(caught.value.__cause__, "__notes__", ())])
    assert "train_dataloader: batch 2 (samples 8, 9, 10, 11) could not be read" in notes
    assert "stage train, epoch 2, batch 2" in notes
    assert module.seen == [0, 1, 2, 0, 1, 2, 0, 1]

    files = sorted((tmp_path / "kept").glob("*.ckpt"))
    assert [torch.load(file, weights_only=True)["global_step"] for file in files] == [3, 6]
    with next((tmp_path / "log").rglob("metrics.csv")).open() as file:
        table = list(csv.DictReader(file))
    assert [row["step"] for row in table if row["loss_step"]] == [str(step) for step in range(8)]

    whole, resumed = Logging(), Logging()
    fit(whole, loader(12, 4), **{**arguments, "enable_checkpointing": False})
    trainer = quiet(**{**arguments, "enable_checkpointing": False})
    trainer.fit(resumed, loader(12, 4), ckpt_path=files[-1])
    assert torch.equal(whole.net.weight, resumed.net.weight)


# ----------------------------------------------------------------------------------------------------------- empty
class Nothing(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
@pytest.mark.filterwarnings("ignore:.*has 0 length")
def test_a_stage_without_data_is_an_error(stage: str) -> None:
    empty = DataLoader(rows(0))
    name = {"validate": "val", "test": "test", "predict": "predict"}[stage]
    with pytest.raises(DataError, match=f"{name}_dataloader.*its data set .TensorDataset. is empty"):
        getattr(quiet(), stage)(Toy(), empty)


@pytest.mark.filterwarnings("ignore:.*has 0 length")
def test_validation_in_a_fit_may_be_empty_with_a_warning() -> None:
    assert fit(Toy(), val=DataLoader(rows(0))).global_step == 6
    assert fit(Toy(), DataLoader(rows(0)), limit_train_batches=0).global_step == 0


@pytest.mark.filterwarnings("ignore:.*the data ended before the first batch")
def test_a_stream_without_data_is_an_error_in_training() -> None:
    with pytest.raises(DataError, match="train_dataloader: this DataLoader has no batches"):
        fit(Toy(), DataLoader(Nothing(), batch_size=2), max_epochs=3)


def test_a_validation_stream_without_data_is_told() -> None:
    with pytest.warns(FulmenWarning, match="val_dataloader: the data ended before the first batch.*W109"):
        fit(Toy(), val=DataLoader(Nothing(), batch_size=2))


@pytest.mark.filterwarnings("ignore:.*can be read only once")
def test_a_generator_that_is_used_up_is_an_error_in_the_second_epoch() -> None:
    module = Toy()
    with pytest.raises(DataError, match="train_dataloader: this generator has no batches") as caught:
        fit(module, (batch for batch in loader(4)), max_epochs=2)
    assert module.seen == [0, 1]
    assert "epoch 1" in caught.value.__notes__[-1]


@pytest.mark.feature("O-05")
def test_an_epoch_shorter_than_the_accumulation_window() -> None:
    words = "train_dataloader: an epoch has 6 batches, fewer than accumulate_grad_batches=8.*to at most 6.*W607"
    with pytest.warns(PossibleUserWarning, match=words):
        trainer = fit(Toy(), accumulate_grad_batches=8)
    assert trainer.global_step == 1
    fit(Toy(), accumulate_grad_batches=6)


# ------------------------------------------------------------------------------------------------------- odd batches
def batches(*sizes: int) -> DataLoader[Any]:
    return DataLoader([tuple(rows(size)[:]) for size in sizes], batch_size=None)  # type: ignore[arg-type]


def test_a_batch_without_rows_is_an_error_where_its_size_counts() -> None:
    with pytest.raises(DataError, match=r"batch 1 of the train loader has no rows.*collate function"):
        fit(Logging(), batches(2, 0, 2))
    with pytest.raises(DataError, match="batch 2 of the validate loader has no rows"):
        quiet().validate(Toy(), batches(2, 2, 0))


def test_a_step_may_leave_out_a_batch_without_rows() -> None:
    class Careful(Logging):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) if len(batch[0]) else None

    module = Careful()
    fit(module, batches(2, 0, 2))
    assert module.seen == [0, 2] and not module.net.weight.isnan().any()


class Stops(Toy):
    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return next(iter(()))

    predict_step = validation_step


@pytest.mark.parametrize(
    ("run", "hook"),
    [
        (lambda: fit(Stops(), val=loader(4)), "validation_step"),
        (lambda: quiet().validate(Stops(), loader(4)), "validation_step"),
        (lambda: quiet().predict(Stops(), loader(4)), "predict_step"),
        (lambda: fit(Toy(step=lambda *_: next(iter(())))), "training_step"),
    ],
)
def test_a_stop_iteration_of_a_step_is_no_end(run: Callable[[], Any], hook: str) -> None:
    with pytest.raises((RuntimeError, StopIteration)) as caught:
        run()
    assert f"`{hook}` of" in caught.value.__notes__[-1] and "batch 0" in caught.value.__notes__[-1]


SCRIPT = """
    import os, sys
    import torch
    from torch.utils.data import DataLoader, Dataset
    import fulmen as L
    from tests.integration.toys import Toy, quiet, rows

    class Dies(Dataset):
        def __len__(self): return 12
        def __getitem__(self, index):
            if index == 9: os._exit(3)
            return rows(12)[index]

    try:
        quiet().fit(Toy(), DataLoader(Dies(), batch_size=2, num_workers=2))
    except Exception as error:
        print(type(error).__name__, *error.__notes__, sep=chr(10))
"""


def test_a_worker_that_dies_is_explained() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, timeout=120, cwd=root
    )
    assert "A worker process of the loader ended by itself" in done.stdout, done.stderr
    assert "run once with num_workers=0" in done.stdout
    assert "stage train, epoch 0" in done.stdout

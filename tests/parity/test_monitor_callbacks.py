"""ModelCheckpoint and EarlyStopping against the installed Lightning's, driven by one stand-in Trainer."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fulmen.callbacks.early_stopping import EarlyStopping
from fulmen.callbacks.model_checkpoint import ModelCheckpoint
from fulmen.engine.runtime.policy import Policy
from tests.unit.callbacks.checkpoint_fakes import FakeTrainer, files, step_of

pytestmark = [
    pytest.mark.slow,  # importing Lightning takes five seconds
    # Both warn, in their own words, of values that are missing.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
FOLDER = "checkpoints"


class Driven(FakeTrainer):
    """Also offers the inner parts that Lightning's callbacks reach for."""

    has_validated = False

    @property
    def fit_loop(self) -> Any:
        batch_progress = SimpleNamespace(is_last_batch=self.is_last_batch)
        inner = SimpleNamespace(batch_progress=batch_progress, val_loop=SimpleNamespace(_has_run=self.has_validated))
        return SimpleNamespace(epoch_loop=inner)

    def validate(self, **metrics: Any) -> None:
        self.has_validated = True
        super().validate(**metrics)


def drive(trainer: Driven, values: list[list[float]], batches: int, every: int | None, then: str) -> Any:
    """Epochs of `batches` with a validation after each `every` batches; what is on disk after each, or the error."""
    seen: list[Any] = []
    try:
        trainer.start()
        for epoch_values in values:
            todo = iter(epoch_values)
            for index in range(batches):
                trainer.batch(index, last=index == batches - 1, loss=torch.tensor(4.0 * trainer.global_step % 11))
                if trainer.enable_validation and (index + 1) % (every or batches) == 0:
                    trainer.validate(v=torch.tensor(next(todo)))
            trainer.end_epoch(epoch_loss=torch.tensor(epoch_values[0]))
            seen.append({name: step_of(Path(FOLDER) / name) for name in files(FOLDER)})
        if then == "exception":
            trainer.fire("on_exception", ValueError("x"))
        else:
            trainer.fire("on_train_end")
        seen.append({name: step_of(Path(FOLDER) / name) for name in files(FOLDER)})
    except Exception as error:
        seen.append([base.__name__ for base in type(error).__mro__ if "Misconfiguration" in base.__name__])
    return seen


def known(callback: Any) -> dict[str, Any]:
    """The callback's state, with paths relative to the folder it was made in."""
    state = copy.deepcopy(callback.state_dict())
    state.pop("fulmen", None)
    return {
        name: {os.path.basename(path): score.item() for path, score in value.items()}
        if isinstance(value, dict)
        else os.path.basename(value) if isinstance(value, str) else value
        for name, value in state.items()
    }  # fmt: skip


triggers = st.sampled_from(
    [{}, {"every_n_epochs": 2}, {"every_n_epochs": 0}, {"every_n_train_steps": 2}, {"every_n_train_steps": 3}]
)
distinct = st.permutations([float(i) for i in range(9)])


@pytest.mark.feature("P-04", "C-01")
@settings(max_examples=150)
@given(
    trigger=triggers,
    monitor=st.sampled_from([None, "v", "loss", "epoch_loss", "nope"]),
    save_top_k=st.sampled_from([-1, 0, 1, 2]),
    save_last=st.sampled_from([None, True, "link"]),
    at_epoch_end=st.sampled_from([None, True, False]),
    mode=st.sampled_from(["min", "max"]),
    filename=st.sampled_from([None, "same", "{epoch}", "{step}-{v:.1f}"]),
    counter=st.booleans(),
    values=distinct,
    every=st.sampled_from([None, 1, 2]),
    validates=st.booleans(),
    then=st.sampled_from(["end", "exception"]),
)
def test_files_and_state_are_lightnings(
    tmp_path_factory: pytest.TempPathFactory, trigger: dict[str, int], monitor: str | None, save_top_k: int,
    save_last: Any, at_epoch_end: bool | None, mode: str, filename: str | None, counter: bool, values: list[float],
    every: int | None, validates: bool, then: str,
) -> None:  # fmt: skip
    from lightning.pytorch.callbacks import ModelCheckpoint as Theirs

    if monitor is None and save_top_k == 2:
        save_top_k = 1
    if counter and filename in ("same", "{epoch}"):
        then = "end"  # theirs overwrites a file of that name when an exception is raised
    results, scores = [], []

    def check(self: Any, trainer: Any, current: Any = None) -> bool:
        scores.append(None if current is None else current.item())
        return type(self).__base__.check_monitor_top_k(self, trainer, current)

    for base in (ModelCheckpoint, Theirs):
        kind = type(base.__name__, (base,), {"check_monitor_top_k": check})
        scores.clear()
        os.chdir(tmp_path_factory.mktemp("run"))
        callback = kind(
            dirpath=FOLDER, filename=filename, monitor=monitor, save_top_k=save_top_k, save_last=save_last, mode=mode,
            save_on_train_epoch_end=at_epoch_end, enable_version_counter=counter, save_on_exception=True, **trigger,
        )  # fmt: skip
        trainer = Driven(
            callback, policy=Policy.lightning, val_check_interval=every or 1.0, enable_validation=validates,
            num_val_batches=[2 if validates else 0], val_check_batch=every or 3,
        )  # fmt: skip
        os.makedirs(FOLDER)
        seen = drive(trainer, [values[i : i + 3] for i in (0, 3, 6)], 3, every, then)
        state = known(callback)
        if not counter:
            del state["kth_value"]  # theirs stays behind where a file is overwritten by a worse one
        results.append((callback.state_key, seen, state))
    numbers = [score for score in scores if score is not None]
    assume(len(set(numbers)) == len(numbers))  # of equal values the two keep different ones
    assert results[0] == results[1]


@pytest.mark.feature("P-04", "K-02")
@settings(max_examples=100)
@given(
    values=st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, float("nan"), float("inf")]), min_size=1, max_size=9),
    patience=st.integers(0, 3),
    mode=st.sampled_from(["min", "max"]),
    min_delta=st.sampled_from([0.0, 0.5, 1.0]),
    check_finite=st.booleans(),
    stopping=st.sampled_from([None, 0.5, 2.5]),
    divergence=st.sampled_from([None, 0.5, 2.5]),
    at_epoch_end=st.sampled_from([None, True, False]),
    every=st.sampled_from([1, 2, None]),
)
def test_early_stopping_decides_as_lightnings(
    values: list[float], patience: int, mode: str, min_delta: float, check_finite: bool, stopping: float | None,
    divergence: float | None, at_epoch_end: bool | None, every: int | None,
) -> None:  # fmt: skip
    from lightning.pytorch.callbacks import EarlyStopping as Theirs

    results = []
    for kind in (EarlyStopping, Theirs):
        callback = kind(
            "v", patience=patience, mode=mode, min_delta=min_delta, check_finite=check_finite,
            stopping_threshold=stopping, divergence_threshold=divergence, check_on_train_epoch_end=at_epoch_end,
        )  # fmt: skip
        trainer = Driven(callback, policy=Policy.lightning, check_val_every_n_epoch=every).start()
        seen = []
        for value in values:
            trainer.epoch(v=torch.tensor(value))
            state = callback.state_dict()
            state.pop("fulmen", None)
            state["stopping_reason_message"] = bool(state["stopping_reason_message"])
            state["best_score"] = str(state["best_score"])
            seen.append((trainer.should_stop, state))
        results.append((callback.state_key, seen))
    assert results[0] == results[1]

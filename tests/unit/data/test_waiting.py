from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest
from torch.utils.data import DataLoader

from fulmen.data import waiting
from fulmen.data.plan import LoaderPlan
from fulmen.errors import PossibleUserWarning


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "suggested_max_num_workers", lambda processes: 7)


class Slow:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return waiting.MEASURED + 4

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


@pytest.mark.feature("D-06")
def test_warns_with_the_measured_share_and_the_number_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LEAST_WAIT_S", 0.001)
    plan = LoaderPlan(DataLoader(Slow(0.002), batch_size=None), name="train_dataloader", watch_wait=True)
    words = (
        r"train_dataloader: training waits \d+ ms of every \d+ ms.*num_workers=0\). Set DataLoader\(num_workers=7.*W105"
    )
    with pytest.warns(PossibleUserWarning, match=words):
        assert list(plan.start()) == list(range(waiting.MEASURED + 4))
    list(plan.start())  # measured once


@pytest.mark.feature("D-06")
def test_fast_loaders_are_left_in_peace_and_the_watch_takes_itself_out() -> None:
    plan = LoaderPlan(DataLoader(Slow(0.0), batch_size=None), watch_wait=True)
    run = plan.start()
    for _ in range(waiting.MEASURED + 1):
        next(run)
    watchers = [item for item in gc.get_objects() if type(item) is waiting.WaitWatch]
    assert watchers == []
    list(run)


def test_watched_runs_hold_no_cycle() -> None:
    plan = LoaderPlan(DataLoader(Slow(0.0), batch_size=None), watch_wait=True)
    gc.collect()
    gc.disable()
    try:
        run = plan.start()
        next(run)
        gone = weakref.ref(run)
        plan.close()
        del run
        assert gone() is None
    finally:
        gc.enable()


def test_other_iterables_are_not_watched() -> None:
    assert len(list(LoaderPlan(range(40), watch_wait=True).start())) == 40


JUDGED = [
    (0.05, 0.06, 0, True),
    (0.05, 0.20, 0, False),  # a quarter of the time
    (0.005, 0.006, 0, False),  # five milliseconds
    (0.05, 0.06, 7, False),  # nothing to gain
    (0.05, 0.06, 2, True),
    (0.05, 0.06, None, False),
]


@pytest.mark.feature("D-06")
@pytest.mark.parametrize(("wait", "whole", "workers", "warns"), JUDGED)
def test_judge(wait: float, whole: float, workers: Any, warns: bool) -> None:
    def judge() -> None:
        waiting.judge([wait, wait, 9.0], [whole, whole, 9.5], workers, "loader")

    if warns:
        with pytest.warns(PossibleUserWarning, match=f"waits 50 ms of every 60 ms.*num_workers={workers}"):
            judge()
    else:
        judge()

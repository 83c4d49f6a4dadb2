from __future__ import annotations

import gc
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from fulmen.data import waiting
from fulmen.data.plan import LoaderPlan
from fulmen.errors import PossibleUserWarning
from tests.unit.data.streams import Augmented


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
    words = r"train_dataloader: training waits \d+ ms of every \d+ ms.*=0\). Set DataLoader\(num_workers=16.*W105"
    monkeypatch.setattr(waiting, "process_time", lambda: 0.0)
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


# Seconds of wait, of the whole batch, workers now, whether reading is work for the CPU → number to set, words.
JUDGED = [
    (0.05, 0.06, 0, True, 5, "a batch takes 50 ms to read and 10 ms to train on .5 would keep up."),
    (0.05, 0.06, 0, False, 5, "5 would keep up"),
    (0.05, 0.0625, 0, True, 4, "4 would keep up"),
    (0.05, 0.0999, 0, True, 1, "1 would keep up"),
    (0.09, 0.1, 0, True, 7, "this machine has cores for 7; the rest must come from a faster data set"),
    (0.09, 0.1, 0, False, 9, "9 would keep up"),  # the cores are not what it waits for
    (0.199, 0.2, 0, False, 16, "more than 16 seldom help"),
    (0.05, 0.06, 2, True, 7, "a batch takes 120 ms to read and 10 ms to train on .this machine has cores for 7"),
    (0.02, 0.04, 2, True, 4, "a batch takes 80 ms to read and 20 ms to train on .4 would keep up"),
    (0.05, 0.20, 0, True, None, ""),  # a quarter of the time
    (0.005, 0.006, 0, True, None, ""),  # five milliseconds
    (0.05, 0.06, 7, True, None, ""),  # nothing to gain
    (0.05, 0.06, None, True, None, ""),
]


@pytest.mark.feature("D-06")
@pytest.mark.parametrize(("wait", "whole", "workers", "computes", "number", "words"), JUDGED)
def test_judge(wait: float, whole: float, workers: Any, computes: bool, number: int | None, words: str) -> None:
    def judge() -> int | None:
        return waiting.judge([wait, wait, 9.0], [whole, whole, 9.5], workers, "loader", computes=computes)

    if number is None:
        assert judge() is None
    else:
        told = rf"waits {wait * 1e3:.0f} ms of every {whole * 1e3:.0f} ms.*num_workers={workers}\). "
        told += rf"Set DataLoader\(num_workers={number}\): .*{words}"
        with pytest.warns(PossibleUserWarning, match=told):
            assert judge() == number


@pytest.mark.feature("D-06")
@pytest.mark.parametrize(("busy", "number"), [(lambda: 0.3 * time.perf_counter(), 16), (time.perf_counter, 7)])
def test_reading_that_works_is_told_from_reading_that_waits(
    busy: Callable[[], float], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LEAST_WAIT_S", 0.001)
    monkeypatch.setattr(waiting, "process_time", busy)
    plan = LoaderPlan(DataLoader(Slow(0.003), batch_size=None), watch_wait=True)
    with pytest.warns(PossibleUserWarning, match=rf"num_workers={number}\)"):
        list(plan.start())


def wait_long(worker: int) -> None:
    time.sleep(0.15)


@pytest.mark.feature("D-06")
@pytest.mark.parametrize("track", [True, False])
def test_says_what_starting_workers_costs_per_epoch(track: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LEAST_START_S", 0.1)
    data = DataLoader(range(4), num_workers=1, worker_init_fn=wait_long)
    plan = LoaderPlan(data, name="val_dataloader", track_workers=track)
    try:
        assert len(list(plan.start())) == 4
        words = (
            r"val_dataloader: starting its 1 worker took 0\.\d s of the \d\.\d s from the start of one epoch to "
            r"that of the next \(\d\d+%, measured\). Set DataLoader\(persistent_workers=True\).*W116"
        )
        with pytest.warns(PossibleUserWarning, match=words):
            plan.start().close()
        assert len(list(plan.start())) == 4  # said once; the user's own start function still runs
        assert data.worker_init_fn is wait_long
    finally:
        plan.close()


@pytest.mark.feature("D-06")
def test_the_start_is_measured_without_changing_numbers() -> None:
    def make() -> DataLoader:
        return DataLoader(Augmented(12), batch_size=3, shuffle=True, num_workers=2)

    for track in (True, False):
        plan = LoaderPlan(make(), track_workers=track)
        torch.manual_seed(1)
        found = [[batch.tolist() for batch in plan.start()] for _ in range(3)]
        plan.close()
        loader = make()
        torch.manual_seed(1)
        assert found == [[batch.tolist() for batch in loader] for _ in range(3)]


@pytest.mark.feature("D-06")
def test_a_start_that_is_short_beside_the_epoch_or_unknown_is_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(waiting, "monotonic", lambda: now[0])
    clock = waiting.StartClock(2, "loader")
    assert clock.took_long() is None
    clock.begin()
    clock.ready[0] = 101.0
    assert clock.seconds() is None and clock.took_long() is None  # the other worker was not ready when the epoch ended
    clock.ready[1] = 102.0
    now[0] = 121.0
    assert clock.seconds() == 2.0 and clock.took_long() is False  # 2 of 21 seconds
    clock.tell(kept=False)
    now[0] = 119.0
    with pytest.warns(PossibleUserWarning, match=r"its 2 workers took 2.0 s of the 19.0 s .* \(11%, measured"):
        clock.tell(kept=False)
    clock.begin()
    clock.ready[:] = now[0] + 0.49
    assert clock.took_long() is False


def test_kept_workers_are_not_measured() -> None:
    data = DataLoader(range(4), num_workers=1, worker_init_fn=wait_long, persistent_workers=True)
    plan = LoaderPlan(data)
    assert [len(list(plan.start())) for _ in range(2)] == [4, 4]
    plan.close()


@pytest.mark.slow
@pytest.mark.feature("D-06")
def test_kept_workers_make_short_gaps() -> None:
    """Claim c9: kept workers begin the next epoch within 5 ms, at least five times as fast as new ones."""

    def gap(keep: bool) -> float:
        data = DataLoader(range(6), num_workers=1, worker_init_fn=wait_long, persistent_workers=keep)
        plan = LoaderPlan(data, track_workers=True)
        gaps = []
        for _ in range(6):
            run = plan.start()
            for _batch in run:
                ended = time.perf_counter()
                if run.batch_idx == 0 and gaps:
                    gaps[-1] = ended - gaps[-1]
            gaps.append(time.perf_counter())
        plan.close()
        return min(gaps[:-1])

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*starting its 1 worker")
        kept, new = gap(True), gap(False)
    assert kept <= 0.005 and new >= 5 * kept, (kept, new)

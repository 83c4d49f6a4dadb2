"""When a fit stops and validates, as tables over counters."""

from __future__ import annotations

from typing import Any

import pytest

from fulmen.engine.loops.control import Limits, Progress, RunControl
from fulmen.engine.loops.schedule import can_stop, epoch_validates, set_val_batch, validation_due, why_done
from fulmen.errors import ArgumentValueError, MisconfigurationException

INF = float("inf")


@pytest.mark.feature("T-03")
@pytest.mark.parametrize(
    ("control", "progress", "batches", "reason"),
    [
        ({"max_epochs": 2}, {"epoch": 1}, 5, None),
        ({"max_epochs": 2}, {"epoch": 2}, 5, "max_epochs=2 reached"),
        ({"max_epochs": -1}, {"epoch": 10**6}, 5, None),
        ({"max_epochs": None}, {"epoch": 10**6}, 5, None),
        ({"max_epochs": 0}, {}, 5, "max_epochs=0 reached"),
        ({"max_steps": 3}, {"global_step": 3}, 5, "max_steps=3 reached"),
        ({"max_steps": 3}, {"global_step": 2}, 5, None),
        ({"max_steps": 0}, {}, 5, "max_steps=0 reached"),
        ({"max_epochs": 2, "max_steps": 3}, {"epoch": 2, "global_step": 2}, 5, "max_epochs=2 reached"),
        ({"max_epochs": 2}, {}, 0, "there are no training batches"),
        ({"should_stop": True}, {}, 5, "trainer.should_stop was set"),
        ({"should_stop": True, "stop_reason": "no progress"}, {}, 5, "no progress"),
        ({"should_stop": True, "min_epochs": 2}, {"epoch": 1}, 5, None),
        ({"should_stop": True, "min_epochs": 2}, {"epoch": 2}, 5, "trainer.should_stop was set"),
        ({"should_stop": True, "min_steps": 4}, {"global_step": 3}, 5, None),
        ({"should_stop": True, "min_steps": 4}, {"global_step": 4}, 5, "trainer.should_stop was set"),
        ({"should_stop": True, "min_steps": 4, "min_epochs": 1}, {"global_step": 4}, 5, None),
        ({"min_epochs": 5, "max_steps": 3}, {"global_step": 3}, 5, "max_steps=3 reached"),
    ],
)
def test_why_a_fit_is_over(
    control: dict[str, Any], progress: dict[str, Any], batches: int | float, reason: str | None
) -> None:
    assert why_done(RunControl(**control), Progress(**progress), batches) == reason


@pytest.mark.feature("T-03")
def test_minima() -> None:
    assert can_stop(RunControl(), Progress())
    assert not can_stop(RunControl(min_epochs=1), Progress())
    assert not can_stop(RunControl(min_steps=1), Progress(epoch=5))


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(
    ("every", "epochs"), [(1, [0, 1, 2, 3, 4, 5]), (2, [1, 3, 5]), (3, [2, 5]), (None, [0, 1, 2, 3, 4, 5])]
)
def test_epochs_with_validation(every: int | None, epochs: list[int]) -> None:
    control = RunControl(val_every_epochs=every)
    assert [epoch for epoch in range(6) if epoch_validates(control, Progress(epoch=epoch))] == epochs


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(
    ("interval", "every", "length", "due"),
    [
        (1.0, 1, 6, [6, 12]),
        (0.5, 1, 6, [3, 6, 9, 12]),
        (0.3, 1, 6, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        (0.01, 1, 6, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        (4, 1, 6, [4, 10]),
        (1.0, 2, 6, [12]),
        (2, 2, 6, [8, 10, 12]),
        (4, None, 6, [4, 8, 12]),
        (7, None, 6, [7]),
        (1.0, 1, INF, [6, 12]),
        (4, 1, INF, [4, 10]),
        (4, None, INF, [4, 8, 12]),
    ],
)
def test_batches_after_which_validation_is_due(
    interval: int | float, every: int | None, length: int | float, due: list[int]
) -> None:
    """Two epochs of six batches."""
    control = RunControl(val_interval=interval, val_every_epochs=every)
    set_val_batch(control, length)
    found = []
    for epoch in range(2):
        for batch in range(1, 7):
            progress = Progress(epoch=epoch, batches=batch, total_batches=6 * epoch + batch)
            if validation_due(control, progress, is_last=batch == 6, at_end=False):
                found.append(progress.total_batches)
    assert found == due


@pytest.mark.feature("T-04", "T-18")
@pytest.mark.parametrize("at_end", [False, True])
def test_a_stop_validates_what_it_stops_with(at_end: bool) -> None:
    control = RunControl(val_batch=6, should_stop=True)
    assert validation_due(control, Progress(batches=2, total_batches=2), is_last=False, at_end=at_end)
    control.min_steps = 3
    assert not validation_due(control, Progress(batches=2, total_batches=2), is_last=False, at_end=at_end)


@pytest.mark.feature("T-04")
@pytest.mark.parametrize(
    ("control", "length", "error", "words"),
    [
        (
            {"val_interval": 7},
            6,
            ArgumentValueError,
            ("val_check_interval=7", "6 training batches", "limit_val"),
        ),
        ({"val_interval": 0.5}, INF, MisconfigurationException, ("val_check_interval=0.5", "not known", "int")),
    ],
)
def test_intervals_that_cannot_be(
    control: dict[str, Any], length: int | float, error: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        set_val_batch(RunControl(**control), length)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.feature("T-04")
def test_an_interval_beyond_the_epoch_is_fine_without_validation() -> None:
    set_val_batch(RunControl(val_interval=7, limits=Limits(val=0)), 6)
    set_val_batch(RunControl(val_interval=7, val_every_epochs=None), 6)


@pytest.mark.feature("O-01")
def test_progress_is_plain_state() -> None:
    progress = Progress(epoch=3, global_step=7, epoch_done=True)
    other = Progress()
    other.load_state_dict({**progress.state_dict(), "unknown": 1})
    assert other == progress

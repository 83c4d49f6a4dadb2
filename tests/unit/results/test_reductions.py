"""Epoch values: exact, whatever the number of values, their types and weights, and wherever a checkpoint falls."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fulmen.engine.results import entry as entries
from tests.unit.results.toys import Store

VALUE = st.one_of(
    st.floats(-1e6, 1e6, width=32),
    st.integers(-1000, 1000),
    st.floats(-1e6, 1e6, width=32).map(lambda v: torch.tensor(v, dtype=torch.float32)),
    st.floats(-1e6, 1e6, width=32).map(lambda v: torch.tensor(v, dtype=torch.float64)),
)
# Around the size of a block, and far beyond it.
COUNT = st.sampled_from([1, 2, 63, 64, 65, 127, 128, 129, 200])


@st.composite
def logged(draw: Any) -> list[tuple[Any, int]]:
    """Values with weights; long sequences repeat a few drawn ones, so that drawing stays quick."""
    few = draw(st.lists(st.tuples(VALUE, st.integers(1, 512)), min_size=1, max_size=12))
    count = draw(COUNT)
    return [few[index % len(few)] for index in range(count)]


def number(value: Any) -> float:
    return value.item() if isinstance(value, torch.Tensor) else value


@pytest.mark.feature("L-02")
@given(logged())
@settings(max_examples=60)
def test_the_mean_is_weighted_and_exact(values: list[tuple[Any, int]]) -> None:
    store = Store()
    for value, weight in values:
        store.log("x", value, batch_size=weight, on_epoch=True)
    total = sum(Fraction(number(value)) * weight for value, weight in values)
    mean = float(total / sum(weight for _, weight in values))
    largest = max(abs(number(value)) for value, _ in values)
    got = store.epoch_value("x_epoch").item()
    # float64 sums, rounded once to float32 at the end
    assert math.isclose(got, mean, rel_tol=1.2e-7, abs_tol=largest * 1e-12)
    assert store.step().log["x_step"].item() == pytest.approx(number(values[-1][0]), rel=1e-7)


@pytest.mark.feature("L-02")
@pytest.mark.parametrize("reduce", ["sum", "min", "max"])
@given(values=logged())
@settings(max_examples=25)
def test_sum_minimum_and_maximum(reduce: str, values: list[tuple[Any, int]]) -> None:
    store = Store()
    for value, weight in values:
        store.log("x", value, batch_size=weight, on_step=False, on_epoch=True, reduce_fx=reduce)
    numbers = [Fraction(number(value)) for value, _ in values]
    expected = float({"sum": sum, "min": min, "max": max}[reduce](numbers))
    largest = float(max(abs(n) for n in numbers))
    assert math.isclose(store.epoch_value("x").item(), expected, rel_tol=1.2e-7, abs_tol=largest * 1e-12)


@pytest.mark.feature("L-02")
@given(logged())
@settings(max_examples=25)
def test_a_function_gets_all_values_in_order(values: list[tuple[Any, int]]) -> None:
    got: list[Any] = []

    def last(tensor: torch.Tensor) -> torch.Tensor:
        got.append(tensor)
        return tensor[-1]

    store = Store()
    for value, _ in values:
        store.log("x", value, batch_size=1, on_step=False, on_epoch=True, reduce_fx=last)
    assert store.epoch_value("x").item() == pytest.approx(number(values[-1][0]), rel=1e-7)
    assert got[0].tolist() == [number(value) for value, _ in values]
    assert got[0].dim() == 1


@pytest.mark.feature("L-01")
@pytest.mark.parametrize(
    ("reduce_fx", "value"),
    [
        ("mean", 2.5), ("avg", 2.5), (torch.mean, 2.5), ("sum", 5), (sum, 5), (torch.sum, 5), ("min", 1), (min, 1),
        (torch.min, 1), ("max", 4), (max, 4), (torch.max, 4), (torch.prod, 4), (lambda t: t.std(unbiased=False), 1.5),
    ],
)  # fmt: skip
def test_spellings_of_reductions(reduce_fx: Any, value: float) -> None:
    store = Store()
    for logged_value in (1.0, 4.0):
        store.log("x", logged_value, batch_size=1, on_step=False, on_epoch=True, reduce_fx=reduce_fx)
    assert store.epoch_value("x") == value


@pytest.mark.feature("L-02")
def test_float64_all_the_way() -> None:
    """A million thousandths of a small number: float32 sums would be off in the third digit."""
    store = Store()
    store.log("x", torch.tensor(1e6), batch_size=1, on_step=False, on_epoch=True, reduce_fx="sum")
    for _ in range(3000):
        store.log("x", torch.tensor(0.01), batch_size=1, on_step=False, on_epoch=True, reduce_fx="sum")
    small = torch.tensor(0.01).item()
    assert store.epoch_value("x").item() == torch.tensor(1e6 + 3000 * small).item()
    naive = torch.tensor(1e6)
    for _ in range(3000):
        naive += torch.tensor(0.01)
    assert naive.item() != store.epoch_value("x").item()


@pytest.mark.feature("L-02")
@pytest.mark.parametrize("reduce", ["mean", "sum", "min", "max"])
@pytest.mark.parametrize("place", [0, 70])
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_nan_is_never_lost(reduce: str, place: int, kind: Any) -> None:
    store = Store()
    for index in range(140):
        value = float("nan") if index == place else float(index)
        store.log("x", kind(value), batch_size=1, on_step=False, on_epoch=True, reduce_fx=reduce)
        store.log("y", index, batch_size=1, on_step=False, on_epoch=True, reduce_fx=reduce)
    assert math.isnan(store.epoch_value("x"))
    assert not math.isnan(store.epoch_value("y"))


@pytest.mark.feature("L-02")
def test_infinity_and_types_that_change() -> None:
    store = Store()
    for value in (1, torch.tensor(2.0), torch.tensor(3.0, dtype=torch.float64), 4.0, torch.tensor(5.0)):
        store.log("x", value, batch_size=1, on_epoch=True)
    store.log("big", float("inf"), on_epoch=True, batch_size=1)
    assert store.epoch_value("x_epoch") == 3
    assert store.epoch_value("big_epoch") == float("inf")


@pytest.mark.feature("L-02")
def test_the_batch_size_is_looked_up_once_and_only_if_a_mean_asks() -> None:
    store = Store()
    store.size = 5
    store.batch("first")
    store.log("step", 1.0)
    store.log("sum", 1.0, on_epoch=True, reduce_fx="sum")
    store.log("given", 1.0, on_epoch=True, batch_size=3)
    assert store.lookups == []
    store.log("a", 1.0, on_epoch=True)
    store.log("b", 1.0, on_epoch=True)
    assert store.lookups == ["first"]
    store.batch("second")
    store.size = 15
    store.log("a", 2.0, on_epoch=True)
    store.log("given", 2.0, on_epoch=True, batch_size=1)
    assert store.lookups == ["first", "second"]
    assert store.epoch_value("a_epoch") == (1 * 5 + 2 * 15) / 20
    assert store.epoch_value("given_epoch") == (1 * 3 + 2) / 4


@pytest.mark.feature("L-02", "L-03")
def test_reading_never_changes_anything() -> None:
    store, other = Store(), Store()
    for index in range(150):
        for each in (store, other):
            each.log("x", torch.tensor(0.1 * index), batch_size=index + 1, on_epoch=True)
        store.epoch(), store.step(), store.results.state_dict()
    assert torch.equal(store.epoch_value("x_epoch"), other.epoch_value("x_epoch"))


@pytest.mark.feature("L-01")
def test_reset_forgets_values_and_keeps_flags() -> None:
    store = Store()
    store.log("x", 1.0, on_epoch=True)
    store.log("x", torch.tensor(1.0), on_epoch=True)
    store.results.reset()
    assert store.epoch().log == store.step().log == {}
    store.log("x", 5.0, on_epoch=True)
    assert store.epoch_value("x_epoch") == 5


@pytest.mark.feature("C-02", "L-02")
@given(values=logged(), cut=st.integers(0, 200), reduce=st.sampled_from(["mean", "sum", "min", "max", torch.median]))
@settings(max_examples=80)
def test_a_checkpoint_changes_no_bit(values: list[tuple[Any, int]], cut: int, reduce: Any) -> None:
    """Logged in two parts with a state between them: the same bits as in one part, before and after the next value."""

    def log(store: Store, part: list[tuple[Any, int]]) -> None:
        for value, weight in part:
            store.log("x", value, batch_size=weight, on_step=reduce == "mean", on_epoch=True, reduce_fx=reduce)

    whole, first, second = Store(), Store(), Store()
    log(whole, values)
    log(first, values[:cut])
    state = first.results.state_dict()
    second.results.load_state_dict(state)
    if values[:cut]:
        same(first, second)
    log(second, values[cut:])
    log(first, values[cut:])
    same(whole, second)
    same(whole, first)  # taking a state folds nothing


def same(one: Store, other: Store) -> None:
    for a, b in ((one.epoch(), other.epoch()), (one.step(), other.step())):
        for left, right in ((a.log, b.log), (a.callback, b.callback), (a.bar, b.bar)):
            assert left.keys() == right.keys()
            for key, value in left.items():
                assert value.dtype == right[key].dtype
                assert torch.equal(value, right[key]) or (value.isnan() and right[key].isnan())


@pytest.mark.feature("C-02")
def test_a_state_can_be_taken_again_before_anything_is_logged() -> None:
    first = Store()
    for index in range(70):
        first.log("x", torch.tensor(float(index)), batch_size=2, on_epoch=True, prog_bar=True)
        first.log("f", torch.tensor(float(index)), on_step=False, on_epoch=True, reduce_fx=torch.median)
    second, third = Store(), Store()
    second.results.load_state_dict(first.results.state_dict())
    third.results.load_state_dict(second.results.state_dict())
    same(first, third)
    for store in (first, third):
        store.log("x", torch.tensor(1.0), batch_size=2, on_epoch=True, prog_bar=True)
        store.log("f", torch.tensor(1.0), on_step=False, on_epoch=True, reduce_fx=torch.median)
    same(first, third)


@pytest.mark.feature("C-02")
def test_a_function_that_cannot_do_with_a_part_of_an_epoch_spoils_no_checkpoint() -> None:
    def both(values: torch.Tensor) -> torch.Tensor:
        if len(values) < 2:
            raise ValueError("too few")
        return values[0] * 10 + values[1]

    first, second = Store(), Store()
    first.log("x", 1.0, on_step=False, on_epoch=True, reduce_fx=both)
    second.results.load_state_dict(first.results.state_dict())
    assert second.epoch().log == {}
    third, fourth = Store(), Store()
    for store in (third, fourth):
        store.results.load_state_dict(second.results.state_dict())
    fourth.results.reset()
    for store in (second, third, fourth):
        store.log("x", 2.0, on_step=False, on_epoch=True, reduce_fx=both)
    assert second.epoch_value("x") == third.epoch_value("x") == 12
    with pytest.raises(ValueError, match="too few"):  # the epoch that was resumed is over
        fourth.epoch_value("x")


@pytest.mark.feature("C-02", "L-01")
def test_a_resumed_script_may_log_with_other_flags_but_only_from_the_start() -> None:
    first, second = Store(), Store()
    first.log("x", 1.0, on_epoch=True)
    second.results.load_state_dict(first.results.state_dict())
    second.log("x", 3.0, on_epoch=True, prog_bar=True)
    assert second.epoch_value("x_epoch") == 2
    assert "x_epoch" in second.epoch().bar
    with pytest.raises(Exception, match="called with other flags than before"):
        second.log("x", 3.0, on_epoch=True)


@pytest.mark.feature("L-06")
def test_memory_does_not_grow() -> None:
    store = Store()
    value = torch.tensor(0.5)

    def steps(count: int) -> None:
        for _ in range(count):
            for key in range(10):
                store.log(f"tensor {key}", value, batch_size=2, on_epoch=True)
                store.log(f"number {key}", 0.5, batch_size=2, on_epoch=True, reduce_fx="max")

    steps(2 * entries.BLOCK)
    tracemalloc.start()
    steps(entries.BLOCK)
    before, _ = tracemalloc.get_traced_memory()
    steps(20 * entries.BLOCK)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 4_000

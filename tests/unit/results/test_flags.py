"""`self.log`: what each flag does, what each hook allows, and what wrong calls are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fulmen.engine.hooks.spec import SPECS
from fulmen.errors import FulmenWarning, LoggingError, MisconfigurationException
from tests.unit.results.toys import Store

TRAIN = {
    "on_train_batch_start", "on_train_batch_end", "training_step", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "configure_gradient_clipping", "backward", "optimizer_step",
    "optimizer_zero_grad",
}  # fmt: skip
EVAL = {
    f"{name}{suffix}"
    for stage in ("validation", "test")
    for name, suffix in ((f"on_{stage}_batch_start", ""), (f"on_{stage}_batch_end", ""), (f"{stage}_step", ""))
}
EPOCH = {
    f"on_{stage}_{when}" for stage in ("train", "validation", "test") for when in ("start", "epoch_start", "epoch_end")
}


@pytest.mark.feature("L-01", "L-05")
@pytest.mark.parametrize("hook", sorted(TRAIN | EVAL | EPOCH))
def test_defaults_of_each_hook(hook: str) -> None:
    store = Store(hook)
    store.log("x", 2.0)
    on_step, on_epoch = (True, False) if hook in TRAIN else (False, True)
    assert ("x" in store.step().log) is on_step
    assert ("x" in store.epoch().log) is on_epoch


@pytest.mark.feature("L-01")
def test_the_hooks_are_lightnings() -> None:
    assert {name for name, spec in SPECS.items() if spec.log is not None} == TRAIN | EVAL | EPOCH


@pytest.mark.feature("L-01")
@pytest.mark.parametrize("hook", [*sorted(set(SPECS) - TRAIN - EVAL - EPOCH), None])
def test_other_hooks_refuse_and_name_those_that_do_not(hook: str | None) -> None:
    where = hook if hook is not None else "no hook"
    with pytest.raises(LoggingError, match=rf"'x'.*in `{where}`: logging is not allowed.*training_step.*test_step"):
        Store(hook).log("x", 1.0)


@pytest.mark.feature("L-01")
@pytest.mark.parametrize("hook", sorted(EPOCH))
@pytest.mark.parametrize(("flag", "value"), [("on_step", True), ("on_epoch", False)])
def test_epoch_hooks_have_no_steps(hook: str, flag: str, value: bool) -> None:
    with pytest.raises(
        LoggingError, match=f"`{hook}`: {flag}={value} is not allowed in this hook, only {flag}={not value}"
    ):
        Store(hook).log("x", 1.0, **{flag: value})


@pytest.mark.feature("L-01")
@pytest.mark.parametrize("hook", ["training_step", "validation_step"])
def test_suffixes(hook: str) -> None:
    store = Store(hook, training=hook == "training_step")
    store.log("both", 1.0, on_step=True, on_epoch=True)
    store.log("step", 2.0, on_step=True, on_epoch=False)
    store.log("epoch", 3.0, on_step=False, on_epoch=True)
    step, epoch = store.step(), store.epoch()
    assert set(step.log) == {"both_step", "step"}
    assert set(epoch.log) == {"both_epoch", "epoch"}
    assert set(epoch.callback) == {"both", "both_epoch", "epoch"}
    # Only training's step values can be monitored.
    assert set(step.callback) == ({"both", "both_step", "step"} if hook == "training_step" else set())


@pytest.mark.feature("L-01")
def test_logger_and_bar_choose_who_sees_a_value() -> None:
    store = Store()
    store.log("all", 1.0, prog_bar=True)
    store.log("bar", 2.0, prog_bar=True, logger=False)
    store.log("none", 3.0, logger=False)
    view = store.step()
    assert set(view.log) == {"all"}
    assert set(view.bar) == {"all", "bar"}
    assert set(view.callback) == {"all", "bar", "none"}


@pytest.mark.feature("L-01")
def test_several_loaders() -> None:
    store = Store("validation_step", training=False)
    for index in (0, 1):
        store.batch("b", index)
        store.log("x", float(index))
        store.log("plain", float(index), add_dataloader_idx=False)
        store.log("both", float(index), on_step=True, on_epoch=True)
        assert store.epoch().log.keys() == {f"x/dataloader_idx_{index}", "plain", f"both_epoch/dataloader_idx_{index}"}
        assert store.step().log.keys() == {f"both_step/dataloader_idx_{index}"}
        assert store.epoch_value(f"x/dataloader_idx_{index}") == index
        assert store.epoch().callback.keys() >= {f"x/dataloader_idx_{index}", f"both/dataloader_idx_{index}"}


@pytest.mark.feature("L-01")
@pytest.mark.parametrize(
    ("flag", "first", "second"),
    [
        ("prog_bar", False, True),
        ("logger", None, False),
        ("on_step", None, True),
        ("on_epoch", None, True),
        ("reduce_fx", "mean", "max"),
        ("sync_dist", False, True),
        ("add_dataloader_idx", True, False),
        ("rank_zero_only", False, True),
    ],
)
def test_the_same_key_with_other_flags_names_both_places(flag: str, first: Any, second: Any) -> None:
    store = Store()
    store.log("x", 1.0, **{flag: first})
    with pytest.raises(LoggingError) as caught:
        store.log("x", 1.0, **{flag: second})
    text = str(caught.value)
    assert f"{flag}={second!r} (was {first!r})" in text
    assert "First call: " in text and "this call: " in text
    assert text.count("toys.py:") == 2  # the file from which this test's calls come
    store.hook("on_train_batch_end")
    store.log("x", 1.0, **{flag: second})  # another hook has a key of its own


@pytest.mark.feature("L-01")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"prog_bar": 1}, "prog_bar=1 must be True or False"),
        ({"prog_bar": None}, "prog_bar=None must be True or False"),
        ({"enable_graph": "no"}, "enable_graph='no' must be True or False"),
        ({"sync_dist": 0}, "sync_dist=0 must be True or False"),
        ({"add_dataloader_idx": None}, "add_dataloader_idx=None must be True or False"),
        ({"rank_zero_only": "x"}, "rank_zero_only='x' must be True or False"),
        ({"logger": "csv"}, "logger='csv' must be True, False or None"),
        ({"on_step": 1}, "on_step=1 must be True, False or None"),
        ({"on_epoch": "end"}, "on_epoch='end' must be True, False or None"),
        ({"on_step": False, "on_epoch": False}, "log nothing; set one of them to True"),
        ({"reduce_fx": "men"}, r"reduce_fx='men' must be one of.*Did you mean 'mean'"),
        ({"reduce_fx": 3}, "reduce_fx=3 must be one of"),
        ({"reduce_fx": ["mean"]}, r"reduce_fx=\['mean'\] must be one of"),
        ({"reduce_fx": None}, "reduce_fx=None must be one of"),
        ({"metric_attribute": 3}, "metric_attribute=3 must be a non-empty string or None"),
        ({"metric_attribute": ""}, "metric_attribute='' must be a non-empty string or None"),
        ({"axis": 1}, "axis=1 must be a non-empty string or None"),
        ({"axis": ""}, "axis='' must be a non-empty string or None"),
        ({"axis": "x"}, "axis='x' is the value itself; give another axis"),
        ({"reduce_loaders": "max", "on_epoch": True}, "reduce_loaders='max' must be 'mean' or None"),
        ({"reduce_loaders": "mean"}, "reduce_loaders='mean' is of values of the epoch; set on_epoch=True"),
        ({"reduce_loaders": "mean", "on_epoch": True, "reduce_fx": min}, "needs reduce_fx='mean', not <built-in"),
        ({"batch_size": "4"}, "batch_size='4' must be a number, not str"),
        ({"batch_size": True}, "batch_size=True must be a number, not bool"),
        ({"batch_size": -1}, "batch_size=-1 must not be negative"),
        ({"batch_size": [4]}, r"batch_size=\[4\] must be a number, not list"),
        ({"batch_size": torch.ones(2)}, "batch_size=tensor.* must be a number, not Tensor"),
    ],
)
def test_wrong_flags(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(LoggingError, match=rf"self\.log\('x', \.\.\.\) in `training_step`.*{words}"):
        Store().log("x", 1.0, **flags)


@pytest.mark.feature("L-01")
@pytest.mark.parametrize("reduce_fx", ["MEAN", "Avg", "avg", "Sum"])
def test_reductions_in_other_cases(reduce_fx: str) -> None:
    store = Store("validation_step", training=False)
    for value in (1.0, 3.0):
        store.log("x", value, reduce_fx=reduce_fx)
    assert store.epoch_value("x") == (4.0 if reduce_fx == "Sum" else 2.0)


@pytest.mark.feature("L-01")
def test_the_loaders_number_may_be_in_the_name_where_it_is_not_appended() -> None:
    store = Store("validation_step", training=False)
    store.log("x/dataloader_idx_1", 1.0, add_dataloader_idx=False)
    assert store.epoch_value("x/dataloader_idx_1") == 1


@pytest.mark.feature("L-01")
@pytest.mark.parametrize("batch_size", [0.5, 2, torch.tensor(2), np.int64(2).item()])
def test_weights_that_are_numbers(batch_size: Any) -> None:
    store = Store("validation_step", training=False)
    store.log("x", 3.0, batch_size=batch_size)
    assert store.epoch_value("x") == 3


@pytest.mark.feature("L-01")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "must be a non-empty string"),
        (3, r"log\(3, .*must be a non-empty string"),
        (None, "must be a non-empty string"),
        ("x/dataloader_idx_1", "must not contain '/dataloader_idx_'"),
    ],
)
def test_wrong_names(name: Any, words: str) -> None:
    with pytest.raises(LoggingError, match=words):
        Store().log(name, 1.0)


@pytest.mark.feature("L-01", "L-09")
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(3), r"shape \(3,\).*\.mean\(\)"),
        (torch.ones(2, 2), r"shape \(2, 2\)"),
        (torch.ones(0), r"shape \(0,\)"),
        ("0.5", "str cannot be logged"),
        (None, "NoneType cannot be logged"),
        ([1.0], "list cannot be logged"),
        ({"a": 1.0}, r"dict cannot be logged.*log_dict"),
        (np.ones(3), "ndarray cannot be logged"),
        (1j, "complex cannot be logged"),
        (np.complex64(1j), "complex cannot be logged"),
        (torch.tensor(1j), r"tensor of torch\.complex64 cannot be logged.*abs"),
        (np.str_("a"), "str_? cannot be logged"),
        (b"x", "bytes cannot be logged"),
        ({"a": {"b": 1.0}}, r"dict cannot be logged.*log_dict"),
        ((1.0, 2.0), "tuple cannot be logged"),
        (lambda: 1.0, "function cannot be logged"),
        (torch.nn.Linear(1, 1), "Linear cannot be logged"),
    ],
)
def test_wrong_values_name_key_type_and_place(value: Any, words: str, later: bool) -> None:
    store = Store()
    if later:
        store.log("x", 1.0)
    with pytest.raises(MisconfigurationException, match=rf"(?s)self\.log\('x', .*in `training_step`.*{words}"):
        store.log("x", value)


@pytest.mark.feature("L-01")
@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1), (1.5, 1.5), (True, 1), (torch.tensor(2), 2), (torch.tensor([3.0]), 3.0), (np.float32(0.5), 0.5),
        (np.int64(4), 4), (np.array(5.0), 5.0), (torch.tensor(1.0, dtype=torch.bfloat16), 1.0),
        (torch.tensor(True), 1), (2**40 + 1, 2**40 + 1),
    ],
)  # fmt: skip
def test_values_that_can_be_logged(value: Any, number: float) -> None:
    store = Store()
    store.log("x", value)
    view = store.step().log["x"]
    assert view.dim() == 0
    assert view.item() == number
    assert view.dtype in (torch.float32, torch.int64)


@pytest.mark.feature("L-01", "L-03")
def test_integers_are_exact_and_floats_have_the_default_type() -> None:
    store = Store("validation_step", training=False)
    store.log("count", 2**53 + 1, reduce_fx="sum")
    store.log("mean", 3)
    store.log("half", torch.tensor(0.1, dtype=torch.float16))
    store.log("double", torch.tensor(0.1, dtype=torch.float64))
    assert store.epoch_value("count").item() == 2**53 + 1
    assert store.epoch_value("count").dtype == torch.int64
    assert store.epoch_value("mean").dtype == torch.float32
    assert store.epoch_value("half").dtype == store.epoch_value("double").dtype == torch.float32
    lightning = Store("validation_step", training=False, keep_integers=False)
    lightning.log("count", 3, reduce_fx="sum")
    assert lightning.epoch_value("count").dtype == torch.float32


@pytest.mark.feature("L-01")
def test_a_tensor_of_integers_that_is_averaged_is_pointed_out_once() -> None:
    store = Store("validation_step", training=False)
    with pytest.warns(FulmenWarning, match=r"'hits'.*torch\.int64.*\.float\(\)") as caught:
        store.log("hits", torch.tensor(1))
        store.log("hits", torch.tensor(2))
    assert len(caught) == 1
    assert store.epoch_value("hits") == 1.5


@pytest.mark.feature("L-01")
def test_values_are_detached_and_keep_what_they_were() -> None:
    weight = torch.ones((), requires_grad=True)
    store = Store()
    loss = weight * 2
    plain = torch.tensor(1.0)
    store.log("loss", loss, on_epoch=True, enable_graph=True)
    store.log("plain", plain)
    plain.mul_(100)
    loss.data.mul_(100)
    view = store.step().log
    assert view["plain"] == 1 and view["loss_step"] == 2
    assert not view["loss_step"].requires_grad
    view["plain"].add_(1)  # nor can readers change it
    assert store.step().log["plain"] == 1

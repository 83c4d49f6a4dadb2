"""The table of overridden hooks, and the list of callbacks that it watches."""

from __future__ import annotations

import copy
import pickle
import statistics
import time
from typing import Any
from unittest import mock

import pytest

import fulmen as L
from fulmen.engine.hooks.running import Cursor, pop_module, push_module, running_module
from fulmen.engine.hooks.spec import HOOK_NAMES, SLOT_NAMES, SPECS
from fulmen.engine.hooks.table import CallbackList, HookTable, overrides
from fulmen.errors import LoggingError


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []


class Named(L.Callback):
    """Writes its name down in one hook."""

    def __init__(self, name: str, calls: list[Any], *, last: bool = False) -> None:
        self.name, self.calls = name, calls
        self.decides_last = last  # type: ignore[misc]  # a class attribute; one instance differs here

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.calls.append(self.name)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.calls.append(self.name)


def table(module: Any = None, *callbacks: Any, monitors_last: bool = True) -> HookTable:
    module = module if module is not None else Module()
    return HookTable(
        "trainer", module, L.LightningModule, CallbackList(callbacks), Cursor(), monitors_last=monitors_last
    )


@pytest.mark.feature("M-01", "K-01")
def test_slots_are_none_while_nobody_overrides() -> None:
    hooks = table(Module(), L.Callback(), L.Callback())
    assert {name: getattr(hooks, name) for name in SLOT_NAMES} == dict.fromkeys(SLOT_NAMES)
    assert len(SLOT_NAMES) == 32


@pytest.mark.feature("M-01")
def test_every_hook_of_callbacks_and_modules_is_described() -> None:
    def hooks(cls: type) -> set[str]:
        return {name for name in vars(cls) if name.startswith("on_") and callable(getattr(cls, name))}

    found = {name for cls in L.Callback.__mro__ for name in hooks(cls)}
    assert found <= HOOK_NAMES
    assert {spec.name for spec in SPECS.values() if spec.callback and spec.name.startswith("on_")} == found
    module = {name for cls in L.LightningModule.__mro__ for name in hooks(cls)} - {"on_gpu"}
    assert module == {spec.name for spec in SPECS.values() if spec.module and spec.name.startswith("on_")}


@pytest.mark.feature("M-01", "K-01")
def test_overridden_on_the_class_or_on_the_instance() -> None:
    class Own(Module):
        def on_train_start(self) -> None:
            self.calls.append("class")

    class Inherits(Own):
        pass

    for module in (Own(), Inherits()):
        hooks = table(module)
        hooks.fire("on_train_start")
        assert module.calls == ["class"]
        assert hooks.on_train_end is None
    module = Module()
    module.on_train_end = lambda: module.calls.append("instance")  # type: ignore[method-assign]  # users do that
    hooks = table(module)
    hooks.fire("on_train_end")
    assert module.calls == ["instance"]
    assert overrides(module, "on_train_end", L.LightningModule)
    assert not overrides(module, "on_train_start", L.LightningModule)


@pytest.mark.feature("M-01", "K-01")
def test_order_and_arguments() -> None:
    calls: list[Any] = []

    class Own(Module):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int:
            calls.append(("module", batch, batch_idx))
            return -1

    class One(L.Callback):
        def on_train_batch_start(self, *args: Any) -> int:
            calls.append(("callback", *args))
            return 5  # what callbacks return does not count

    module = Own()
    hooks = table(module, One())
    assert hooks.on_train_batch_start is not None
    assert hooks.on_train_batch_start("batch", 3) == -1
    assert calls == [("callback", "trainer", module, "batch", 3), ("module", "batch", 3)]


@pytest.mark.feature("K-01")
@pytest.mark.parametrize(
    ("hook", "monitors_last", "order"),
    [
        ("on_train_epoch_end", True, ["b", "module", "a"]),
        ("on_train_epoch_end", False, ["b", "module", "a"]),  # as in Lightning
        ("on_validation_end", True, ["b", "module", "a"]),
        ("on_validation_end", False, ["a", "b", "module"]),
    ],
)
def test_callbacks_that_decide_come_after_the_module(hook: str, monitors_last: bool, order: list[str]) -> None:
    calls: list[Any] = []

    class Own(Module):
        def on_train_epoch_end(self) -> None:
            calls.append("module")

        on_validation_end = on_train_epoch_end

    hooks = table(Own(), Named("a", calls, last=True), Named("b", calls), monitors_last=monitors_last)
    hooks.fire(hook)
    assert calls == order


@pytest.mark.feature("M-01")
def test_patches_of_the_class_are_found_at_fixed_points() -> None:
    module = Module()
    hooks = table(module)
    with mock.patch.object(Module, "on_train_start", create=True) as patched:
        assert not hooks.stale()  # nothing that is looked at per batch has changed
        hooks.fire("on_train_start")
        patched.assert_called_once_with()
    hooks.fire("on_train_start")
    patched.assert_called_once_with()
    assert hooks.on_train_start is None


@pytest.mark.feature("M-01")
def test_patches_of_the_instance_make_the_table_stale() -> None:
    module = Module()
    hooks = table(module)
    with mock.patch.object(module, "on_after_backward") as patched:
        assert hooks.stale()
        hooks.build()
        assert not hooks.stale()
        assert hooks.on_after_backward is not None
        hooks.on_after_backward()
        patched.assert_called_once_with()
    assert hooks.stale()
    hooks.build()
    assert hooks.on_after_backward is None


@pytest.mark.feature("K-01", "T-18")
@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda c, n: c.append(n), "abn"),
        (lambda c, n: c.extend([n]), "abn"),
        (lambda c, n: c.insert(0, n), "nab"),
        (lambda c, n: c.remove(c[0]), "b"),
        (lambda c, n: c.pop(), "a"),
        (lambda c, n: c.pop(0), "b"),
        (lambda c, n: c.clear(), ""),
        (lambda c, n: c.reverse(), "ba"),
        (lambda c, n: c.sort(key=lambda x: x.name, reverse=True), "ba"),
        (lambda c, n: c.__setitem__(0, n), "nb"),
        (lambda c, n: c.__setitem__(slice(0, 2), [n]), "n"),
        (lambda c, n: c.__delitem__(1), "a"),
        (lambda c, n: c.__iadd__([n]), "abn"),
        (lambda c, n: c.__imul__(2), "abab"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_change_of_the_list_is_noticed(change: Any, names: str) -> None:
    calls: list[Any] = []
    hooks = table(None, Named("a", calls), Named("b", calls))
    callbacks = hooks.callbacks
    assert not hooks.stale()
    change(callbacks, Named("n", calls))
    assert hooks.stale()
    assert isinstance(callbacks, CallbackList)
    hooks.fire("on_train_epoch_end")
    assert calls == list(names)
    assert not hooks.stale()


@pytest.mark.feature("K-01")
def test_reading_the_list_changes_nothing_and_copies_are_lists() -> None:
    callbacks = CallbackList([L.Callback(), L.Callback()])
    _ = callbacks[0], callbacks[:1], len(callbacks), list(callbacks), callbacks.index(callbacks[1]), callbacks.copy()
    assert callbacks.version == 0
    for other in (pickle.loads(pickle.dumps(callbacks)), copy.copy(callbacks), copy.deepcopy(callbacks)):
        assert type(other) is CallbackList
        assert len(other) == 2
        other.append(L.Callback())
        assert (len(callbacks), callbacks.version) == (2, 0)


@pytest.mark.feature("L-01")
def test_the_cursor_stands_on_the_hook_that_runs_also_nested() -> None:
    seen: list[Any] = []

    class Own(Module):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            seen.append(cursor.hook.name)
            assert hooks.on_after_backward is not None
            hooks.on_after_backward()
            seen.append(cursor.hook.name)

        def on_after_backward(self) -> None:
            seen.append(cursor.hook.name)

    hooks = table(Own())
    cursor = hooks.cursor
    assert cursor.hook is None
    hooks.on_before_optimizer_step(None)  # type: ignore[misc]  # it is overridden
    assert seen == ["on_before_optimizer_step", "on_after_backward", "on_before_optimizer_step"]
    assert cursor.hook is None


@pytest.mark.feature("K-01")
def test_a_wrapper_gets_every_slot_and_only_those() -> None:
    wrapped: list[str] = []

    def wrap(name: str, slot: Any) -> Any:
        wrapped.append(name)
        return slot

    HookTable(
        "trainer", Module(), L.LightningModule, CallbackList([Named("a", [])]), Cursor(), monitors_last=True, wrap=wrap
    )
    assert wrapped == ["on_train_epoch_end", "on_validation_end"]


@pytest.mark.feature("K-01")
def test_listeners_are_told_of_each_build() -> None:
    hooks, builds = table(), []
    hooks.listen(lambda: builds.append(hooks.builds))
    hooks.fire("on_train_end")
    assert builds == []
    hooks.callbacks.append(L.Callback())
    hooks.fire("on_train_end")
    assert builds == [2]


@pytest.mark.feature("L-05")
def test_the_module_of_the_run_is_that_of_the_innermost() -> None:
    with pytest.raises(LoggingError, match="was called outside of a run"):
        running_module("C.log('x', ...)")
    push_module("outer")
    push_module("inner")
    assert running_module("") == "inner"
    pop_module()
    assert running_module("") == "outer"
    pop_module()


def test_a_build_takes_no_time_worth_speaking_of() -> None:
    """Goal 100 µs; the gate leaves room for a busy machine."""
    hooks = table(None, *(Named(str(index), []) for index in range(5)))
    times = []
    for _ in range(200):
        start = time.perf_counter()
        hooks.build()
        times.append(time.perf_counter() - start)
    assert statistics.median(times) < 400e-6

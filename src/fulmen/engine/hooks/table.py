"""The table of hooks: one slot per hook with the methods that are really overridden.

A slot is `None` while nobody overrides the hook, so that a loop pays one truth test for it. The table is built once
and again at fixed points (`HookSpec.rebuild`), when `trainer.callbacks` changed, or when the module got or lost an
instance attribute; `stale()` compares one integer and two lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from fulmen.callbacks.callback import Callback
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import BEFORE_OPTIMIZER_STEP, OLD_HOOKS, OLD_WITH, SLOT_NAMES, SPECS, HookSpec

F = TypeVar("F", bound=Callable[..., Any])


class CallbackList(list[Any]):
    """The list behind `trainer.callbacks`; counts its changes so that hooks appended during a run are found.

    Attributes:
        version: Number of changes so far.
    """

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.version = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (CallbackList, (list(self),))


def _counting(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def changed(self: CallbackList, *args: Any, **kwargs: Any) -> Any:
        self.version += 1
        return method(self, *args, **kwargs)

    changed.__name__ = name
    return changed


for _name in (
    "append",
    "extend",
    "insert",
    "remove",
    "pop",
    "clear",
    "sort",
    "reverse",
    "__setitem__",
    "__delitem__",
    "__iadd__",
    "__imul__",
):
    setattr(CallbackList, _name, _counting(_name))


def overrides(obj: Any, name: str, base: type) -> bool:
    """Whether `obj` has its own version of method `name`, on its class or on the instance."""
    if name in getattr(obj, "__dict__", ()):
        return True
    own = getattr(type(obj), name, None)
    if own is None:  # a stand-in whose methods come from `__getattr__`, as those of `unittest.mock` do
        return callable(getattr(obj, name, None))
    return own is not getattr(base, name, None)


def ignores_outputs(function: F) -> F:
    """Mark a callback's `on_train_batch_end` that does not read `outputs`: if all are marked, none are made."""
    function.__dict__["ignores_outputs"] = True
    return function


def _is_marked(function: Callable[..., Any]) -> bool:
    return getattr(getattr(function, "func", function), "ignores_outputs", False) is True


def takes_optimizer_idx(function: Callable[..., Any]) -> bool:
    """Whether a hook wants the number of the optimizer, as those of Lightning 1.x did."""
    code = getattr(getattr(function, "func", function), "__code__", None)
    return code is not None and "optimizer_idx" in code.co_varnames[: code.co_argcount]


def _without_arguments(function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """A hook of Lightning 1.x in a place where others get arguments."""

    def called(*args: Any) -> None:
        function(*given)

    return called


class Slot:
    """The overridden methods of one hook, called in order: callbacks, the module, callbacks that decide last.

    Attributes:
        reads_outputs: Whether one of them may read its argument `outputs`.
    """

    __slots__ = (
        "after",
        "before",
        "callbacks",
        "cursor",
        "module",
        "patches",
        "reads_outputs",
        "spec",
        "table",
        "version",
    )

    def __init__(
        self,
        spec: HookSpec,
        table: HookTable,
        before: tuple[Callable[..., Any], ...],
        module: Callable[..., Any] | None,
        after: tuple[Callable[..., Any], ...],
    ) -> None:
        self.spec = spec
        self.patches = spec.patches
        self.table = table
        self.cursor = table.cursor
        self.callbacks = table.callbacks
        self.version = table.callbacks.version
        self.before = before
        self.module = module
        self.after = after
        functions = (*before, module, *after)
        self.reads_outputs = any(f is not None and not _is_marked(f) for f in functions)

    def __call__(self, *args: Any) -> Any:
        """Call all of them with `args`; returns what the module's method returned."""
        cursor = self.cursor
        outer = cursor.hook
        cursor.hook = self.spec
        result = None
        for function in self.before:
            function(*args)
        if self.version != self.callbacks.version:
            self.table.call_late(self.spec, args)
        if self.module is not None:
            result = self.module(*args)
        for function in self.after:
            function(*args)
        # Not restored on an exception on purpose: the note on it names the hook that was running.
        cursor.hook = outer
        if self.patches and self.table.stale():
            self.table.build()
        return result


class HookTable:
    """Slots of all hooks that loops fire, as attributes of the hook's name (`None` if nobody overrides it).

    Args:
        trainer: Handed to callbacks; not used otherwise.
        module: The module whose hooks run.
        module_base: The class whose methods count as not overridden (`LightningModule`).
        callbacks: The live list of callbacks.
        cursor: Where the running hook is noted.
        monitors_last: `Policy.monitors_last`.
        strategy_hooks: Hooks of a strategy's subclass; they run after the module's, with the loop's arguments.
        wrap: Given a hook's name and a slot, returns what to call (a profiler's range); `None` for none.
        old_hooks: Hooks of Lightning 1.x are called with those that took their place.
    """

    on_fit_start: Slot | None
    on_fit_end: Slot | None
    on_sanity_check_start: Slot | None
    on_sanity_check_end: Slot | None
    on_train_start: Slot | None
    on_train_end: Slot | None
    on_train_epoch_start: Slot | None
    on_train_epoch_end: Slot | None
    on_train_batch_start: Slot | None
    on_train_batch_end: Slot | None
    on_before_zero_grad: Slot | None
    on_before_backward: Slot | None
    on_after_backward: Slot | None
    on_before_optimizer_step: Slot | None

    def __init__(
        self,
        trainer: Any,
        module: Any,
        module_base: type,
        callbacks: CallbackList,
        cursor: Cursor,
        *,
        monitors_last: bool,
        strategy_hooks: Mapping[str, Callable[..., Any]] | None = None,
        wrap: Callable[[str, Slot], Any] | None = None,
        old_hooks: bool = False,
    ) -> None:
        self.trainer = trainer
        self.module = module
        self.module_base = module_base
        self.callbacks = callbacks
        self.cursor = cursor
        self.monitors_last = monitors_last
        self.strategy_hooks = strategy_hooks or {}
        self.wrap = wrap
        self.old_hooks = old_hooks
        self.builds = 0
        self._seen: tuple[int, int] = (-1, -1)
        self._known: list[Any] = []
        self._attributes: dict[str, Any] = module.__dict__
        self._listeners: list[Callable[[], None]] = []
        self.build()

    def stale(self) -> bool:
        """Whether callbacks or the module's instance attributes changed since the last build."""
        return self._seen != (self.callbacks.version, len(self._attributes))

    def listen(self, function: Callable[[], None]) -> None:
        """Have `function` called after each build (steps look up what they call)."""
        self._listeners.append(function)

    def build(self) -> None:
        """Look up which hooks are overridden now."""
        self.builds += 1
        callbacks = list(self.callbacks)
        for name in SLOT_NAMES:
            setattr(self, name, self._slot(SPECS[name], callbacks))
        self._seen = (self.callbacks.version, len(self._attributes))
        self._known = callbacks
        for function in self._listeners:
            function()

    def _slot(self, spec: HookSpec, callbacks: Sequence[Any]) -> Any:
        before: list[Callable[..., Any]] = []
        after: list[Callable[..., Any]] = []
        last = spec.decides and (self.monitors_last or spec.decides_always)
        for callback in callbacks:
            if overrides(callback, spec.name, Callback):
                bound = partial(getattr(callback, spec.name), self.trainer, self.module)
                (after if last and getattr(callback, "decides_last", False) else before).append(bound)
        if spec.name in self.strategy_hooks:
            after.insert(0, self.strategy_hooks[spec.name])
        own = self.own(spec.name) if spec.module else None
        if self.old_hooks:
            before, after, own = self._with_old_ones(spec, callbacks, before, after, own)
        if not before and not after and own is None:
            return None
        slot = Slot(spec, self, tuple(before), own, tuple(after))
        return self.wrap(spec.name, slot) if self.wrap is not None else slot

    def _with_old_ones(
        self, spec: HookSpec, callbacks: Sequence[Any], before: list[Any], after: list[Any], own: Any
    ) -> tuple[list[Any], list[Any], Any]:
        """Add hooks of Lightning 1.x, and give an argument to those of today that ask for it as they did there."""
        if spec is BEFORE_OPTIMIZER_STEP:
            before, after = list(map(self._numbered, before)), list(map(self._numbered, after))
            own = None if own is None else self._numbered(own)
        for name in OLD_WITH[spec.name]:
            old = [
                _without_arguments(function, self.trainer, self.module)
                for callback in callbacks
                if callable(function := getattr(callback, name, None))
            ]
            if callable(function := getattr(self.module, name, None)):
                old.append(_without_arguments(function))
            before, after = ([*old, *before], after) if OLD_HOOKS[name].first else (before, [*after, *old])
        return before, after, own

    def _numbered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not takes_optimizer_idx(function):
            return function

        def with_number(optimizer: Any) -> Any:
            numbers = [i for i, other in enumerate(self.trainer.optimizers) if other is optimizer]
            return function(optimizer, numbers[0] if numbers else 0)

        return with_number

    def own(self, name: str) -> Callable[..., Any] | None:
        """The module's method of that name if it is overridden, else `None`."""
        if overrides(self.module, name, self.module_base):
            function = getattr(self.module, name)
            return function if callable(function) else None
        return None

    def fire(self, name: str, *args: Any) -> Any:
        """Build anew if the hook asks for it, then call its slot; for hooks outside of the per-batch path."""
        spec = SPECS[name]
        if spec.rebuild or self.stale():
            self.build()
        slot = getattr(self, name)
        if slot is None:
            return None
        result = slot(*args)
        if spec.rebuild:  # for what the hook patched
            self.build()
        return result

    def call_late(self, spec: HookSpec, args: tuple[Any, ...]) -> None:
        """Callbacks appended while a hook runs get it too, after the others, as if a loop went over the live list."""
        known = {id(callback) for callback in self._known}
        self.build()
        for callback in list(self.callbacks):
            if id(callback) not in known and overrides(callback, spec.name, Callback):
                getattr(callback, spec.name)(self.trainer, self.module, *args)

    def call_module(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the module, overridden or not, with the cursor on it."""
        cursor = self.cursor
        outer, cursor.hook = cursor.hook, SPECS.get(name)
        result = getattr(self.module, name)(*args, **kwargs)
        cursor.hook = outer
        return result

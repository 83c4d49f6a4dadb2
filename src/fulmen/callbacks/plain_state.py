"""Pickles of callbacks that name no class but the callback's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class PlainState:
    """Mixin: helper objects in attributes are pickled as the values they hold.

    Libraries that load pickles safely (darts does) admit callbacks, and nothing of a callback's inner workings.
    """

    _helpers: ClassVar[Mapping[str, type]] = {}
    """Attributes that hold a helper, and its class."""

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        return {**state, **{name: dict(vars(state[name])) for name in self._helpers if name in state}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            kind = self._helpers.get(name)
            if kind is not None and isinstance(value, dict):
                helper: Any = object.__new__(kind)
                vars(helper).update(value)
                value = helper
            vars(self)[name] = value

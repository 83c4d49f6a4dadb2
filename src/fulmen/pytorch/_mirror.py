"""What makes a module offer the names of another one without importing it first."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def mirror(room: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module that stands for the room of that name."""

    def __getattr__(name: str) -> Any:  # noqa: N807 - the module's own
        # Not __path__ above all: a second copy of the room's modules would be imported from there.
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        return getattr(importlib.import_module(room), name)

    def __dir__() -> list[str]:  # noqa: N807 - the module's own
        return sorted(importlib.import_module(room).__all__)

    return __getattr__, __dir__

"""What the alias modules are made of, and what says that a name or a module of Lightning's is not there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import ModuleSpec
from opcode import opmap
from types import FrameType, ModuleType
from typing import Any, NoReturn

from fulmen.compat.families import FAMILIES
from fulmen.errors import suggest
from fulmen.version import LIGHTNING_VERSION, __version__

_IMPORT_FROM = opmap["IMPORT_FROM"]


def absent(module: str, names: Iterable[str]) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of an alias module whose names are all there already.

    Args:
        module: Name of the alias module.
        names: The names it has, for suggestions.
    """
    known = sorted(names)

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 - the module's own
        raise _not_here(module, name, known, sys._getframe(1))

    return __getattr__


def lazy(module: str, rooms: Mapping[str, str], below: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of an alias package; names are looked up on first use.

    Args:
        module: Name of the alias package.
        rooms: Module of Fulmen → the names from there, separated by spaces; ``there@here`` where they differ.
        below: Modules of the package, separated by spaces; real packages offer them as attributes too.
    """
    home: dict[str, tuple[str, str]] = {}
    for room, names in rooms.items():
        for entry in names.split():
            there, _, here = entry.partition("@")
            home[here or there] = room, there
    modules = frozenset(below.split())
    known = sorted({*home, *modules})

    def __getattr__(name: str) -> Any:  # noqa: N807 - the module's own
        if name in home:
            room, there = home[name]
            value = getattr(importlib.import_module(room), there)
            setattr(sys.modules[module], name, value)
            return value
        if name in modules:
            return importlib.import_module(f"{module}.{name}")
        raise _not_here(module, name, known, sys._getframe(1))

    def __dir__() -> list[str]:  # noqa: N807 - the module's own
        return sorted({*vars(sys.modules[module]), *known})

    return __getattr__, __dir__


def _not_here(module: str, name: str, known: list[str], caller: FrameType) -> Exception:
    if name.startswith("__") and name.endswith("__"):  # Python asks for many of these
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    text = (
        f"{module}.{name} is not in this version of Fulmen ({__version__}), which stands here for Lightning"
        f" {LIGHTNING_VERSION}.{suggest(name, known)}"
    )
    # Of an AttributeError, `from module import name` would keep nothing but the name.
    code, last = caller.f_code.co_code, caller.f_lasti
    if 0 <= last < len(code) and code[last] == _IMPORT_FROM:
        return ImportError(text, name=module)
    return AttributeError(text, name=name, obj=sys.modules.get(module))


class AbsentModules:
    """Last on `sys.meta_path`: an `import` of an alias module that is not there says so in words.

    Asking whether there is one (`importlib.util.find_spec`) is answered with `None` as ever.
    """

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Raise for an absent module of the alias packages that is being imported."""
        parent, _, last = name.rpartition(".")
        package = sys.modules.get(parent)
        if package is None or name.partition(".")[0] not in FAMILIES or not _is_import(sys._getframe(1)):
            return None
        raise ModuleNotFoundError(
            f"No module named {name!r}: it is not in this version of Fulmen ({__version__}), which stands here for"
            f" Lightning {LIGHTNING_VERSION}.{suggest(last, dir(package))}",
            name=name,
        )


def _is_import(frame: FrameType | None) -> bool:
    # importlib._bootstrap: _find_spec, called by _find_and_load_unlocked for imports and by others for questions.
    caller = frame.f_back if frame is not None else None
    return caller is not None and caller.f_code.co_name == "_find_and_load_unlocked"

"""Which types of the user's own a checkpoint may bring back.

Nothing is ever imported because a file names it: a name in a file is only looked up among types that are here already,
registered by the user (`add_safe_types`), Fulmen's own, or seen while this very process wrote a checkpoint.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch

from fulmen.errors import ArgumentTypeError, ArgumentValueError

# Calling anything of these with a value from a file could run code or touch files, so they are refused.
_NEVER = frozenset(
    [
        *("builtins", "os", "posix", "nt", "sys", "subprocess", "importlib", "runpy", "shutil", "pty", "socket"),
        *("code", "codeop", "pickle", "_pickle", "marshal", "shelve", "ctypes", "multiprocessing", "asyncio"),
        *("threading", "tempfile", "webbrowser", "pdb", "timeit"),
    ]
)

_REGISTERED: dict[str, Any] = {}
_WRITTEN: dict[str, Any] = {}
# Known to this process and its forks only. What carries a seal made with it was written here and is trusted.
_KEY = os.urandom(32)
# torch keeps its list per process; two threads that read at once would take each other's entries away.
_torch_lock = threading.RLock()


def _fresh_lock() -> None:
    global _torch_lock
    _torch_lock = threading.RLock()


# A fork while another thread reads would leave the child with a lock that nobody opens.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


def qualified_name(item: Any) -> str:
    """Return ``module.qualname`` of a class or function."""
    return f"{getattr(item, '__module__', '?')}.{getattr(item, '__qualname__', getattr(item, '__name__', '?'))}"


def add_safe_types(*types: Any) -> None:
    """Allow checkpoints to bring values of these types back.

    A registered enum, dataclass, named tuple or container comes back as its type. An object that was pickled into a
    checkpoint is unpickled if all classes and functions it names are registered. A registered class may be made with
    any values a file holds, so register only classes whose making does nothing but keep those values. Functions are
    brought back as values; they are never called by loading.

    Args:
        types: Classes or functions.

    Raises:
        ArgumentTypeError: One of them is neither a class nor a function.
        ArgumentValueError: One of them is from a module that can run programs or change files.
    """
    for item in types:
        if not isinstance(item, (type, FunctionType)) and not _builtin_function(item):
            raise ArgumentTypeError(
                f"add_safe_types() takes classes and functions, got {item!r:.100} of type {type(item).__name__}."
                " Pass the class itself, for example add_safe_types(MyConfig)."
            )
        name = qualified_name(item)
        if str(getattr(item, "__module__", "")).partition(".")[0] in _NEVER:
            raise ArgumentValueError(
                f"add_safe_types() refuses {name}: with it a checkpoint could run programs or change files."
                " If you trust the file, load it with weights_only=False."
            )
    _REGISTERED.update({qualified_name(item): item for item in types})


def _builtin_function(item: Any) -> bool:
    return callable(item) and hasattr(item, "__name__") and hasattr(item, "__qualname__")


def as_table(types: Iterable[Any] | Mapping[str, Any] = ()) -> dict[str, Any]:
    """Return the registered types and `types` by qualified name."""
    extra = dict(types) if isinstance(types, Mapping) else {qualified_name(item): item for item in types}
    return {**_REGISTERED, **extra}


@contextmanager
def allowed_in_torch(table: Mapping[str, Any]) -> Iterator[None]:
    """Let torch's restricted unpickler make the classes of a table, and nothing else that it does not know."""
    classes: list[Any] = [(item, name) for name, item in table.items() if isinstance(item, type)]
    with _torch_lock, torch.serialization.safe_globals(classes):
        yield


def seal(payload: bytes) -> str:
    """Return a mark that only this process (and its forks) can make for `payload`."""
    return hmac.new(_KEY, payload, hashlib.sha256).hexdigest()


def seal_holds(payload: bytes, mark: object) -> bool:
    """Return whether `mark` was made by this process for exactly `payload`."""
    return isinstance(mark, str) and mark.isascii() and hmac.compare_digest(seal(payload), mark)


def note_written(item: Any) -> dict[str, str]:
    """Remember a user's class or function that a checkpoint names; return what the file says about it."""
    name = qualified_name(item)
    _WRITTEN[name] = item
    return {"type": name, "seal": seal(f"type:{name}".encode())}


def find_named(entry: Mapping[str, Any], table: Mapping[str, Any], *, trusted: bool) -> Any:
    """Return the class or function that a file's entry names, if it may be used; `None` otherwise.

    Args:
        entry: ``{"type": name, "seal": mark}`` from the file.
        table: What is allowed by name.
        trusted: The user said that the file may import and run what it names (``weights_only=False``).
    """
    name = entry.get("type")
    if not isinstance(name, str):
        return None
    found = table.get(name)
    if found is None and seal_holds(f"type:{name}".encode(), entry.get("seal")):
        found = _WRITTEN.get(name)
    if found is None and name.startswith("fulmen."):
        found = _own_enum(name)
    if found is None and trusted:
        found = _import_named(name)
    return found


def _own_enum(name: str) -> type | None:
    """Return an enum of Fulmen's own that is imported already: making its members runs nothing."""
    module, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(module), attribute, None)
    return found if isinstance(found, type) and issubclass(found, enum.Enum) else None


def _import_named(name: str) -> Any:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        return found
    return None

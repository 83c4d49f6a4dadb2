"""Values that only pickle can keep: packed beside the checkpoint's plain part, unpacked only when that is allowed.

Tensors and weights inside such a value are handed to the checkpoint itself, so that they share storage with the state
dict and follow `map_location`. The restricted reading is torch's own unpickler, the one behind ``weights_only=True``.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor, nn
from torch._weights_only_unpickler import Unpickler

from fulmen.engine.storage.safe_types import allowed_in_torch, qualified_name, seal, seal_holds
from fulmen.errors import UnsafeCheckpointError

Record: TypeAlias = dict[str, Any]

_REMEDIES = (
    "Either pass a value for it (an argument of load_from_checkpoint), or allow its types with"
    " fulmen.add_safe_types(...), or, if you trust the file, load it with weights_only=False (that runs code from it)."
)
_DATA_TYPES = frozenset([bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, Tensor])
# What pickles of ordinary objects name besides their own classes, and torch's unpickler knows.
_KNOWN = frozenset(["builtins.set", "builtins.complex", "builtins.bytearray", "collections.OrderedDict"])


class UnsafeValue:
    """Stands where a checkpoint holds a value that was not unpickled; using it raises `UnsafeCheckpointError`.

    Args:
        path: Where in the checkpoint, such as ``hyper_parameters.loss``.
        type_name: Qualified name of the value's type, as the file says.
        missing: Names of classes and functions that would have to be allowed.
        reason: Why it was not unpickled although its types are allowed; usually empty.
        record: What the file holds for it, so that saving again keeps it.
    """

    __slots__ = ("missing", "path", "reason", "record", "type_name")

    def __init__(
        self, path: str, type_name: str, missing: tuple[str, ...] = (), reason: str = "", record: Record | None = None
    ) -> None:
        self.path = path
        self.type_name = type_name
        self.missing = missing
        self.reason = reason
        self.record = record

    def describe(self) -> str:
        """Return one line: path, type and what is missing."""
        needs = f", needs {', '.join(self.missing)}" if self.missing and self.missing != (self.type_name,) else ""
        return f"{self.path}: {self.type_name}{needs}{f' ({self.reason})' if self.reason else ''}"

    def __repr__(self) -> str:
        return f"<not loaded: {self.describe()}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unsafe_error([self])

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise unsafe_error([self])

    def __iter__(self) -> NoReturn:
        raise unsafe_error([self])

    def __getitem__(self, key: Any) -> NoReturn:
        raise unsafe_error([self])


def unsafe_error(values: list[UnsafeValue], where: str = "") -> UnsafeCheckpointError:
    """Return the error that lists values which were not unpickled, and what can be done."""
    lines = "".join(f"\n  {value.describe()}" for value in values)
    return UnsafeCheckpointError(
        f"The checkpoint{f' {where}' if where else ''} holds {len(values)} value(s) that only unpickling could bring"
        f" back, which can run code:{lines}\n{_REMEDIES}"
    )


def find_unsafe(tree: Any) -> list[UnsafeValue]:
    """Return all placeholders in nested dicts, lists and tuples."""
    found: list[UnsafeValue] = []
    stack, seen = [tree], set()
    while stack:
        item = stack.pop()
        if isinstance(item, UnsafeValue):
            found.append(item)
        elif isinstance(item, (dict, list, tuple)) and id(item) not in seen:
            seen.add(id(item))
            stack.extend(reversed(list(item.values()) if isinstance(item, dict) else list(item)))
    return found


def require_safe(tree: Any, where: str = "") -> None:
    """Check that nothing in `tree` was left pickled.

    Raises:
        UnsafeCheckpointError: Something was; the message lists key, type and remedies.
    """
    if found := find_unsafe(tree):
        raise unsafe_error(found, where)


def is_plain_tensor(value: Any) -> bool:
    """Return whether a tensor can be kept as it is: torch's own classes without odd attributes."""
    kind = type(value)
    if kind is Tensor or kind is nn.Parameter:
        return all(type(v) in (bool, int, float, str, type(None)) for v in value.__dict__.values())
    # DTensor, and subclasses whose library told torch that they are safe (torchao's do).
    return qualified_name(kind) == "torch.distributed.tensor.DTensor" or kind in torch.serialization.get_safe_globals()


def reference_name(value: Any) -> str | None:
    """Return the name of a class or function that can be found again by it, else `None`."""
    if not isinstance(value, (type, FunctionType)):
        return None
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return qualified_name(value) if found is value else None


def harmless_class(name: str) -> type | None:
    """Return a class that is harmless to name in a file, if that is one and it is here: data types, torch's layers."""
    module, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(module), attribute, None)
    if not isinstance(found, type):
        return None
    if found in _DATA_TYPES or (module == "numpy" and any(c.__name__ == "generic" for c in found.__mro__)):
        return found
    bases = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
    return found if module.startswith(("torch.nn.modules.", "torch.optim.")) and issubclass(found, bases) else None


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        # Protocol 2 is what torch's restricted unpickler reads.
        super().__init__(file, protocol=2)
        self.tensors: list[Tensor] = []
        self.names: set[str] = set()
        self._index: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor) or not is_plain_tensor(obj):
            return None
        index = self._index.setdefault(id(obj), len(self.tensors))
        if index == len(self.tensors):
            self.tensors.append(obj)
        return index

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            self.names.add(qualified_name(obj))
        return NotImplemented


def pack(value: Any) -> Record:
    """Pickle a value into a record for the checkpoint.

    Raises:
        Exception: Whatever pickling this value raises.
    """
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(value)
    payload = file.getvalue()
    return {
        "type": qualified_name(type(value)),
        "needs": sorted(packer.names - _KNOWN),
        "pickle": torch.frombuffer(bytearray(payload), dtype=torch.uint8),
        "tensors": packer.tensors,
        "seal": seal(payload),
    }


class _TrustedLoader(pickle.Unpickler):
    def __init__(self, payload: bytes, tensors: list[Tensor]) -> None:
        super().__init__(io.BytesIO(payload))
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[pid]


class _RestrictedLoader(Unpickler):
    def __init__(self, payload: bytes, tensors: list[Tensor]) -> None:
        super().__init__(io.BytesIO(payload), encoding="utf-8")
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[pid]


def unpack(record: Record, path: str, table: Mapping[str, Any], *, trusted: bool) -> Any:
    """Return the value of a record, or an `UnsafeValue` where it may not be unpickled.

    Args:
        record: As made by `pack`; from a file, so nothing in it is believed.
        path: Where in the checkpoint, for messages.
        table: Classes and functions that are allowed, by name.
        trusted: The user said so (``weights_only=False``).
    """
    payload, tensors = record["pickle"].cpu().numpy().tobytes(), list(record["tensors"])
    if trusted or seal_holds(payload, record.get("seal")):
        try:
            return _TrustedLoader(payload, tensors).load()
        except Exception as error:  # a class that moved or changed; others in the file may still be needed
            return UnsafeValue(path, str(record.get("type")), (), _first_line(error), record=record)
    type_name, needs = str(record.get("type")), [str(name) for name in record.get("needs", ())]
    missing = tuple(name for name in needs if name not in table and not name.startswith("torch._utils."))
    if missing:
        return UnsafeValue(path, type_name, missing, record=record)
    try:
        return _restricted(payload, tensors, table)
    except Exception as error:  # a hostile or unusual pickle can fail in any way; nothing of it is used then
        return UnsafeValue(path, type_name, tuple(needs), _first_line(error), record=record)


def _restricted(payload: bytes, tensors: list[Tensor], table: Mapping[str, Any]) -> Any:
    with allowed_in_torch(table):
        return _RestrictedLoader(payload, tensors).load()


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__

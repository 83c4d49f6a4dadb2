"""The checkpoint's form: `encode` makes a dictionary that ``torch.load(weights_only=True)`` reads, `decode` undoes it.

Values keep their place and Lightning's keys; what they were is written beside them, in ``checkpoint["fulmen"]``:

- ``types``: a tree of tags that follows the checkpoint's own nesting, only along paths where something was changed. A
  node is ``{"c": {key or index: node}}`` for a container and ``{"t": tag, "in": node, ...}`` for a changed value.
- ``objects``: pickled values by path, see `objects`.
- ``left_out``: what could not be kept, as ``{"path", "type", "why"}``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fulmen.engine.storage import kinds, kinds_array, objects
from fulmen.engine.storage.safe_types import as_table, find_named, note_written, qualified_name
from fulmen.errors import ArgumentTypeError, CheckpointError, CorruptCheckpointError, warn

FORMAT = 1
MAX_DEPTH = 100
_OWN_KEYS = ("format", "types", "objects", "left_out")

Node: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[Any, ...]

_ATOMS = frozenset(
    [type(None), bool, float, str, complex, bytearray, torch.dtype, torch.device, torch.Size, torch.layout]
)
_TENSORS = frozenset([Tensor, nn.Parameter])
_EASY = _ATOMS - {float, complex}  # as keys: a NaN cannot be looked up again
_NUMBERS = _ATOMS | {int}
_INT = 1 << 2000
_TAGS = {**kinds.decoders(), **kinds_array.decoders()}


def show_path(path: Path) -> str:
    """Return a path as text: ``optimizer_states[0].lr``."""
    parts = [f".{p}" if isinstance(p, str) and p.isidentifier() else f"[{p!r}]" for p in path]
    return "".join(parts).removeprefix(".")


class _UnstorableError(Exception):
    def __init__(self, path: Path, value: Any, why: str) -> None:
        super().__init__(why)
        self.path, self.type_name, self.why = path, qualified_name(type(value)), why


class _Encoder:
    def __init__(self) -> None:
        self.objects: dict[str, objects.Record] = {}
        self.left_out: list[dict[str, str]] = []
        # The value is kept with its result, so that its id cannot be given to another one meanwhile.
        self._done: dict[int, tuple[Any, Any, Node | None]] = {}
        self._active: set[int] = set()
        self._drops = 0

    def value(self, value: Any, path: Path) -> tuple[Any, Node | None]:
        kind = type(value)
        if _is_atom(value):
            return value, None
        if kind in _TENSORS:
            return (value if not value.__dict__ or objects.is_plain_tensor(value) else _bare(value)), None
        key = id(value)
        if key in self._done:
            return self._done[key][1:]
        if key in self._active:
            raise _UnstorableError(path, value, "it contains itself")
        if len(self._active) >= MAX_DEPTH:
            raise _UnstorableError(path, value, f"it is nested deeper than {MAX_DEPTH} levels")
        self._active.add(key)
        try:
            plain, node = self._compound(value, path)
        finally:
            self._active.discard(key)
        self._done[key] = (value, plain, node)
        return plain, node

    def _compound(self, value: Any, path: Path) -> tuple[Any, Node | None]:
        kind = type(value)
        if kind is dict or kind is OrderedDict:
            return self._dict(value, path)
        if kind is list or kind is tuple:
            return self._sequence(value, path)
        if kind is set and all(map(_is_atom, value)):
            return value, None
        if isinstance(value, objects.UnsafeValue):
            return self._store(value.record, value.type_name, path)
        if isinstance(value, Tensor) and objects.is_plain_tensor(value):
            return value, None
        if (name := objects.reference_name(value)) is not None:
            return f"<{name}>", {"t": "reference", **note_written(value), "type": name}
        changed = None if isinstance(value, (Tensor, nn.Module)) else kinds_array.to_plain(value)
        if changed is None and not isinstance(value, (Tensor, nn.Module)):
            changed = kinds.to_plain(value)
        if changed is not None:
            done = self._tagged(changed, value, path)
            if done is not None:
                return done
        return self._object(value, path)

    def _tagged(self, changed: kinds.Plain, value: Any, path: Path) -> tuple[Any, Node] | None:
        inner, tag = changed
        before, drops = len(self.left_out), self._drops
        try:
            plain, node = self.value(inner, path)
        except _UnstorableError:
            return None  # perhaps pickle can
        if self._drops > drops and tag["t"] == "dataclass":
            del self.left_out[before:]  # half a dataclass would not be one
            return None
        if lost := tag.pop("lost", None):
            self._note(path, type(value), f"{lost} cannot be kept, it comes back as a dict")
        return plain, ({**tag, "in": node} if node is not None else tag)

    def _dict(self, value: dict[Any, Any], path: Path) -> tuple[Any, Node | None]:
        if not _plain_keys(value):
            return self._items(value, path)
        changed: dict[Any, Any] = {}
        dropped: list[Any] = []
        children: dict[Any, Node] = {}
        for key, item in value.items():
            kind = type(item)
            if kind in _ATOMS or (kind in _TENSORS and not item.__dict__):
                continue
            try:
                plain, node = self.value(item, (*path, key))
            except _UnstorableError as error:
                self._leave_out((*path, key), error)
                dropped.append(key)
                continue
            if plain is not item:
                changed[key] = plain
            if node is not None:
                children[key] = node
        attributes = vars(value) if type(value) is OrderedDict else {}
        kept = self._attributes(attributes, path) if attributes else attributes
        if changed or dropped or kept is not attributes:
            copy: dict[Any, Any] = type(value)(value)
            copy.update(changed)
            for key in dropped:
                del copy[key]
            if kept:
                vars(copy).update(kept)
            value = copy
        return value, ({"c": children} if children else None)

    def _attributes(self, attributes: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return what of an OrderedDict's attributes (``_metadata`` of a state dict) can be kept as it is."""
        kept = {}
        for name, item in attributes.items():
            try:
                plain, node = self.value(item, (*path, name))
            except _UnstorableError:
                node = {}
            if node is None and plain is item:
                kept[name] = item
            else:
                self._note((*path, name), type(item), "attributes of an OrderedDict must be plain")
        return attributes if len(kept) == len(attributes) else kept

    def _items(self, value: dict[Any, Any], path: Path) -> tuple[Any, Node]:
        pairs: list[Any] = []
        children: dict[Any, Node] = {}
        for key, item in value.items():
            try:
                plain, node = self._sequence([key, item], (*path, key))
            except _UnstorableError as error:
                self._leave_out((*path, key), error)
                continue
            if node is not None:
                children[len(pairs)] = node
            pairs.append(plain)
        tag: Node = {"t": "ordered_items" if type(value) is OrderedDict else "items"}
        return pairs, ({**tag, "in": {"c": children}} if children else tag)

    def _sequence(self, value: Any, path: Path) -> tuple[Any, Node | None]:
        types = set(map(type, value))
        if types <= _ATOMS or (types <= _NUMBERS and all(-_INT < item < _INT for item in value if type(item) is int)):
            return value, None
        changed: list[Any] | None = None
        children: dict[Any, Node] = {}
        for index, item in enumerate(value):
            plain, node = self.value(item, (*path, index))
            if plain is not item:
                if changed is None:
                    changed = list(value)
                changed[index] = plain
            if node is not None:
                children[index] = node
        result = value if changed is None else type(value)(changed)
        return result, ({"c": children} if children else None)

    def _object(self, value: Any, path: Path) -> tuple[Any, Node]:
        try:
            record = objects.pack(value)
        except Exception as error:  # pickling runs code of the value's class, which can fail in any way
            raise _UnstorableError(path, value, f"it cannot be pickled: {str(error).strip()[:200]}") from error
        return self._store(record, record["type"], path)

    def _store(self, record: objects.Record | None, name: str, path: Path) -> tuple[Any, Node]:
        if record is None:
            return f"<{name}>", {"t": "reference", "type": name}
        key = show_path(path)
        self.objects[key] = record
        return f"<{name}>", {"t": "object", "at": key}

    def _leave_out(self, path: Path, error: _UnstorableError) -> None:
        """Note that an entry of a dictionary is missing, because of something in it."""
        self._drops += 1
        inside = "" if error.path == path else f"at {show_path(error.path)}: "
        self._note(path, error.type_name, inside + error.why)

    def _note(self, path: Path, kind: type | str, why: str) -> None:
        name = kind if isinstance(kind, str) else qualified_name(kind)
        self.left_out.append({"path": show_path(path), "type": name, "why": why})


def _is_atom(value: Any) -> bool:
    kind = type(value)
    return kind in _ATOMS or (kind is int and -_INT < value < _INT) or (kind is bytes and bool(value))


def _bare(tensor: Tensor) -> Tensor:
    """Return the same data without the attributes that somebody hung on the tensor."""
    data = tensor.detach()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad)
    return data


def _plain_keys(value: dict[Any, Any]) -> bool:
    if set(map(type, value)) <= _EASY:
        return True
    return all(_plain_key(key) for key in value)


def _plain_key(key: Any) -> bool:
    kind = type(key)
    if kind is tuple:
        return all(_plain_key(part) for part in key)
    if kind is int:
        return -_INT < key < _INT
    return kind in _EASY or (kind is bytes and bool(key)) or (kind in (float, complex) and key == key)


def encode(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a checkpoint that holds only what ``torch.load(weights_only=True)`` reads.

    Containers in which nothing changes are not copied, tensors never are. What cannot be kept at all is left out and
    named by one warning (FULMEN-W071); nothing that a checkpoint may hold makes this fail.

    Args:
        checkpoint: Any dictionary; its ``"fulmen"`` entry, if there is one, must be a dictionary.

    Raises:
        ArgumentTypeError: `checkpoint` is no dictionary, or its ``"fulmen"`` entry is none.
    """
    if not isinstance(checkpoint, dict):
        raise ArgumentTypeError(
            f"a checkpoint must be a dict, got {type(checkpoint).__name__}. Wrap it: {{'state': x}}."
        )
    own = checkpoint.get("fulmen", {})
    if not isinstance(own, dict):
        raise ArgumentTypeError(
            f"the key 'fulmen' of a checkpoint is Fulmen's own, but holds a {type(own).__name__}. Rename yours."
        )
    source: dict[str, Any] = {**checkpoint, "fulmen": {k: v for k, v in own.items() if k not in _OWN_KEYS}}
    encoder = _Encoder()
    plain, node = encoder.value(source, ())
    if not isinstance(plain, dict):
        raise ArgumentTypeError(f"the keys of a checkpoint must be plain, got {list(checkpoint)!r:.200}")
    result = dict(plain)
    result["fulmen"] = {**result["fulmen"], "format": FORMAT}
    kept = {key: encoder.objects[key] for key in _object_paths(node)}
    for key, part in (("types", node), ("objects", kept), ("left_out", encoder.left_out)):
        if part:
            result["fulmen"][key] = part
    _tell_left_out(encoder.left_out)
    return result


def _object_paths(node: Node | None) -> list[str]:
    """Return the paths of the objects a tree of tags uses; an attempt that failed may have packed others."""
    found: dict[str, None] = {}
    stack, seen = [node] if node else [], set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if item.get("t") == "object":
            found[item["at"]] = None
        stack.extend(item.get("c", {}).values())
        if "in" in item:
            stack.append(item["in"])
    return list(found)


def _tell_left_out(left_out: list[dict[str, str]]) -> None:
    if not left_out:
        return
    shown = "".join(f"\n  {e['path']}: {e['type']}: {e['why']}" for e in left_out[:10])
    more = f"\n  and {len(left_out) - 10} more" if len(left_out) > 10 else ""
    warn(
        "W071",
        f"{len(left_out)} value(s) cannot be kept in a checkpoint and are left out:{shown}{more}\n"
        "Give classes instead of lambdas, or leave such arguments out with save_hyperparameters(ignore=...).",
        key="|".join(sorted(e["path"] for e in left_out)),
        stacklevel=3,
    )


class _Decoder:
    def __init__(self, objects_: Mapping[str, Any], table: Mapping[str, Any], *, trusted: bool) -> None:
        self.as_plain: dict[str, str] = {}
        self._objects = objects_
        self._table = table
        self._trusted = trusted
        self._done: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        self._depth = 0

    def value(self, value: Any, node: Node, path: Path) -> Any:
        key = (id(value), id(node))
        if key in self._done:
            return self._done[key][2]
        self._depth += 1
        if self._depth > 4 * MAX_DEPTH:
            raise ValueError("nested too deeply")
        result = self._tagged(value, node, path) if "t" in node else self._children(value, node, path)
        self._depth -= 1
        self._done[key] = (value, node, result)
        return result

    def _children(self, value: Any, node: Node, path: Path) -> Any:
        children = node["c"]
        if isinstance(value, dict):
            copy = type(value)(value)
            if type(value) is OrderedDict:
                vars(copy).update(vars(value))
            # A key that is gone was taken out by somebody's hand, which is not an error.
            copy.update({k: self.value(value[k], n, (*path, k)) for k, n in children.items() if k in value})
            return copy
        items = list(value)
        for index, child in children.items():
            items[index] = self.value(items[index], child, (*path, index))
        return items if isinstance(value, list) else tuple(items)

    def _tagged(self, value: Any, node: Node, path: Path) -> Any:
        tag = node["t"]
        if tag == "object":
            record = self._objects[node["at"]]
            return objects.unpack(record, show_path(path), self._table, trusted=self._trusted)
        if tag == "reference":
            return self._reference(node, path)
        inner = self.value(value, node["in"], path) if "in" in node else value
        if tag in kinds.USER_TAGS:
            return self._user(inner, node, path)
        try:
            return _TAGS[tag](inner, node)
        except kinds_array.MissingLibraryError as error:
            self.as_plain[f"{tag} (library {error} is not installed)"] = show_path(path)
        except RuntimeError:
            if tag != "torch_generator":
                raise
            self.as_plain[f"torch.Generator on {inner['device']}"] = show_path(path)
        return inner

    def _user(self, inner: Any, node: Node, path: Path) -> Any:
        cls = find_named(node, self._table, trusted=self._trusted)
        if not isinstance(cls, type):
            self.as_plain[str(node.get("type"))] = show_path(path)
            return inner
        try:
            return kinds.restore_user(inner, node, cls)
        except Exception as error:  # the class is the user's and may have changed since
            self.as_plain[f"{node.get('type')} ({type(error).__name__}: {error})"] = show_path(path)
            return inner

    def _reference(self, node: Node, path: Path) -> Any:
        name = str(node.get("type"))
        found = find_named(node, self._table, trusted=self._trusted)
        if found is None:
            found = objects.harmless_class(name)
        return objects.UnsafeValue(show_path(path), name, (name,)) if found is None else found


def decode(
    raw: Any,
    *,
    weights_only: bool | None = None,
    safe_types: Iterable[Any] = (),
    where: str = "",
) -> Any:
    """Bring the values of a checkpoint back from what `encode` made of them.

    Values of builtin, standard library and NumPy types come back always. Enums, dataclasses and subclasses of the
    user's own come back if their type is registered, if this process wrote them, or with ``weights_only=False``; else
    they stay plain, which one warning says (FULMEN-W072). Pickled values follow the same rule, but are replaced by an
    `UnsafeValue`, for which `require_safe` and every use raise.

    Args:
        raw: What `torch.load` gave. Not changed. A checkpoint without Fulmen's entry is returned as it is.
        weights_only: ``False`` trusts the file: modules that it names are imported, its pickles are run.
        safe_types: Types allowed for this call, besides the registered ones.
        where: Path of the file, for messages.

    Raises:
        CorruptCheckpointError: Tags and values do not fit together.
        CheckpointError: The file was written by a newer Fulmen in a format this one does not know.
    """
    own = raw.get("fulmen") if isinstance(raw, dict) else None
    if not isinstance(own, dict) or "format" not in own:
        return raw
    if not isinstance(own["format"], int) or own["format"] > FORMAT:
        raise CheckpointError(
            f"The checkpoint {where} has format {own['format']!r}, this Fulmen reads up to {FORMAT}. Update fulmen."
        )
    decoder = _Decoder(own.get("objects", {}), as_table(safe_types), trusted=weights_only is False)
    try:
        result = dict(decoder.value(raw, own["types"], ()) if "types" in own else raw)
        rest = {k: v for k, v in result.pop("fulmen").items() if k not in _OWN_KEYS or k == "left_out"}
    except Exception as error:  # tags of a hostile file can provoke anything
        raise CorruptCheckpointError(
            f"The checkpoint {where} is damaged or was altered: its type tags do not fit its values"
            f" ({type(error).__name__}: {error})."
        ) from error
    if rest:
        result["fulmen"] = rest
    _tell_plain(decoder.as_plain, where)
    return result


def _tell_plain(as_plain: dict[str, str], where: str) -> None:
    if not as_plain:
        return
    shown = "".join(f"\n  {path}: {name}" for name, path in as_plain.items())
    warn(
        "W072",
        f"The checkpoint {where} holds values of types that may not be brought back; they stay plain:{shown}\n"
        "Register the types with fulmen.add_safe_types(...), or load with weights_only=False if you trust the file.",
        key="|".join(sorted(as_plain)),
        stacklevel=3,
    )

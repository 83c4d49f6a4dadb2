"""Build modules and data modules from checkpoints.

Stored hyperparameters are passed to the constructor; keyword arguments given by the caller win over them, constructor
defaults fill what neither has.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from fulmen.core.constructor import Request, annotated_types, build
from fulmen.core.hparams import INTERNAL_KEYS
from fulmen.core.hparams_files import (
    convert,
    load_hparams_from_tags_csv,
    load_hparams_from_yaml,
    read_hparams_file,
    save_hparams_to_tags_csv,
    save_hparams_to_yaml,
    update_hparams,
)
from fulmen.engine.storage.filesystem import get_filesystem
from fulmen.engine.storage.format import decode
from fulmen.engine.storage.reader import read_verified
from fulmen.errors import ArgumentTypeError, ArgumentValueError, CheckpointError, warn
from fulmen.types import MapLocation, PathOrStr

__all__ = [
    "CHECKPOINT_PAST_HPARAMS_KEYS",
    "StateDictMismatchError",
    "convert",
    "get_filesystem",
    "load_hparams_from_tags_csv",
    "load_hparams_from_yaml",
    "load_module",
    "load_weights",
    "register_instantiator",
    "restricted_classmethod",
    "save_hparams_to_tags_csv",
    "save_hparams_to_yaml",
    "update_hparams",
]

T = TypeVar("T")

# Where early releases of Lightning kept hyperparameters; the oldest first.
CHECKPOINT_PAST_HPARAMS_KEYS = ("hparams", "module_arguments")

_INSTANTIATORS: dict[str, Callable[[type, dict[str, Any]], Any]] = {}
# What Lightning's command line interface writes; harmless as long as no value is a configuration of an object.
_CLI_INSTANTIATORS = ("lightning.pytorch.cli.instantiate_module", "pytorch_lightning.cli.instantiate_module")
_COMPILED = "_orig_mod."
_SHOWN = 5


class StateDictMismatchError(CheckpointError, RuntimeError):
    """Keys or shapes of a state dict do not fit the module (torch raises a plain RuntimeError for it)."""


if TYPE_CHECKING:
    restricted_classmethod = classmethod
else:

    class restricted_classmethod(classmethod):  # noqa: N801  # it is used like `classmethod`
        """A class method that refuses to be called on an instance, where its result would be overlooked."""

        def __get__(self, instance, owner=None):
            """Bind to the class; on an instance, give a function that explains."""
            if instance is None:
                return super().__get__(instance, owner)
            name = f"{type(instance).__name__}.{self.__func__.__name__}"

            def refuse(*args, **kwargs):
                raise TypeError(
                    f"`{name}` was called on an instance, which it would not change. Call it on the class and use what"
                    f" it returns: `obj = {name}(...)`."
                )

            return refuse


def register_instantiator(name: str, function: Callable[[type, dict[str, Any]], Any]) -> None:
    """Allow checkpoints to name a function that builds the object from a stored configuration.

    Only registered functions are called, whatever a checkpoint says.

    Args:
        name: Dotted name, as stored under ``_instantiator``.
        function: Called with the class and the configuration; returns the object.
    """
    _INSTANTIATORS[name] = function


def load_module(
    cls: type[T],
    checkpoint_path: PathOrStr | Any,
    /,
    map_location: MapLocation = None,
    hparams_file: PathOrStr | None = None,
    strict: bool | None = None,
    weights_only: bool | None = None,
    **overrides: Any,
) -> T:
    """Build a module or a data module from a checkpoint; what `load_from_checkpoint` does.

    Args:
        cls: A LightningModule or a LightningDataModule class.
        checkpoint_path: Path, URL or an open binary file.
        map_location: As in `torch.load`; by default tensors go back to the device that they were on, or to the CPU
            if this machine has no such device.
        hparams_file: A YAML or CSV file whose values replace the stored hyperparameters.
        strict: Whether keys must fit exactly; by default what the module's `strict_loading` says.
        weights_only: As in `torch.load`; `False` unpickles objects, which can run code of the file's author.
        **overrides: Arguments of the constructor; they win over stored values.

    Returns:
        The object, a module on the device of its first stored tensor.

    Raises:
        ArgumentTypeError: An override is no argument of the constructor, or an argument has no value.
        ArgumentValueError: `strict` contradicts the module's `strict_loading`, `hparams_file` is of another kind, or
            the checkpoint names a class or function that is not allowed.
        CheckpointError: The file cannot be read or is no checkpoint.
        StateDictMismatchError: Weights and module do not fit.
    """
    if not isinstance(cls, type):
        raise ArgumentTypeError(f"load_module(cls={cls!r}): give a class.")
    where = f"{cls.__name__}.load_from_checkpoint({_shown(checkpoint_path)})"
    if strict is not None and not isinstance(strict, bool):
        raise ArgumentTypeError(f"{where}: strict={strict!r}; give True, False or None.")
    stored_in_file = None if hparams_file is None else read_hparams_file(hparams_file)
    checkpoint = _read(cls, checkpoint_path, map_location or _available_location, weights_only, where)
    if issubclass(cls, nn.Module):
        _require_weights(checkpoint, where)
    request = _request(cls, checkpoint, stored_in_file, overrides, where)
    obj = _construct(request)
    if isinstance(obj, nn.Module):
        _fill_module(obj, checkpoint, strict, where)
    elif type(obj).__qualname__ in checkpoint:
        obj.load_state_dict(checkpoint[type(obj).__qualname__])
    return obj


def _shown(path: Any) -> str:
    return repr(os.fspath(path)) if isinstance(path, str | os.PathLike) else f"<{type(path).__name__}>"


def _available_location(storage: Any, location: str) -> Any:
    """Map a storage to the CPU if its device is not there; `None` leaves it to torch."""
    kind = location.partition(":")[0]
    if kind == "cuda":
        present = torch.cuda.is_available()
    elif kind == "mps":
        present = torch.backends.mps.is_available()
    else:
        present = kind != "xla" or "torch_xla" in sys.modules
    return None if present else storage.cpu()


def _read(cls: type, path: Any, map_location: Any, weights_only: bool | None, where: str) -> dict[str, Any]:
    allowed = annotated_types(cls)
    if isinstance(path, str | os.PathLike):
        raw = read_verified(path, map_location, weights_only, safe_types=allowed)
    elif hasattr(path, "read"):
        raw = torch.load(path, map_location=map_location, weights_only=weights_only)
    else:
        raise ArgumentTypeError(f"{where}: give a path, a URL or an open binary file.")
    if not isinstance(raw, dict):
        raise CheckpointError(f"{where}: the file holds a {type(raw).__name__}, not a checkpoint.")
    # A copy on top: what hooks and this module change in it stays here.
    return dict(decode(raw, weights_only=weights_only, safe_types=allowed, where=_shown(path)))


def _request(cls: Any, checkpoint: dict[str, Any], from_file: Any, overrides: dict[str, Any], where: str) -> Request:
    """Collect the values; `checkpoint` gets them, too, so that `on_load_checkpoint` sees what is used."""
    key = cls.CHECKPOINT_HYPER_PARAMS_KEY
    stored: Any = checkpoint.get(key) or {}
    if from_file is not None:
        stored = from_file
    elif issubclass(cls, nn.Module) and isinstance(stored, dict):
        past = [checkpoint.get(name) or {} for name in CHECKPOINT_PAST_HPARAMS_KEYS]
        stored = {k: v for part in (*past, stored) for k, v in dict(part).items()}
    elif isinstance(stored, Namespace):
        stored = vars(stored)  # files of the first versions
    if not isinstance(stored, MutableMapping):
        raise CheckpointError(f"{where}: the entry {key!r} is a {type(stored).__name__}, not a mapping of values.")
    kind = checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_TYPE)
    if from_file is None and isinstance(kind, type) and not isinstance(stored, kind):
        stored = kind(stored)
    container = checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_NAME)
    checkpoint[key] = {**{k: stored[k] for k in stored}, **overrides}
    return Request(cls, stored, container if isinstance(container, str) else None, overrides, where)


def _construct(request: Request) -> Any:
    name = request.overrides.get("_instantiator", request.stored.get("_instantiator"))
    class_path = request.overrides.get("_class_path", request.stored.get("_class_path"))
    if name is None and class_path is None:
        return build(request)
    if name is not None and name not in _INSTANTIATORS and name not in _CLI_INSTANTIATORS:
        raise ArgumentValueError(
            f"{request.where}: the checkpoint asks to be built by {name!r}, which is not registered. If you trust it,"
            f" call `fulmen.core.saving.register_instantiator({name!r}, function)` first."
        )
    cls = request.cls if class_path is None else _imported_subclass(class_path, request)
    values = {k: request.stored[k] for k in request.stored}
    if name in _INSTANTIATORS:
        merged = {**values, **request.overrides}
        merged.pop("_instantiator", None)
        return _INSTANTIATORS[name](request.cls, merged)
    values = {k: v for k, v in values.items() if k not in INTERNAL_KEYS}
    overrides = {k: v for k, v in request.overrides.items() if k not in INTERNAL_KEYS}
    nested = [k for k, v in values.items() if isinstance(v, Mapping) and "class_path" in v and k not in overrides]
    if nested:
        raise ArgumentValueError(
            f"{request.where}: {', '.join(map(repr, nested))} is stored as the configuration of an object, which the"
            f" command line interface can build: import it first (`import fulmen.cli`), or give the object, as in"
            f" `load_from_checkpoint(path, {nested[0]}=...)`."
        )
    return build(Request(cls, values, request.container, overrides, request.where))


def _imported_subclass(class_path: Any, request: Request) -> type:
    """Return the class that a checkpoint names; nothing is imported for it."""
    module, _, name = str(class_path).rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    if isinstance(found, type) and issubclass(found, request.cls):
        return found
    raise ArgumentValueError(
        f"{request.where}: the checkpoint asks for the class {class_path!r}, which is not an imported subclass of"
        f" {request.cls.__name__}. If you trust it, import the module that defines it first."
    )


def _require_weights(checkpoint: dict[str, Any], where: str) -> None:
    if "state_dict" not in checkpoint:
        keys = sorted(map(str, checkpoint))
        bare = bool(checkpoint) and all(isinstance(value, Tensor) for value in checkpoint.values())
        hint = " It looks like a bare state dict: use `module.load_state_dict(torch.load(path))`." if bare else ""
        raise CheckpointError(f"{where}: the file has no entry 'state_dict'; it has: {_list(keys) or 'none'}.{hint}")


def _fill_module(module: Any, checkpoint: dict[str, Any], strict: bool | None, where: str) -> None:
    own = vars(module).get("_strict_loading")  # None unless the module's author has decided
    if own is not None and strict is not None and own != strict:
        raise ArgumentValueError(
            f"{where}: strict={strict} contradicts {type(module).__name__}.strict_loading={own}. Leave one of them out."
        )
    if strict is None:
        strict = bool(getattr(module, "strict_loading", True))
    module.configure_model()
    module.on_load_checkpoint(checkpoint)
    state = checkpoint["state_dict"]  # read after the hook, which may have replaced it
    if not state:
        warn(
            "W054",
            f"{where}: the checkpoint has no weights; the module keeps those of its constructor.",
            key=where,
            stacklevel=4,
        )
    load_weights(module, state, strict, where)
    tensor = next((value for value in state.values() if isinstance(value, Tensor)), None)
    if tensor is not None:
        module.to(tensor.device)


def load_weights(
    module: nn.Module,
    state: Mapping[str, Any],
    strict: bool,
    where: str,
    load: Callable[[Mapping[str, Any], bool], Any] | None = None,
) -> None:
    """Load a state dict through the module's own `load_state_dict`.

    The prefix that `torch.compile` puts into keys may be on one side only. Without `strict`, keys that do not fit are
    named in a warning.

    Args:
        module: The module.
        state: Its state dict.
        strict: Whether all keys must fit.
        where: What is being done, for messages.
        load: What loads it, called with state and `strict`; the module's own method if not given.

    Raises:
        StateDictMismatchError: Keys or shapes do not fit.
    """
    state = _align_compiled(module, state)
    try:
        result = load(state, strict) if load is not None else module.load_state_dict(state, strict=strict)
    except RuntimeError as error:
        problems = _differences(module, state) if str(error).startswith("Error(s) in loading state_dict") else ""
        if not problems:
            raise
        # torch never accepts other shapes, whatever `strict` says.
        hint = " Load what fits with `strict=False`." if strict and "shapes" not in problems else ""
        raise StateDictMismatchError(
            f"{where}: the checkpoint does not fit {type(module).__name__}: {problems}.{hint}"
        ) from error
    # A module's own `load_state_dict` may return nothing.
    for kind in () if strict else ("missing", "unexpected"):
        keys = getattr(result, f"{kind}_keys", None)
        if keys:
            warn(
                "W055",
                f"{where} with strict=False: {kind} keys {_list(keys)} were passed over.",
                key=where + kind,
                stacklevel=5,
            )


def _align_compiled(module: nn.Module, state: Mapping[str, Any]) -> Mapping[str, Any]:
    compiled = any(f"{name}.".endswith(_COMPILED) for name, _ in module.named_modules() if name)
    if not compiled and not any(_COMPILED in key for key in state):
        return state
    own = {key.replace(_COMPILED, ""): key for key in module.state_dict()}
    aligned = {own.get(key.replace(_COMPILED, ""), key): value for key, value in state.items()}
    return aligned if len(aligned) == len(state) else state


def _differences(module: nn.Module, state: Mapping[str, Any]) -> str:
    own = module.state_dict()
    missing = [key for key in own if key not in state]
    unexpected = [key for key in state if key not in own]
    shapes = [
        f"{key} {tuple(state[key].shape)} in the checkpoint, {tuple(value.shape)} in the module"
        for key, value in own.items()
        if isinstance(value, Tensor) and isinstance(state.get(key), Tensor) and state[key].shape != value.shape
    ]
    parts = [("missing", missing), ("unexpected", unexpected), ("other shapes", shapes)]
    return "; ".join(f"{name}: {_list(keys)}" for name, keys in parts if keys)


def _list(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(keys[:_SHOWN]) + more

"""What loggers do to names and hyperparameters before they write them."""

from __future__ import annotations

import dataclasses
import enum
import sys
from argparse import Namespace
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, TypeVar

from fulmen.errors import ArgumentTypeError

V = TypeVar("V")


def add_prefix(metrics: Mapping[str, V], prefix: str, separator: str) -> Mapping[str, V]:
    """Put ``prefix + separator`` in front of each key; an empty prefix returns `metrics` itself."""
    if not prefix:
        return metrics
    head = f"{prefix}{separator}"
    return {head + key: value for key, value in metrics.items()}


def convert_params(params: Any) -> dict[str, Any]:
    """Return hyperparameters as a new dictionary.

    Args:
        params: A mapping, `argparse.Namespace`, dataclass instance, OmegaConf config (interpolations are resolved) or
            `None` for none.

    Raises:
        ArgumentTypeError: If `params` is of another type.
    """
    if params is None:
        return {}
    if isinstance(params, Namespace):
        return dict(vars(params))
    if dataclasses.is_dataclass(params) and not isinstance(params, type):
        return {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    params = _resolve_omegaconf(params)
    if isinstance(params, Mapping):
        return dict(params)
    raise ArgumentTypeError(
        f"Hyperparameters must be a mapping, a Namespace or a dataclass instance, got {type(params).__name__}: "
        f"{params!r:.80}. Pass a dictionary, for example `log_hyperparams({{'lr': 0.1}})`."
    )


def flatten_params(params: Mapping[Any, Any], delimiter: str = "/", parent_key: str = "") -> dict[str, Any]:
    """Return a nested mapping as one level; keys are joined by `delimiter`, lists of mappings by their index.

    Example:
        >>> flatten_params({"optimizer": {"lr": 0.1}, "layers": [{"width": 8}, {"width": 4}], "sizes": [1, 2]})
        {'optimizer/lr': 0.1, 'layers/0/width': 8, 'layers/1/width': 4, 'sizes': [1, 2]}
    """
    flat: dict[str, Any] = {}
    for name, value in params.items():
        key = f"{parent_key}{delimiter}{name}" if parent_key else str(name)
        nested = _as_mapping(value)
        if nested is not None:
            flat.update(flatten_params(nested, delimiter, key))
        elif isinstance(value, list) and value and all(_as_mapping(item) is not None for item in value):
            for index, item in enumerate(value):
                flat.update(flatten_params(_as_mapping(item) or {}, delimiter, f"{key}{delimiter}{index}"))
        else:
            flat[key] = value
    return flat


def sanitize_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which each value is a bool, int, float, str or a tensor of one element.

    NumPy scalars become Python numbers; everything else becomes its text.
    """
    clean: dict[str, Any] = {}
    for key, value in params.items():
        if type(value) in (bool, int, float, str):
            clean[key] = value
        elif _is_scalar_array(value):
            clean[key] = value if hasattr(value, "requires_grad") else value.item()
        else:
            clean[key] = str(value)
    return clean


def plain_params(value: Any) -> Any:
    """Return `value` built of dict, list, str, int, float, bool and `None` only, as safe YAML and JSON can hold it.

    Enums become their names, paths, devices and dtypes their text, classes and functions their dotted names, arrays
    and small tensors lists; an object of any other kind becomes ``<module.Class>``.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, PathLike):
        return str(fspath(value))
    nested = _as_mapping(value)
    if nested is not None:
        return {key if type(key) in (int, bool) else str(key): plain_params(item) for key, item in nested.items()}
    value = _resolve_omegaconf(value)
    if isinstance(value, (list, tuple)):
        return [plain_params(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain_params(item) for item in value), key=str)
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        # A weight matrix among the hyperparameters would make the file unreadable.
        if _count(value) <= 64:
            return value.tolist()
        return f"<{type(value).__name__} of shape {tuple(value.shape)}>"
    kind_of = type(value)
    if kind_of.__module__ == "torch":
        return str(value)
    return f"<{kind_of.__module__}.{kind_of.__qualname__}>"


def _as_mapping(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Namespace):
        return vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        resolved = _resolve_omegaconf(value)
        return resolved if isinstance(resolved, Mapping) else None
    return None


def _resolve_omegaconf(value: Any) -> Any:
    """Return an OmegaConf container as plain Python; anything else unchanged. Never imports OmegaConf."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and isinstance(value, omegaconf.Container):
        return omegaconf.OmegaConf.to_container(value, resolve=True)
    return value


def _is_scalar_array(value: Any) -> bool:
    return hasattr(value, "item") and hasattr(value, "shape") and _count(value) == 1


def _count(value: Any) -> int:
    count = 1
    for size in value.shape:
        count *= int(size)
    return count

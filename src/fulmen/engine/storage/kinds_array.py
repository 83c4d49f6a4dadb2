"""NumPy, OmegaConf and torch values that `torch.load(weights_only=True)` refuses, and their plain forms.

NumPy and OmegaConf are looked at only if something else imported them; reading imports them by their own name only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.storage.kinds import Plain, Tag

_BIT_GENERATORS = frozenset(["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
_MEMORY_FORMATS = {
    str(f): f for f in (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
}


class MissingLibraryError(Exception):
    """The library that a value belongs to is not installed."""


def to_plain(value: Any) -> Plain | None:
    """Return the plain form of a value and its tag, or `None` for a value this module does not know."""
    kind = type(value)
    if kind is torch.Generator:
        return {"device": str(value.device), "state": value.get_state()}, {"t": "torch_generator"}
    if kind is torch.memory_format:
        return str(value), {"t": "memory_format"}
    library = kind.__module__.partition(".")[0]
    if library == "numpy" and "numpy" in sys.modules:
        try:
            return _numpy(value)
        except TypeError:
            return None
    if library == "omegaconf" and "omegaconf" in sys.modules:
        return _omegaconf(value)
    return None


def _numpy(value: Any) -> Plain | None:
    import numpy as np

    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        return _array(np.asarray(value))
    if isinstance(value, np.generic):
        # `item` is exact for these; long doubles, dates and records would lose something.
        if value.dtype.kind in "biufcUS" and not isinstance(value, (np.longdouble, np.clongdouble)):
            return value.item(), {"t": "np_scalar", "dtype": value.dtype.str}
        inner, tag = _array(np.asarray(value))
        return inner, {"t": "np_from_array", "of": tag}
    if isinstance(value, np.dtype):
        return None if value.hasobject else (np.lib.format.dtype_to_descr(value), {"t": "np_dtype"})
    if kind is np.random.Generator and type(value.bit_generator).__name__ in _BIT_GENERATORS:
        return value.bit_generator.state, {"t": "np_generator"}
    if kind is np.random.RandomState:
        return value.get_state(legacy=False), {"t": "np_random_state"}
    return None


def _array(value: Any) -> Plain:
    import numpy as np

    if value.dtype.kind == "V" and value.dtype.type is not np.void:
        raise TypeError("a dtype that NumPy itself does not know")
    if value.dtype == object:
        return list(value.reshape(-1)), {"t": "np_objects", "shape": list(value.shape)}
    # A copy: arrays are small beside the weights, and one that shares memory with a tensor of another dtype, is
    # read-only or has negative strides could not be saved as it is.
    copy = np.array(value, order="C", copy=True)
    tag: Tag = {"t": "np_array", "dtype": np.lib.format.dtype_to_descr(value.dtype), "shape": list(value.shape)}
    if value.dtype.isnative and value.dtype.kind in "biufc":
        try:
            return torch.from_numpy(copy), tag
        except TypeError:  # a kind that torch has no counterpart of, such as long double
            pass
    if value.dtype.hasobject:
        raise TypeError("records with object fields")
    raw = torch.frombuffer(bytearray(copy.tobytes()), dtype=torch.uint8) if copy.nbytes else torch.empty(0).byte()
    return raw, {**tag, "raw": True}


def _omegaconf(value: Any) -> Plain | None:
    from omegaconf import DictConfig, ListConfig, OmegaConf

    if isinstance(value, (DictConfig, ListConfig)):
        flags = {"struct": OmegaConf.is_struct(value), "readonly": OmegaConf.is_readonly(value)}
        return OmegaConf.to_container(value, resolve=False), {"t": "omegaconf", **flags}
    return None


def _array_back(inner: Any, tag: Tag) -> Any:
    np = _import_numpy()
    dtype = np.lib.format.descr_to_dtype(_as_descr(tag["dtype"]))
    if dtype.hasobject:
        raise ValueError("an array of objects in raw form")
    array = _cpu(inner).numpy()
    if tag.get("raw"):
        array = np.frombuffer(bytearray(array.tobytes()), dtype=dtype)
    elif array.dtype != dtype:
        array = array.astype(dtype)
    return array.reshape(tag["shape"])


def _as_descr(value: Any) -> Any:
    """Return a dtype description with the tuples that NumPy asks for."""
    if isinstance(value, list):
        return [tuple(_as_descr(part) if isinstance(part, list) else part for part in field) for field in value]
    return value


def _objects_back(inner: Any, tag: Tag) -> Any:
    np = _import_numpy()
    array = np.empty(len(inner), dtype=object)
    for index, item in enumerate(inner):
        array[index] = item
    return array.reshape(tag["shape"])


def _generator_back(inner: Any, _: Tag) -> Any:
    np = _import_numpy()
    if inner["bit_generator"] not in _BIT_GENERATORS:
        raise ValueError(f"unknown bit generator {inner['bit_generator']!r}")
    bits = getattr(np.random, inner["bit_generator"])(0)
    bits.state = inner
    return np.random.Generator(bits)


def _random_state_back(inner: Any, _: Tag) -> Any:
    result = _import_numpy().random.RandomState(0)
    result.set_state(inner)
    return result


def _torch_generator_back(inner: Any, _: Tag) -> torch.Generator:
    generator = torch.Generator(inner["device"])
    generator.set_state(_cpu(inner["state"]))
    return generator


def _scalar_back(inner: Any, tag: Tag) -> Any:
    dtype = _import_numpy().dtype(tag["dtype"])
    if dtype.kind not in "biufcUS":
        raise ValueError(f"unexpected dtype {dtype}")
    return dtype.type(inner)


def _omegaconf_back(inner: Any, tag: Tag) -> Any:
    try:
        from omegaconf import OmegaConf
    except ImportError as error:
        raise MissingLibraryError("omegaconf") from error
    try:
        config = OmegaConf.create(inner)
    except ValueError:  # a value that OmegaConf takes only when told so
        config = OmegaConf.create(inner, flags={"allow_objects": True})
    if tag.get("struct"):
        OmegaConf.set_struct(config, True)
    if tag.get("readonly"):
        OmegaConf.set_readonly(config, True)
    return config


def _cpu(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"expected a tensor, got {type(value).__name__}")
    return value.detach().cpu()


def _import_numpy() -> Any:
    try:
        import numpy as np
    except ImportError as error:
        raise MissingLibraryError("numpy") from error
    return np


_DECODERS: dict[str, Callable[[Any, Tag], Any]] = {
    "torch_generator": _torch_generator_back,
    "memory_format": lambda v, _: _MEMORY_FORMATS[v],
    "np_array": _array_back,
    "np_objects": _objects_back,
    "np_scalar": _scalar_back,
    "np_from_array": lambda v, tag: _array_back(v, tag["of"])[()],
    "np_dtype": lambda v, _: _import_numpy().lib.format.descr_to_dtype(_as_descr(v)),
    "np_generator": _generator_back,
    "np_random_state": _random_state_back,
    "omegaconf": _omegaconf_back,
}


def decoders() -> Mapping[str, Callable[[Any, Tag], Any]]:
    """Return the functions that bring these values back, by tag."""
    return _DECODERS

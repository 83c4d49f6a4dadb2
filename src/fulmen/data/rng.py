"""Read and set the random states that decide what a loader yields; nothing here draws a number."""

from __future__ import annotations

import pickle
import random
import sys
from typing import Any, TypeAlias

import torch

RngState: TypeAlias = "dict[str, Any]"

_ARRAY = "ndarray"


def _plain(value: Any) -> Any:
    """Turn NumPy values inside a generator's state into plain ones that `torch.load(weights_only=True)` accepts."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        return (_ARRAY, value.dtype.str, value.tobytes()) if getattr(value, "ndim", 0) else value.item()
    return value


def _numpy_form(value: Any) -> Any:
    """Undo `_plain`."""
    if isinstance(value, dict):
        return {key: _numpy_form(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and len(value) == 3 and value[0] == _ARRAY:
        import numpy as np

        return np.frombuffer(value[2], dtype=value[1]).copy()
    return value


def _python_form(state: Any) -> tuple[Any, ...]:
    """Python's `random` insists on tuples, also after a file format turned them into lists."""
    version, words, gauss = state
    return (version, tuple(words), gauss)


def main_state() -> RngState:
    """Return the CPU random states of this process: torch, Python and, only if imported, NumPy.

    Returns:
        A dictionary of plain values and one byte tensor (12 kB together).
    """
    state: RngState = {"torch": torch.get_rng_state(), "python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = _plain(numpy.random.get_state(legacy=False))
    return state


def set_main_state(state: RngState) -> None:
    """Set what `main_state` returned."""
    torch.set_rng_state(state["torch"])
    random.setstate(_python_form(state["python"]))
    if "numpy" in state:
        import numpy as np

        np.random.set_state(_numpy_form(state["numpy"]))


def pack_main_state() -> bytes:
    """Return `main_state` as bytes: they pass through worker queues and memory pinning untouched."""
    state = main_state()
    state["torch"] = state["torch"].numpy().tobytes()
    return pickle.dumps(state, pickle.HIGHEST_PROTOCOL)


def unpack_state(packed: bytes) -> RngState:
    """Undo `pack_main_state`; `packed` comes from a worker process of this very run."""
    state: RngState = pickle.loads(packed)
    state["torch"] = torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8)
    return state


def _is_generator(value: Any) -> bool:
    if isinstance(value, torch.Generator):
        return value is not torch.default_generator
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)  # has no state
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState))


def find_generators(loader: Any) -> dict[str, Any]:
    """Find the random generators that a loader and its samplers own.

    Looks at `loader.generator` and at the attributes of `sampler` and `batch_sampler`, and of samplers inside these.

    Returns:
        Path (``"sampler.generator"``) to generator, each object once; torch, Python and NumPy generators.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def add(path: str, value: Any) -> None:
        if id(value) not in seen and _is_generator(value):
            seen.add(id(value))
            found[path] = value

    def visit(path: str, sampler: Any, depth: int) -> None:
        if id(sampler) in seen or depth > 4:
            return
        seen.add(id(sampler))
        for name, value in list(getattr(sampler, "__dict__", {}).items()):
            add(f"{path}.{name}", value)
            if isinstance(value, torch.utils.data.Sampler):
                visit(f"{path}.{name}", value, depth + 1)

    add("generator", getattr(loader, "generator", None))
    for name in ("sampler", "batch_sampler"):
        visit(name, getattr(loader, name, None), 0)
    return found


def generator_state(generator: Any) -> Any:
    """Return the state of a torch, Python or NumPy generator in plain form."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def set_generator_state(generator: Any, state: Any) -> None:
    """Set what `generator_state` returned."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(_python_form(state))
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = _numpy_form(state)
    else:
        generator.set_state(_numpy_form(state))


def generator_states(generators: dict[str, Any]) -> dict[str, Any]:
    """Return path to state for the generators that `find_generators` found."""
    return {path: generator_state(generator) for path, generator in generators.items()}


def set_generator_states(generators: dict[str, Any], states: dict[str, Any]) -> None:
    """Set the states of those generators that are still there."""
    for path, state in states.items():
        if path in generators:
            set_generator_state(generators[path], state)


def snapshot(generators: dict[str, Any]) -> dict[str, Any]:
    """Return the states of the process and of `generators` together."""
    return {"main": main_state(), "generators": generator_states(generators)}


def apply_snapshot(generators: dict[str, Any], states: dict[str, Any]) -> None:
    """Set what `snapshot` returned."""
    set_main_state(states["main"])
    set_generator_states(generators, states["generators"])

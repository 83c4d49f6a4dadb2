"""The states that a training step changes besides weights: buffers, metrics, random numbers; marked and put back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fulmen.engine.results.metrics import is_metric
from fulmen.utilities.seed import collect_rng_states, set_rng_states

_SMALL = 2**16
_STRUCTURE = ("_parameters", "_buffers", "_modules", "training")


class StateMarks:
    """Marks the states of a module before a step, so that the step can be undone.

    Buffers are copied each time; large ones, such as masks, only if torch counted a change since the last copy (it does
    not count those of batch norm, which are small).

    Args:
        module: The user's module.
        rng: Whether random numbers are marked, too.
    """

    def __init__(self, module: nn.Module, *, rng: bool) -> None:
        self.module = module
        self.with_rng = rng
        self._copies: dict[Tensor, tuple[int, Tensor]] = {}
        self._buffers: list[tuple[nn.Module, str, Tensor | None]] = []
        self._metrics: list[tuple[Any, dict[str, Any]]] = []
        self._rng: Any = None

    def mark(self) -> None:
        """Note the states as they are now."""
        self._buffers, self._metrics, before = [], [], self._copies
        self._copies = {}
        for sub in self.module.modules():
            for name, buffer in sub.named_buffers(recurse=False, remove_duplicate=False):
                self._buffers.append((sub, name, buffer))
                kept = before.get(buffer)
                if kept is None or kept[0] != buffer._version or buffer.numel() <= _SMALL:
                    kept = (buffer._version, buffer.detach().clone())
                self._copies[buffer] = kept
            if is_metric(sub):
                self._metrics.append((sub, {k: _copy(v) for k, v in vars(sub).items() if k not in _STRUCTURE}))
        self._rng = collect_rng_states() if self.with_rng else None

    def put_back(self) -> None:
        """Give back what `mark` noted."""
        with torch.no_grad():
            for sub, name, buffer in self._buffers:
                if buffer is None:
                    continue
                if getattr(sub, name) is not buffer:
                    setattr(sub, name, buffer)
                version, copy = self._copies[buffer]
                if buffer._version != version or buffer.numel() <= _SMALL:
                    buffer.copy_(copy)
                    self._copies[buffer] = (buffer._version, copy)
        for metric, state in self._metrics:
            vars(metric).update({key: _copy(value) for key, value in state.items()})
        if self._rng is not None:
            set_rng_states(self._rng)


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return list(value) if type(value) is list else value

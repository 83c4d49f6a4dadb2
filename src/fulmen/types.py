"""Protocols and type names shared by all rooms; nothing here imports torch at run time."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PathOrStr: TypeAlias = "str | PathLike[str]"
StepOutput: TypeAlias = "Tensor | Mapping[str, Any] | None"
MapLocation: TypeAlias = "torch.device | str | dict[str, str] | Any | None"


@runtime_checkable
class Stateful(Protocol):
    """An owner of state that a checkpoint keeps."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values and tensors."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Take the state back."""
        ...


class StepClosure(Protocol):
    """What an optimizer step runs before the weights change; see `fulmen.engine.loops`."""

    def compute(self) -> Tensor | None:
        """Run training step and backward; `None` if the step gave no loss."""
        ...

    def ready(self) -> None:
        """Gradients are final: fire `on_before_optimizer_step` and clip."""
        ...

    def both(self) -> Tensor | None:
        """Run `compute`, then `ready`; this is what a torch optimizer gets as its closure."""
        ...

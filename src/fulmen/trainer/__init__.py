"""`Trainer` and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

__all__ = ["Trainer"]


def __getattr__(name: str) -> Any:
    if name == "Trainer":
        from fulmen.trainer.trainer import Trainer

        return Trainer
    raise AttributeError(f"module 'fulmen.trainer' has no attribute {name!r}")

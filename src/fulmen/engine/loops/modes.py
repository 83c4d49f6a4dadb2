"""Remember train/eval mode of every submodule, and put it back exactly."""

from __future__ import annotations

from typing import Any


class ModeKeeper:
    """Modes of a module tree at one moment; as a context it puts them back after an exception.

    Args:
        module: Root of the tree.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.modes = {name: sub.training for name, sub in module.named_modules()}

    def __enter__(self) -> ModeKeeper:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.restore(self.module)

    def restore(self, module: Any) -> None:
        """Give every submodule that was there its mode back; new ones stay as they are."""
        for name, sub in module.named_modules():
            if name in self.modes:
                sub.training = self.modes[name]

"""Remember train/eval mode and `requires_grad` of every submodule, and put them back exactly."""

from __future__ import annotations

from typing import Any


class ModeKeeper:
    """Modes of a module tree at one moment.

    Args:
        module: Root of the tree.
    """

    def __init__(self, module: Any) -> None:
        self.modes = {name: sub.training for name, sub in module.named_modules()}

    def restore(self, module: Any) -> None:
        """Give every submodule that was there its mode back; new ones stay as they are."""
        for name, sub in module.named_modules():
            if name in self.modes:
                sub.training = self.modes[name]

"""Run code that was written for Lightning, unchanged: its names lead to Fulmen.

`install_aliases()` at the start of a script, ``python -m fulmen.compat script.py``, or ``pytest -p
fulmen.compat.pytest``; afterwards ``import lightning as L`` and ``import pytorch_lightning as pl`` give Fulmen.
"""

from __future__ import annotations

from fulmen.compat.install import aliases_installed, install_aliases, uninstall_aliases

__all__ = ["aliases_installed", "install_aliases", "uninstall_aliases"]

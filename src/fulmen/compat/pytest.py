"""``pytest -p fulmen.compat.pytest``: tests that were written for Lightning run on Fulmen."""

from __future__ import annotations

from typing import Any

from fulmen.compat.install import aliases_installed, install_aliases, uninstall_aliases

_ours = False


def pytest_addoption(parser: Any) -> None:
    """Switch the aliases on; a plugin of the command line is asked this before any conftest is imported."""
    global _ours
    if not aliases_installed():
        install_aliases()
        _ours = True


def pytest_report_header() -> str:
    """Say in the head of the report what is being tested."""
    return "fulmen.compat: lightning, pytorch_lightning and lightning_fabric are Fulmen"


def pytest_unconfigure() -> None:
    """Switch the aliases off."""
    global _ours
    if _ours:
        uninstall_aliases()
        _ours = False

"""Ask what is installed without importing it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util


@functools.lru_cache(maxsize=256)
def module_available(name: str) -> bool:
    """Return whether a module can be imported, looking only at where it would come from.

    Args:
        name: Dotted name; its parent packages are imported to look inside them.
    """
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def package_version(name: str) -> str | None:
    """Return the installed version of a distribution, or `None`."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

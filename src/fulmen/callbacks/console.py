"""What kind of output there is: a terminal, a notebook, or a file or pipe."""

from __future__ import annotations

import os
import sys
from typing import Literal

OutputKind = Literal["terminal", "notebook", "plain"]


def output_kind() -> OutputKind:
    """Say where standard output goes.

    Returns:
        ``"notebook"`` under a Jupyter kernel (or Colab), ``"terminal"`` if standard output is one that understands
        cursor movements, else ``"plain"``: a file, a pipe, a batch job, a dumb terminal.
    """
    if _in_notebook():
        return "notebook"
    try:
        is_terminal = sys.stdout.isatty()
    except (AttributeError, ValueError):  # replaced by something that is no file, or closed
        is_terminal = False
    if is_terminal and os.environ.get("TERM", "").lower() not in ("dumb", "unknown"):
        return "terminal"
    return "plain"


def _in_notebook() -> bool:
    # Asking costs nothing where IPython is not running: it is never imported here.
    ipython = sys.modules.get("IPython")
    get_ipython = getattr(ipython, "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def format_metric(value: object, spec: str = ".3f") -> str:
    """Write a metric's value: floats by `spec` (by ``.3e`` where that would show 0.000), all else as it is."""
    if isinstance(value, float):
        text = f"{value:{spec}}"
        if value != 0 and spec == ".3f" and (abs(value) < 0.001 or abs(value) >= 1e6):
            text = f"{value:.3e}"
        return text
    return str(value)


def format_seconds(seconds: float | None) -> str:
    """Write a duration as ``0:01:23`` or ``2d 03:04:05``; unknown ones as ``-:--:--``."""
    if seconds is None or seconds != seconds or seconds == float("inf"):
        return "-:--:--"
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{days}d {hours:02d}:{minutes:02d}:{secs:02d}" if days else f"{hours}:{minutes:02d}:{secs:02d}"

"""Progress bars: on a terminal, in a notebook, as plain lines, or your own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulmen.callbacks.progress.choose import default_progress_bar
    from fulmen.callbacks.progress.notebook_progress import NotebookProgress
    from fulmen.callbacks.progress.plain_progress import PlainProgress
    from fulmen.callbacks.progress.progress_bar import ProgressBar
    from fulmen.callbacks.progress.rich_progress import RichProgressBar, RichProgressBarTheme
    from fulmen.callbacks.progress.tqdm_progress import TQDMProgressBar

__all__ = [
    "NotebookProgress",
    "PlainProgress",
    "ProgressBar",
    "RichProgressBar",
    "RichProgressBarTheme",
    "TQDMProgressBar",
    "default_progress_bar",
]

_HOME = {
    "NotebookProgress": "notebook_progress",
    "PlainProgress": "plain_progress",
    "ProgressBar": "progress_bar",
    "RichProgressBar": "rich_progress",
    "RichProgressBarTheme": "rich_progress",
    "TQDMProgressBar": "tqdm_progress",
    "default_progress_bar": "choose",
}
_MODULES = frozenset({*_HOME.values(), "timed_progress", "whole_run"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Which bar a Trainer gets that was given none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fulmen.callbacks.console import output_kind

if TYPE_CHECKING:
    from fulmen.callbacks.progress.progress_bar import ProgressBar


def default_progress_bar(*, fits_output: bool = True) -> ProgressBar:
    """Return the bar that fits standard output.

    A terminal gets the rich bar with one more bar for the whole run, a notebook a bar of its own, and everything else
    (a file, a pipe, a batch job) plain lines with growing distances.

    Args:
        fits_output: `False` gives Lightning's default, the rich bar of the epoch, whatever the output is.
    """
    if not fits_output:
        from fulmen.callbacks.progress.rich_progress import RichProgressBar

        return RichProgressBar()
    kind = output_kind()
    if kind == "terminal":
        from fulmen.callbacks.progress.rich_progress import RichProgressBar

        return RichProgressBar(total_bar=True)
    if kind == "notebook":
        from fulmen.callbacks.progress.notebook_progress import NotebookProgress

        return NotebookProgress()
    from fulmen.callbacks.progress.plain_progress import PlainProgress

    return PlainProgress()

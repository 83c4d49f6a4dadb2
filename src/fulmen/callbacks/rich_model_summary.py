"""Print what the model consists of with rich."""

from __future__ import annotations

from typing import Any

from fulmen.callbacks.model_summary import ModelSummary
from fulmen.export.summary import total_lines


class RichModelSummary(ModelSummary):
    """Prints the table of `ModelSummary` with colours.

    Args:
        max_depth: Levels of nesting to show; 0 shows nothing, -1 all.
        **summarize_kwargs: `header_style`, rich's style of the titles.
    """

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]],
        total_parameters: int,
        trainable_parameters: int,
        model_size: float,
        total_training_modes: dict[str, int],
        total_flops: int,
        **summarize_kwargs: Any,
    ) -> None:
        """Print the table on rich's console; arguments as in `ModelSummary.summarize`."""
        from rich import get_console
        from rich.markup import escape
        from rich.table import Table

        table = Table(header_style=summarize_kwargs.get("header_style", "bold magenta"))
        for title, _ in summary_data:
            right = title in ("Params", "Params per Device", "FLOPs", "In sizes", "Out sizes")
            table.add_column(
                title,
                justify="right" if right else "left",
                style="dim" if title == " " else None,
                no_wrap=title == "Name",
            )
        for row in zip(*(cells for _, cells in summary_data), strict=True):
            table.add_row(*map(escape, row))
        console = get_console()
        console.print(table)
        totals = total_lines(total_parameters, trainable_parameters, model_size, total_training_modes, total_flops)
        for value, label in totals:
            console.print(f"[bold]{label}[/]: {value}")

"""The table that `validate` and `test` print at their end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fulmen.callbacks.console import output_kind

_SUFFIX = "/dataloader_idx_"
_WIDE = 120  # columns, where output is no terminal


def print_results_table(
    results: Sequence[Mapping[str, Any]], stage: str, *, loader_names: Sequence[str] | None = None
) -> None:
    """Print what was logged over each loader: coloured on a terminal, plain text elsewhere; nothing if nothing was.

    Args:
        results: One dict per loader. Names may end in ``/dataloader_idx_0``, which is left out; nested dicts are shown
            as ``outer:inner``.
        stage: ``"validate"`` or ``"test"``; stands above the names.
        loader_names: Titles of the columns; by default ``DataLoader 0``, ``DataLoader 1``. Names of
            values may end in ``/<title>``, which is left out.
    """
    columns = [dict(_flat(result)) for result in results]
    if loader_names is not None:
        columns = [
            {_short(key, name, column): text for key, text in column.items()}
            for column, name in zip(columns, loader_names, strict=True)
        ]
    names = sorted({name for column in columns for name in column})
    if not names:
        return
    titles = [loader_names[i] if loader_names else f"DataLoader {i}" for i in range(len(columns))]
    rows = [[name, *(column.get(name, "") for column in columns)] for name in names]
    header = [f"{str(stage).capitalize()} metric", *titles]
    terminal = output_kind() == "terminal"
    width = shutil.get_terminal_size((_WIDE, 30)).columns if terminal else _WIDE
    for part in _parts(header, rows, width):
        if terminal:
            _print_rich([header[i] for i in part], [[row[i] for i in part] for row in rows])
        else:
            _print_plain([header[i] for i in part], [[row[i] for i in part] for row in rows])


def _short(key: str, loader: str, column: Mapping[str, Any]) -> str:
    """A key without the loader's name; as it is if the short one stands for a value over all loaders."""
    short = key.removesuffix(f"/{loader}")
    return key if short in column else short


def _flat(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in result.items():
        short = str(name).split(_SUFFIX)[0]
        full = f"{prefix}{name if short != name and short in result else short}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{full}:")
        else:
            yield full, _text(value)


def _text(value: Any) -> str:
    if hasattr(value, "tolist"):  # a tensor or an array
        value = value.item() if getattr(value, "ndim", 1) == 0 else value.tolist()
    return str(value)


def _parts(header: list[str], rows: list[list[str]], width: int) -> Iterator[list[int]]:
    """Yield the columns of each table: the names, and as many loaders as fit beside them (one at least)."""
    widths = [max(len(line[i]) for line in (header, *rows)) + 3 for i in range(len(header))]
    part: list[int] = [0]
    used = widths[0]
    for i in range(1, len(header)):
        if len(part) > 1 and used + widths[i] > width:
            yield part
            part, used = [0], widths[0]
        part.append(i)
        used += widths[i]
    yield part


def _print_rich(header: list[str], rows: list[list[str]]) -> None:
    from rich import get_console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for i, title in enumerate(header):
        table.add_column(escape(title), style="magenta" if i else "cyan", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    get_console().print(table)


def _print_plain(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in (header, *rows)
    ]
    rule = "-" * max(map(len, lines))
    print("\n".join([rule, lines[0], rule, *lines[1:], rule]), file=sys.stdout, flush=True)

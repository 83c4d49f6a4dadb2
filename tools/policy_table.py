"""Keep the table of differences from Lightning in docs/migration.md equal to the fields of `Policy`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "migration.md"
BEGIN = "<!-- policy-table: begin (written by tools/policy_table.py) -->"
END = "<!-- policy-table: end -->"


def table(policy: type[Any]) -> str:
    """Markdown table of a policy dataclass whose fields carry kind, lightning and fulmen as metadata."""
    lines = ["| field | kind | `Policy.lightning` | `Policy.right` (default) |", "|---|---|---|---|"]
    for field in dataclasses.fields(policy):
        missing = [key for key in ("kind", "lightning", "fulmen") if not field.metadata.get(key)]
        if missing:
            raise ValueError(f"Policy.{field.name} has no {', '.join(missing)} in its metadata.")
        cells = [field.metadata[key].replace("|", "\\|") for key in ("kind", "lightning", "fulmen")]
        lines.append(f"| `{field.name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def update(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with the table between its marks replaced."""
    if begin not in page or end not in page:
        raise ValueError(f"The page needs the lines {begin!r} and {end!r}.")
    before, rest = page.split(begin, 1)
    after = rest.split(end, 1)[1]
    return f"{before}{begin}\n{text}\n{end}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write the table, or with --check return 1 when it is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    from fulmen.engine.runtime.policy import Policy

    old = options.page.read_text("utf-8")
    new = update(old, table(Policy))
    if options.check:
        if old != new:
            print(f"{options.page.name} is stale: run `make docs`.", file=sys.stderr)
        return int(old != new)
    if old != new:
        options.page.write_text(new, "utf-8")
        print(f"{options.page.name}: table written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

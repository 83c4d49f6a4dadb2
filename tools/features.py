"""The ids of docs/features.md: what each is called and in which section it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEATURES = ROOT / "docs" / "features.md"

_SECTION = re.compile(r"^## ([A-Z])\. (.+)$")
_ROW = re.compile(r"^\| ([A-Z]-\d\d) \| (.*?) ?\|?$")
_RANGE = re.compile(r"\b([A-Z])-(\d\d)\s*(?:…|\.\.\.?|–|to)\s*(?:\1-)?(\d\d)\b")


@dataclass(frozen=True)
class Feature:
    """One row: its id, the title of its section, and its first words."""

    id: str
    section: str
    text: str


def parse(text: str) -> dict[str, Feature]:
    """Find every id: table rows, and in prose sections the ids of the section's own letter (single or as a range)."""
    found: dict[str, Feature] = {}
    letter, title = "", ""
    for line in text.splitlines():
        if match := _SECTION.match(line):
            letter, title = match[1], match[2]
            line = match[2]
        elif match := _ROW.match(line):
            found.setdefault(match[1], Feature(match[1], title, match[2]))
            continue
        if not letter or line.startswith("|"):
            continue
        line = _RANGE.sub(_spell_out, line)
        parts = re.split(rf"\b({letter}-\d\d)\b", line)
        for id_, rest in zip(parts[1::2], parts[2::2], strict=True):
            found.setdefault(id_, Feature(id_, title, rest.strip(" ,.;:()")))
    return found


def _spell_out(match: re.Match[str]) -> str:
    letter, first, last = match[1], int(match[2]), int(match[3])
    return " ".join(f"{letter}-{number:02d}" for number in range(first, last + 1))


def load(path: Path = FEATURES) -> dict[str, Feature]:
    """Read the list of features."""
    return parse(path.read_text("utf-8"))


def in_order(ids: list[str] | dict[str, Feature], path: Path = FEATURES) -> list[str]:
    """Sort ids as they stand in the list."""
    order = {id_: i for i, id_ in enumerate(load(path))}
    return sorted(ids, key=lambda id_: (order.get(id_, len(order)), id_))

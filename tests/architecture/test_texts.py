"""Links of the pages lead somewhere, and no file names a machine's own folders or hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.architecture import texts

ROOT = Path(__file__).resolve().parents[2]


def test_links_lead_somewhere() -> None:
    pages = [p for p in texts.tracked_texts(ROOT) if p.suffix == ".md"]
    assert ROOT / "README.md" in pages
    broken = {str(p.relative_to(ROOT)): links for p in pages if (links := texts.broken_links(p))}
    assert not broken


def test_no_machine_names() -> None:
    found = {
        str(p.relative_to(ROOT)): lines
        for p in texts.tracked_texts(ROOT)
        if (lines := texts.machine_names(p.read_text("utf-8", errors="replace")))
    }
    assert not found


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](missing.md#part) [c](https://example.org) [d](#part)\n```\n[e](in/code.md)\n```\n"
    )
    assert texts.broken_links(page) == ["missing.md"]


@pytest.mark.parametrize("parts", [("/wo", "rk/main/src"), ("/ro", "ot/.cache"), ("/ho", "me/ann/data")])
def test_machine_names_are_found(parts: tuple[str, str]) -> None:
    assert texts.machine_names(f"x = '{''.join(parts)}'") != []
    assert texts.machine_names("path/to/work/dir and ~/data and $HOME/x and /tmp/x") == []


def test_hosts_are_found() -> None:
    assert texts.machine_names("https://pypi" + ".org/simple") != []

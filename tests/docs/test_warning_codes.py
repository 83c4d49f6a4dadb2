"""Each warning code means one thing, and the page lists all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import warning_codes
from tools.warning_codes import Use


def test_each_code_is_used_for_one_meaning() -> None:
    assert warning_codes.ambiguous(warning_codes.all_uses()) == []


def test_the_list_of_codes_is_current() -> None:
    assert warning_codes.main(["--check"]) == 0


def test_codes_are_read_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text('def missing(name):\n    return f"there is no {name!r}."\n')
    (tmp_path / "room.py").write_text(
        "from fulmen.errors import warn\n"
        "def first(x):\n"
        "    what = f'{x.size} rows'\n"
        "    warn('W901', f'{what}: too ' + 'many')\n"
        "    def second():\n"
        "        message = missing(x)\n"
        "        warn('W902', f'{message} Go on.', key=x)\n"
    )
    (tmp_path / "other.py").write_text("def warn(code):\n    pass\nwarn(code())\n")
    uses = warning_codes.all_uses(tmp_path)
    assert [(use.code, use.file, use.text) for use in uses] == [
        ("W901", "room.py", "… rows: too many"),
        ("W902", "room.py", "there is no …. Go on."),
    ]
    assert "| FULMEN-W901 | `room.py` | … rows: too many |" in warning_codes.table(uses)


def test_a_code_that_is_not_written_out_is_found(tmp_path: Path) -> None:
    (tmp_path / "room.py").write_text("from fulmen.errors import warn\ncode = 'W901'\nwarn(code, 'words')\n")
    with pytest.raises(ValueError, match=r"room\.py:3.*written out"):
        warning_codes.all_uses(tmp_path)


def test_a_code_with_two_meanings_is_found() -> None:
    twice = [Use("W901", "a.py", 1, "x"), Use("W901", "b.py", 1, "y"), Use("W902", "a.py", 2, "x")]
    assert warning_codes.ambiguous(twice) == ["W901 is used in a.py and b.py: give one of them a free number."]
    assert warning_codes.ambiguous([Use("W9", "a.py", 1, "x")]) == ["W9 in a.py: a code is W and three digits."]


def test_a_stale_page_is_found_and_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{warning_codes.BEGIN}\nold\n{warning_codes.END}\nafter\n")
    assert warning_codes.main(["--check", "--page", str(page)]) == 1
    assert warning_codes.main(["--page", str(page)]) == 0
    assert warning_codes.main(["--check", "--page", str(page)]) == 0
    assert "FULMEN-W101" in page.read_text("utf-8") and page.read_text("utf-8").endswith("after\n")

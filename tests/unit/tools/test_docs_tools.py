"""Examples of the pages are run, and the table of differences follows the dataclass."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tools import check_docs, policy_table

PAGE = """# Page
```python
value = 1
```
text
```python no-run
raise SystemExit(1)
```
```bash
exit 1
```
- item
  ```python
  assert value == 1
  Path = 1
  ```
"""


def test_blocks() -> None:
    assert check_docs.blocks(PAGE) == [(2, "value = 1"), (13, "assert value == 1\nPath = 1")]
    with pytest.raises(ValueError, match="begins in line 1"):
        check_docs.blocks("```python\nx = 1\n")


def test_pages_without_runnable_blocks_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "docs" / "inner").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Nothing\n")
    (tmp_path / "docs" / "inner" / "page.md").write_text(PAGE)
    assert [p.name for p in check_docs.pages(tmp_path)] == ["page.md"]


def test_good_page_passes_and_leaves_no_file(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE + "```python\nopen('litter', 'w').close()\n```\n")
    assert check_docs.main([str(page)]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["page.md"]


@pytest.mark.parametrize("line", ["assert value == 2", "import warnings; warnings.warn('a user warning')"])
def test_wrong_example_is_found_with_its_line(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE + f"```python\n{line}\n```\n")
    assert check_docs.main([str(page)]) == 1
    assert 'page.md", line 18' in capsys.readouterr().err


@dataclasses.dataclass(frozen=True)
class Sample:
    first: bool = dataclasses.field(
        default=True, metadata={"kind": "flow", "lightning": "a | b", "fulmen": "c", "pains": ""}
    )


def page_with(text: str) -> str:
    return f"before\n{policy_table.BEGIN}\n{text}\n{policy_table.END}\nafter\n"


def test_table_is_written_between_its_marks() -> None:
    table = policy_table.table(Sample)
    assert table.splitlines()[2] == "| `first` | flow | a \\| b | c |"
    assert policy_table.update(page_with("old\nlines"), table) == page_with(table)
    with pytest.raises(ValueError, match="needs the lines"):
        policy_table.update("no marks", table)


def test_field_without_words_is_refused() -> None:
    @dataclasses.dataclass
    class Wordless:
        first: Any = dataclasses.field(default=True, metadata={"kind": "flow"})

    with pytest.raises(ValueError, match=r"Policy.first has no lightning, fulmen"):
        policy_table.table(Wordless)


def test_check_fails_when_stale_and_writing_makes_it_current(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(page_with("old"))
    arguments = ["--page", str(page)]
    assert policy_table.main([*arguments, "--check"]) == 1
    assert "old" in page.read_text()
    assert policy_table.main(arguments) == 0
    assert policy_table.main([*arguments, "--check"]) == 0
    assert "`count_batches`" in page.read_text()

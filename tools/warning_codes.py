"""List of all warning codes in docs/errors-and-warnings.md, read from the calls of `fulmen.errors.warn`."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.policy_table import update as replace_between

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fulmen"
PAGE = ROOT / "docs" / "errors-and-warnings.md"
BEGIN = "<!-- warning-codes: begin (written by tools/warning_codes.py) -->"
END = "<!-- warning-codes: end -->"
_SKIP = "compat/path"
_ELLIPSIS = "…"


@dataclass(frozen=True)
class Use:
    """One call of `warn`.

    Attributes:
        code: `W012`.
        file: Path below `src/fulmen`.
        line: Its line.
        text: The message, with `…` for what only a run knows.
    """

    code: str
    file: str
    line: int
    text: str


class Messages:
    """Reads texts from expressions; what is not known from the source becomes `…`.

    Args:
        trees: All sources, for functions of the package that return a text.
    """

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self.functions: dict[str, ast.FunctionDef] = {}
        for tree in trees:
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Return):
                    self.functions[node.name] = node

    def text(self, node: ast.expr | None, scope: ast.AST) -> str:
        """Text of an expression inside of a function or module."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(part, scope) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value, scope) if isinstance(node.value, ast.Name) else _ELLIPSIS
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.text(node.left, scope) + self.text(node.right, scope)
        if isinstance(node, ast.Name):
            values = assigned(node.id, scope)
            return self.text(values[0], scope) if len(values) == 1 else _ELLIPSIS
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
            function = self.functions[node.func.id]
            last = function.body[-1]
            return self.text(last.value, function) if isinstance(last, ast.Return) else _ELLIPSIS
        return _ELLIPSIS


def assigned(name: str, scope: ast.AST) -> list[ast.expr]:
    """All values that are assigned to a name in a function or module."""
    return [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == name
    ]


def uses_in(tree: ast.Module, file: str, messages: Messages) -> Iterator[Use]:
    """Calls of `warn` in a source.

    Raises:
        ValueError: If a code is not written out where it is used.
    """
    if not any(
        isinstance(node, ast.ImportFrom) and node.module == "fulmen.errors" and "warn" in {a.name for a in node.names}
        for node in ast.walk(tree)
    ):
        return
    scopes: list[ast.AST] = [
        tree,
        *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)),
    ]
    inner: dict[ast.Call, ast.AST] = {}
    for scope in scopes:  # functions come after what they stand in, so that the innermost one stays
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "warn":
                inner[node] = scope
    for call, scope in inner.items():
        code = call.args[0] if call.args else None
        if not (isinstance(code, ast.Constant) and isinstance(code.value, str)):
            raise ValueError(f"{file}:{call.lineno}: warn(...) needs its code written out, as in warn('W012', ...).")
        shown = messages.text(call.args[1] if len(call.args) > 1 else None, scope)
        yield Use(code.value, file, call.lineno, re.sub(f"{_ELLIPSIS}{{2,}}", _ELLIPSIS, " ".join(shown.split())))


def all_uses(source: Path = SOURCE) -> list[Use]:
    """All calls of `warn` below a folder, by code."""
    trees = {
        path.relative_to(source).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in source.rglob("*.py")
        if _SKIP not in path.as_posix()
    }
    messages = Messages(trees.values())
    found = [use for file, tree in trees.items() for use in uses_in(tree, file, messages)]
    return sorted(found, key=lambda use: (use.code, use.file, use.line))


def ambiguous(uses: list[Use]) -> list[str]:
    """Codes that stand for more than one thing: used in several files, or of a form of their own."""
    problems: list[str] = []
    for code in sorted({use.code for use in uses}):
        files = sorted({use.file for use in uses if use.code == code})
        if len(files) > 1:
            problems.append(f"{code} is used in {' and '.join(files)}: give one of them a free number.")
        if len(code) != 4 or code[0] != "W" or not code[1:].isdigit():
            problems.append(f"{code} in {files[0]}: a code is W and three digits.")
    return problems


def table(uses: list[Use]) -> str:
    """Markdown table of the codes."""
    lines = ["| code | from | what it says |", "|---|---|---|"]
    for use in uses:
        text = use.text.replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| FULMEN-{use.code} | `{use.file}` | {text} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Write the table, or with --check return 1 when it is stale; also 1 if a code means two things."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    uses = all_uses()
    if problems := ambiguous(uses):
        print("\n".join(problems), file=sys.stderr)
        return 1
    old = options.page.read_text("utf-8")
    new = replace_between(old, table(uses), BEGIN, END)
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

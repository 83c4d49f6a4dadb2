"""Source files as parsed trees, with what each imports and where."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One imported name: the module it comes from, the line, and whether importing the file runs it."""

    module: str
    name: str | None
    line: int
    at_module_level: bool


@dataclass(frozen=True)
class Finding:
    """Something that breaks a rule. `subject` is what an exception in exceptions.toml would name."""

    where: str
    line: int
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.message}"


class Source:
    """One Python file of the package."""

    def __init__(self, module: str, text: str, *, is_package: bool = False, path: Path | None = None) -> None:
        self.module = module
        self.text = text
        self.is_package = is_package
        self.path = path
        self.tree = ast.parse(text)

    @cached_property
    def docstring_constants(self) -> set[int]:
        """Identities of the constants that are docstrings (of attributes too)."""
        found = set()
        for node in ast.walk(self.tree):
            for statement in getattr(node, "body", None) or [] if not isinstance(node, ast.Lambda | ast.IfExp) else []:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    found.add(id(statement.value))
        return found

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Numbers of the lines that docstrings cover."""
        lines: set[int] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and id(node) in self.docstring_constants and isinstance(node.value, str):
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return lines

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Line and text of every comment."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]

    @cached_property
    def code_lines(self) -> int:
        """Lines that hold code: no docstrings, comments or blanks."""
        silent = {
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
            tokenize.ENCODING,
            tokenize.ENDMARKER,
        }
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in silent:
                lines.update(range(token.start[0], token.end[0] + 1))
        return len(lines - self.docstring_lines)

    @cached_property
    def imports(self) -> list[Import]:
        """Everything imported outside `if TYPE_CHECKING`, inside functions too, and literal `import_module` calls."""
        return list(self._imports(self.tree, at_module_level=True))

    def _imports(self, node: ast.AST, *, at_module_level: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and _is_type_checking(child.test):
                for statement in child.orelse:
                    yield from self._imports(ast.Module([statement], []), at_module_level=at_module_level)
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, None, child.lineno, at_module_level)
            elif isinstance(child, ast.ImportFrom):
                base = self._absolute(child)
                for alias in child.names:
                    yield Import(base, alias.name, child.lineno, at_module_level)
            elif isinstance(child, ast.Call) and (literal := _import_module_argument(child)):
                yield Import(literal, None, child.lineno, at_module_level)
            inner = at_module_level and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from self._imports(child, at_module_level=inner)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        if not self.is_package:
            parts = parts[:-1]
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, node.module] if node.module else parts)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _import_module_argument(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in {"import_module", "__import__"} and call.args and isinstance(call.args[0], ast.Constant):
        value = call.args[0].value
        return value if isinstance(value, str) and not value.startswith(".") else None
    return None


def load(package_dir: Path, package: str | None = None, *, skip: tuple[str, ...] = ()) -> list[Source]:
    """Read every module of a package.

    Args:
        package_dir: Folder of the package.
        package: Its name; the folder's if not given.
        skip: Folders (relative, with slashes) to leave out.
    """
    package = package or package_dir.name
    sources = []
    for path in sorted(package_dir.rglob("*.py")):
        relative = path.relative_to(package_dir)
        if "__pycache__" in relative.parts or any(relative.as_posix().startswith(s + "/") for s in skip):
            continue
        is_package = relative.name == "__init__.py"
        parts = relative.parts[:-1] if is_package else relative.with_suffix("").parts
        sources.append(Source(".".join([package, *parts]), path.read_text("utf-8"), is_package=is_package, path=path))
    return sources

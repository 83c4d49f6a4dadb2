"""Rules about single files: private attributes, strategy tests, hook names, sizes, suppressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from tools.architecture.source import Finding, Source

MAX_CODE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CONSTRUCTOR_ARGUMENTS = 12
MAX_SUPPRESSIONS_PER_1000 = 4

# Underscore names that are documented parts of the standard library's public interface.
_DOCUMENTED = {"_asdict", "_fields", "_make", "_replace", "_field_defaults"}
_ACCESSORS = {"getattr", "setattr", "hasattr", "delattr"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_") and name not in _DOCUMENTED


# ------------------------------------------------------------------------------------------------- private attributes
class _PrivateVisitor(ast.NodeVisitor):
    """Collects `x._y` where `x` is another object than self, the class, or a second instance of the same class."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Finding] = []
        self.classes: list[ast.ClassDef] = []
        self.own_names: list[set[str]] = []
        self.same_class: list[set[str]] = [set()]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.classes.append(node)
        self.own_names.append(_private_names_of(node))
        self.generic_visit(node)
        self.own_names.pop()
        self.classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.same_class.append(self.same_class[-1] | _instances_of_own_class(node, {c.name for c in self.classes}))
        self.generic_visit(node)
        self.same_class.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if _is_private(node.attr):
            self._judge(node.value, node.attr, node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _ACCESSORS and len(node.args) >= 2:
            key = node.args[1]
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and _is_private(key.value):
                self._judge(node.args[0], key.value, node.lineno)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level or base.split(".")[0] == self.source.module.split(".")[0]:
            for alias in node.names:
                if _is_private(alias.name):
                    self._add(f"{base}.{alias.name}", node.lineno, f"imports the private name {alias.name} of {base}")

    def _judge(self, value: ast.expr, attr: str, line: int) -> None:
        text = ast.unparse(value)
        if text in {"self", "cls", "super()", "type(self)", "self.__class__"}:
            return
        in_own_class = any(attr in names for names in self.own_names)
        if in_own_class and (text in self.same_class[-1] or text in {c.name for c in self.classes}):
            return
        self._add(f"{text}.{attr}", line, f"reads the private attribute {text}.{attr} of another object")

    def _add(self, subject: str, line: int, message: str) -> None:
        self.found.append(Finding(self.source.module, line, subject, message))


def _private_names_of(node: ast.ClassDef) -> set[str]:
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, _Function):
            names.add(inner.name)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner.value):
            names.add(inner.attr)
        elif isinstance(inner, ast.Assign) and any(getattr(t, "id", "") == "__slots__" for t in inner.targets):
            names |= {str(c.value) for c in ast.walk(inner.value) if isinstance(c, ast.Constant)}
    return names


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def _instances_of_own_class(function: ast.FunctionDef | ast.AsyncFunctionDef, classes: set[str]) -> set[str]:
    """Names in a method that hold a second instance of its class: `other`, annotated so, or made from it."""
    if not classes:
        return set()
    names = {"other"}
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if argument.annotation is not None:
            annotation = ast.unparse(argument.annotation).strip("'\"")
            if annotation in classes | {"Self"}:
                names.add(argument.arg)
    makers = {"cls", "type(self)", "self.__class__", "copy", "deepcopy", "copy.copy", "copy.deepcopy"} | classes
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = ast.unparse(node.value.func)
            if (maker in makers or maker.endswith(".__new__")) and isinstance(node.targets[0], ast.Name):
                names.add(node.targets[0].id)
    return names


def private_attributes(source: Source) -> list[Finding]:
    """Private attributes of other objects, also through getattr, and private names imported from own modules."""
    visitor = _PrivateVisitor(source)
    visitor.visit(source.tree)
    return visitor.found


# ------------------------------------------------------------------------------------------------ isinstance, strings
def strategy_tests(source: Source) -> list[Finding]:
    """`isinstance` or `issubclass` of a strategy, where only strategies/ and engine/runtime/ may ask."""
    if source.module.startswith(("fulmen.strategies", "fulmen.engine.runtime")):
        return []
    found = []
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"isinstance", "issubclass"}):
            continue
        for inner in ast.walk(node.args[1]) if len(node.args) > 1 else ():
            name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
            if name.endswith("Strategy"):
                message = f"asks {ast.unparse(node)}: let the strategy answer by a verb or an attribute"
                found.append(Finding(source.module, node.lineno, name, message))
    return found


HOOK_STRINGS_ALLOWED = (
    "fulmen.engine.hooks.spec",
    "fulmen.cli",
    "fulmen.compat",
    "fulmen.callbacks.lambda_function",
)


def hook_strings(source: Source, hook_names: Collection[str]) -> list[Finding]:
    """Hook names written as strings outside the one place that describes them (a hook may name itself)."""
    if source.module.startswith(HOOK_STRINGS_ALLOWED):
        return []
    passed = {id(c) for node in source.tree.body if _assigns_all(node) for c in ast.walk(node)}
    for node in ast.walk(source.tree):
        if isinstance(node, _Function):
            passed.update(id(c) for c in ast.walk(node) if isinstance(c, ast.Constant) and c.value == node.name)
    found = []
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in hook_names
            and id(node) not in source.docstring_constants
            and id(node) not in passed
        ):
            message = f"names the hook {node.value!r} as a string; take it from fulmen.engine.hooks"
            found.append(Finding(source.module, node.lineno, node.value, message))
    return found


def _assigns_all(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(getattr(t, "id", "") == "__all__" for t in targets)


# --------------------------------------------------------------------------------------------------------------- sizes
def long_files(source: Source, limit: int = MAX_CODE_LINES) -> list[Finding]:
    """Files with more code lines than the limit."""
    if source.code_lines <= limit:
        return []
    message = f"has {source.code_lines} code lines; {limit} are allowed"
    return [Finding(source.module, 1, source.module, message)]


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, _Function):
            yield f"{prefix}{child.name}", child
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def long_functions(source: Source, limit: int = MAX_FUNCTION_LINES) -> list[Finding]:
    """Functions whose body, without its docstring, is longer than the limit."""
    found = []
    for name, function in _functions(source.tree):
        body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
        length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        if length > limit:
            message = f"{name} has {length} lines; {limit} are allowed"
            found.append(Finding(source.module, function.lineno, f"{source.module}.{name}", message))
    return found


def wide_constructors(source: Source, limit: int = MAX_CONSTRUCTOR_ARGUMENTS) -> list[Finding]:
    """Classes whose constructor (written or made by `dataclass`) takes more arguments than the limit."""
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        count = _constructor_arguments(node)
        if count > limit:
            message = f"the constructor of {node.name} takes {count} arguments; {limit} are allowed"
            found.append(Finding(source.module, node.lineno, f"{source.module}.{node.name}", message))
    return found


def _constructor_arguments(node: ast.ClassDef) -> int:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            a = statement.args
            return len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs) - 1
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return sum(
            isinstance(s, ast.AnnAssign)
            and "ClassVar" not in ast.unparse(s.annotation)
            and not (s.value is not None and "init=False" in ast.unparse(s.value))
            for s in node.body
        )
    return 0


# -------------------------------------------------------------------------------------------------------- suppressions
_SUPPRESSION = re.compile(r"#\s*(type:\s*ignore|noqa|ruff:\s*noqa|mypy:)")
_GOOD = re.compile(
    r"#\s*(?:type:\s*ignore\[[a-z][a-z\-, ]*\]|noqa:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)"  # with a code
    r"\s*(?:#|-|–|:|\()\s*\w.{3,}"  # and a reason
)


def suppressions(source: Source) -> list[tuple[int, str]]:
    """Line and text of every suppression of a linter or type checker."""
    return [(line, text) for line, text in source.comments if _SUPPRESSION.search(text)]


def bare_suppressions(source: Source) -> list[Finding]:
    """Suppressions without a code or without a reason."""
    return [
        Finding(source.module, line, text, f"{text!r} needs a code and a reason: # type: ignore[code]  # why")
        for line, text in suppressions(source)
        if not _GOOD.search(text)
    ]


def too_many_suppressions(sources: list[Source], per_1000: float = MAX_SUPPRESSIONS_PER_1000) -> str | None:
    """A message when there are more suppressions than allowed per 1,000 lines of source."""
    count = sum(len(suppressions(s)) for s in sources)
    lines = sum(s.text.count("\n") for s in sources)
    allowed = per_1000 * lines / 1000
    if count <= allowed:
        return None
    return f"{count} suppressions in {lines:,} lines; {allowed:.0f} are allowed"

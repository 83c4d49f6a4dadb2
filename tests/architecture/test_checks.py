"""Every architecture check finds what it is for in a small wrong sample, and nothing in a right one."""

from __future__ import annotations

import textwrap

import pytest

from tools.architecture import checks
from tools.architecture.exceptions import Exceptions
from tools.architecture.floors import House, edges_against_the_table, import_cycles
from tools.architecture.source import Finding, Source


def source(text: str, module: str = "fulmen.room.module", *, is_package: bool = False) -> Source:
    return Source(module, textwrap.dedent(text), is_package=is_package)


# ------------------------------------------------------------------------------------------------------------- imports
LAYERS = ["(fulmen.compat)", "fulmen.high", "fulmen.left | fulmen.right", "fulmen.engine.low", "fulmen.errors"]


def house() -> House:
    return House.from_layers(LAYERS)


def package(**texts: str) -> list[Source]:
    """Modules by name with dots written as double underscores; `errors` and the façade are always there."""
    names = {"fulmen": "", "fulmen.errors": ""} | {f"fulmen.{k.replace('__', '.')}": v for k, v in texts.items()}
    return [source(text, name, is_package=name == "fulmen") for name, text in names.items()]


@pytest.mark.parametrize(
    "texts",
    [
        {"engine__low__a": "from fulmen.high.b import x", "high__b": ""},
        {"engine__low__a": "def f():\n    from fulmen.high.b import x", "high__b": ""},
        {"engine__low__a": "from fulmen.high import b", "high__b": ""},
        {"engine__low__a": "from ...high import b", "high__b": ""},
        {"engine__low__a": "import importlib\nimportlib.import_module('fulmen.high.b')", "high__b": ""},
        {"left__a": "import fulmen.right.b", "right__b": ""},
        {"right__a": "import fulmen.left.b", "left__b": ""},
        {"high__a": "import fulmen"},
        {"high__a": "from fulmen import anything"},
        {"nowhere__a": ""},
        {"high__a": "if TYPE_CHECKING:\n    pass\nelse:\n    import fulmen.compat.x", "compat__x": ""},
    ],
)
def test_edges_against_the_table_are_found(texts: dict[str, str]) -> None:
    assert len(edges_against_the_table(package(**texts), house())) == 1


@pytest.mark.parametrize(
    "texts",
    [
        {"high__a": "from fulmen.engine.low.b import x\nimport fulmen.left.c", "engine__low__b": "", "left__c": ""},
        {"high__a": "from .b import x", "high__b": ""},
        {"high__a": "from fulmen import errors"},
        {"compat__a": "import fulmen"},
        {
            "engine__low__a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fulmen.high.b",
            "high__b": "",
        },
        {"engine__low__a": "import torch"},
    ],
)
def test_edges_of_the_table_pass(texts: dict[str, str]) -> None:
    assert edges_against_the_table(package(**texts), house()) == []


def test_a_shell_imports_nothing() -> None:
    sources = [*package(engine__low="x = 1"), source("from fulmen.engine import low", "fulmen.engine", is_package=True)]
    assert len(edges_against_the_table(sources, house())) == 1


def test_callback_base_class_stands_below_its_package() -> None:
    layers = ["fulmen.callbacks", "fulmen.engine.loops", "fulmen.core", "fulmen.data", "fulmen.errors"]
    base, uses = "callbacks__callback", "from fulmen.callbacks.callback import Callback"
    right = package(**{base: "from fulmen.core.x import y", "core__x": "", "engine__loops__fit": uses})
    assert edges_against_the_table(right, House.from_layers(layers)) == []
    low = package(**{base: "", "data__x": uses})
    assert len(edges_against_the_table(low, House.from_layers(layers))) == 1
    high = package(**{base: "from fulmen.engine.loops.fit import x", "engine__loops__fit": ""})
    assert len(edges_against_the_table(high, House.from_layers(layers))) == 1


def test_cycles_are_found_at_module_level_only() -> None:
    ring = package(a="import fulmen.b", b="from fulmen.c import x", c="from fulmen import a")
    # `fulmen` itself is no part of it: what a façade loads lazily is no import.
    assert import_cycles(ring) == [["fulmen.a", "fulmen.b", "fulmen.c"]]
    assert import_cycles(package(a="import fulmen.b", b="def f():\n    import fulmen.a")) == []
    assert import_cycles(package(a="import fulmen.b", b="class C:\n    import fulmen.a")) != []


# -------------------------------------------------------------------------------------------------- private attributes
@pytest.mark.parametrize(
    "text",
    [
        "trainer._state",
        "def f(self, trainer):\n    self.trainer._state = 1",
        "getattr(trainer, '_state')",
        "hasattr(trainer, '_state')",
        "import fulmen.x as x\nx._helper()",
        "from fulmen.x import _helper",
        "from .x import _helper",
        "class A:\n    def f(self, b):\n        self._x = b._x",
        "class A:\n    def f(self, other):\n        return other._y",
        "class A:\n    _x = 1\nA._x",
    ],
)
def test_private_attributes_are_found(text: str) -> None:
    assert len(checks.private_attributes(source(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def f(self):\n        self._x = super()._x + cls._x + type(self)._x",
        "class A:\n    _x = 1\n    def __eq__(self, other):\n        return self._x == other._x",
        "class A:\n    def f(self, other):\n        return other._x\n    def g(self):\n        self._x = 1",
        "class A:\n    _x = 1\n    def f(self, b: 'A'):\n        return b._x + A._x",
        "class A:\n    _x = 1\n    def f(self):\n        new = cls.__new__(cls)\n        new._x = 2",
        "x.__dict__, t._replace(a=1), e._missing_",
        "from torch import _utils",
        "getattr(x, name), getattr(self, '_x'), getattr(x, 'y')",
    ],
)
def test_private_attributes_of_oneself_pass(text: str) -> None:
    assert checks.private_attributes(source(text)) == []


# ---------------------------------------------------------------------------------------------------- strategies, hooks
@pytest.mark.parametrize("text", ["isinstance(s, DDPStrategy)", "isinstance(s, (A, strategies.FSDPStrategy))"])
def test_strategy_tests_are_found(text: str) -> None:
    assert len(checks.strategy_tests(source(text))) == 1
    assert len(checks.strategy_tests(source("issubclass(s, Strategy)"))) == 1
    assert checks.strategy_tests(source(text, "fulmen.strategies.ddp")) == []
    assert checks.strategy_tests(source(text, "fulmen.engine.runtime.plan")) == []
    assert checks.strategy_tests(source("isinstance(s, str)")) == []


def test_hook_strings_are_found() -> None:
    hooks = {"on_fit_start"}
    assert len(checks.hook_strings(source("def f():\n    call('on_fit_start')"), hooks)) == 1
    assert len(checks.hook_strings(source("call('on_fit_start')"), hooks)) == 1
    right = '''
    """on_fit_start"""
    __all__ = ["on_fit_start"]
    def on_fit_start(self):
        "on_fit_start"
        missing("on_fit_start")
        raise TypeError("use on_fit_start instead")
    '''
    assert checks.hook_strings(source(right), hooks) == []
    for module in ("fulmen.engine.hooks.spec", "fulmen.cli.main", "fulmen.callbacks.lambda_function"):
        assert checks.hook_strings(source("call('on_fit_start')", module), hooks) == []


# --------------------------------------------------------------------------------------------------------------- sizes
def test_code_lines_leave_out_docstrings_comments_and_blanks() -> None:
    text = '''
    """Docstring

    of three lines."""

    # a comment
    x = 1  # with a comment
    y = """a string
    of two lines"""
    '''
    assert source(text).code_lines == 3
    assert checks.long_files(source(text), limit=3) == []
    assert len(checks.long_files(source(text), limit=2)) == 1


def test_long_functions_are_found() -> None:
    text = 'class A:\n    def f(self):\n        """Doc\n\n        string."""\n' + "        x = 1\n" * 4
    assert checks.long_functions(source(text), limit=4) == []
    (finding,) = checks.long_functions(source(text), limit=3)
    assert finding.subject == "fulmen.room.module.A.f"
    nested = "def f():\n    def g():\n" + "        x = 1\n" * 4 + "    return g\n"
    assert [f.subject for f in checks.long_functions(source(nested), limit=5)] == ["fulmen.room.module.f"]


def test_wide_constructors_are_found() -> None:
    written = "class A:\n    def __init__(self, a, b, /, c, *args, d, **kwargs): ..."
    fields = "".join(f"    {name}: int = 0\n" for name in "abcd")
    made = f"@dataclass(frozen=True)\nclass A:\n{fields}    e: ClassVar[int] = 0"
    for text in (written, made):
        assert checks.wide_constructors(source(text), limit=4) == []
        assert len(checks.wide_constructors(source(text), limit=3)) == 1
    assert checks.wide_constructors(source("class A:\n    a: int\n    b: int"), limit=1) == []


# -------------------------------------------------------------------------------------------------------- suppressions
@pytest.mark.parametrize(
    ("comment", "good"),
    [
        ("# type: ignore", False),
        ("# type: ignore[arg-type]", False),
        ("# type: ignore[arg-type]  # torch types it so", True),
        ("# noqa", False),
        ("# noqa: F401", False),
        ("# noqa: F401, B028  # makes the name public", True),
        ("# noqa: F401 (makes the name public)", True),
        ("# ruff: noqa", False),
        ("# mypy: ignore-errors", False),
    ],
)
def test_suppressions_need_code_and_reason(comment: str, good: bool) -> None:
    assert (checks.bare_suppressions(source(f"x = 1  {comment}")) == []) is good


def test_suppressions_are_counted() -> None:
    assert checks.too_many_suppressions([source("x = 1\n" * 1000 + "y = 1  # noqa\n" * 4)]) is None
    assert checks.too_many_suppressions([source("x = 1\n" * 1000 + "y = 1  # noqa\n" * 5)]) is not None
    assert checks.suppressions(source("x = '# noqa'")) == []


# ---------------------------------------------------------------------------------------------------------- exceptions
def test_exceptions_cover_what_they_name_and_tell_when_unused() -> None:
    text = '[[private]]\nwhere = "fulmen.a.*"\nsubject = "x[0]._y"\nreason = "a reason in words"\n'
    exceptions = Exceptions.parse(text)
    assert exceptions.unused("private") != []
    covered = Finding("fulmen.a.b", 1, "x[0]._y", "")
    others = [Finding("fulmen.b", 1, "x[0]._y", ""), Finding("fulmen.a.b", 1, "x0._y", "")]
    assert exceptions.apply("private", [covered, *others]) == others
    assert exceptions.unused("private") == []
    assert exceptions.apply("file", [covered]) == [covered]


@pytest.mark.parametrize(
    "text",
    [
        '[[unknown]]\nwhere = "a"\nsubject = "b"\nreason = "a reason in words"',
        '[[private]]\nwhere = "a"\nsubject = "b"\nreason = "because"',
        '[[private]]\nwhere = "a"\nsubject = "b"',
    ],
)
def test_exceptions_without_a_reason_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"needs exactly|Unknown rules"):
        Exceptions.parse(text)

"""Writes the alias files `src/fulmen/compat/path/**` and the table `src/fulmen/compat/homes.py`.

An alias module stands for one public module of Lightning and leads to what Fulmen has of it today. What Lightning
has, and where, is in `tools/lightning_names.json` (names and modules only, read from the installed release by
``--names``); what Fulmen has is read from Fulmen. Names that mean something else here, and names that several modules
of Fulmen define, are settled in the tables below.

    python -m tools.make_aliases           write the files
    python -m tools.make_aliases --check   write nothing; exit 1 if the files are not what would be written
    python -m tools.make_aliases --names   read the names of the installed Lightning again
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import shutil
import sys
import textwrap
import types
import typing
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAMES = ROOT / "tools" / "lightning_names.json"
COMPAT = ROOT / "src" / "fulmen" / "compat"
VERSION = "2.6.6"
LINE = 120

# How each installable package of the family spells Lightning's modules.
SPELLINGS = {"lightning": "lightning", "lightning.pytorch": "pytorch_lightning", "lightning.fabric": "lightning_fabric"}
# Which modules the tool looks into for the names themselves; the command line has functions called `main`.
NOT_SEARCHED = ("fulmen.compat", "fulmen.cli", "fulmen.pytorch", "fulmen.plugins")
# Lightning's internals, and Fabric's own classes of names that the Trainer's side also has: no alias.
NO_ALIAS = (
    "lightning.fabric.loggers",
    "lightning.fabric.strategies",
    "lightning.fabric.cli",
    "lightning.fabric.connector",
    "lightning.pytorch.loops",
    "lightning.pytorch.trainer.connectors",
    "lightning.pytorch.trainer.call",
    "lightning.pytorch.utilities.migration",
    "lightning.pytorch.utilities.upgrade_checkpoint",
)
# Where several modules of Fulmen define a name, or define it under another one.
SETTLED = {
    ("lightning.pytorch.callbacks.model_summary", "ModelSummary"): "fulmen.callbacks.model_summary",
    ("lightning.pytorch.utilities.model_summary.model_summary", "ModelSummary"): "fulmen.export.summary",
    ("lightning.pytorch.core.saving", "save_hparams_to_yaml"): "fulmen.core.hparams_files",
}
# Modules whose constants and type names (no classes or functions) have a counterpart.
CONSTANTS = {
    "lightning.fabric.utilities.types": "fulmen.utilities.types",
    "lightning.pytorch.utilities.types": "fulmen.utilities.types",
    "lightning.fabric.utilities.rank_zero": "fulmen.utilities.rank_zero",
    "lightning.pytorch.utilities.rank_zero": "fulmen.utilities.rank_zero",
}
# Those of them that other modules have too; of classes and functions, what is an object here.
SHARED_CONSTANTS = {
    "STEP_OUTPUT": "fulmen.utilities.types",
    "StrategyRegistry": "fulmen.strategies.registry",
    "AcceleratorRegistry": "fulmen.accelerators.registry",
    "ACCELERATOR_REGISTRY": "fulmen.accelerators.registry",
    "rank_zero_only": "fulmen.utilities.rank_zero",
}
# Lightning's registries are objects under the names of classes.
CONSTANT_HERE = {"StrategyRegistry": "STRATEGY_REGISTRY", "AcceleratorRegistry": "ACCELERATOR_REGISTRY"}
# Lightning's deprecation category has another name here.
RENAMED = {
    ("lightning.fabric.utilities.rank_zero", "LightningDeprecationWarning"): (
        "fulmen.utilities.rank_zero",
        "FulmenDeprecationWarning",
    ),
}
# darts' safe loading admits this class by exactly this name; Lightning has two classes of it, Fulmen one.
HOME = {"AttributeDict": "lightning_fabric.utilities.data"}

Names = dict[str, dict[str, str]]
Target = tuple[str, str]


# ------------------------------------------------------------------------------------------------- what Lightning has


def read_lightning() -> Names:
    """Module → name → module that defines it (empty for constants), of the installed Lightning."""
    found: Names = {}
    warnings.simplefilter("ignore")
    roots = [importlib.import_module(name) for name in SPELLINGS]
    walked = [m.name for root in roots[1:] for m in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")]
    for name in [*SPELLINGS, *walked]:
        if "._" in name.replace(".__", ""):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:  # wants a package that is not installed
            continue
        found[name] = _names_of(module)
        if hasattr(module, "__path__"):
            found[name]["__path__"] = ""
    return found


def _names_of(module: types.ModuleType) -> dict[str, str]:
    names = {}
    for name, value in vars(module).items():
        if isinstance(value, types.ModuleType) or name.startswith("__"):
            continue
        home = getattr(value, "__module__", None) if inspect.isclass(value) or inspect.isfunction(value) else ""
        borrowed = getattr(typing, name, None) is value
        constant = not home and not borrowed and (module.__name__ in CONSTANTS or name in SHARED_CONSTANTS)
        ours = isinstance(home, str) and home.startswith(("lightning.", "lightning_utilities."))
        # Private ones only count as what the module defines; they get no alias.
        if (ours and (not name.startswith("_") or home == module.__name__)) or constant:
            names[name] = home or ""
    return names


# ---------------------------------------------------------------------------------------------------- what Fulmen has


def read_fulmen() -> dict[str, list[str]]:
    """Name → modules of Fulmen that define a class or function of that name."""
    import fulmen

    index: dict[str, list[str]] = defaultdict(list)
    for info in pkgutil.walk_packages(fulmen.__path__, "fulmen."):
        if info.name.startswith(NOT_SEARCHED) or info.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            own = getattr(value, "__module__", None) == info.name
            if own and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
                index[name].append(info.name)
    return index


class Book:
    """Answers where Fulmen has a name of Lightning's."""

    def __init__(self, names: Names, index: dict[str, list[str]]) -> None:
        self.names = names
        self.index = index

    def target(self, module: str, name: str, home: str) -> Target | None:
        """Fulmen's module and name for what Lightning's `module` calls `name`, defined in `home`."""
        if not home or name in SHARED_CONSTANTS:
            room = SHARED_CONSTANTS.get(name) or CONSTANTS[module]
            name = CONSTANT_HERE.get(name, name)
            return (room, name) if hasattr(importlib.import_module(room), name) else None
        if name.startswith("_"):
            return None
        if (home, name) in RENAMED:
            return RENAMED[home, name]
        # A class of Fabric's that the Trainer's side has another one of; functions are the same for both.
        if home.startswith(NO_ALIAS) and name[0].isupper():
            return None
        if (home, name) in SETTLED:
            return SETTLED[home, name], name
        modules = self.index.get(name, [])
        if len(modules) > 1:
            raise SystemExit(f"{name} is defined in {modules}: say in SETTLED which of them {home}.{name} is")
        return (modules[0], name) if modules else None

    def tree(self) -> dict[str, dict[str, Target]]:
        """Lightning's module → its names that Fulmen has, for all modules that get a file."""
        tree: dict[str, dict[str, Target]] = {}
        for module, names in sorted(self.names.items()):
            if module.startswith(NO_ALIAS):
                continue
            found = {n: self.target(module, n, home) for n, home in sorted(names.items()) if n != "__path__"}
            tree[module] = {name: target for name, target in found.items() if target is not None}
        full = {module for module, names in tree.items() if names and self._has_its_own(module, names)}
        return {m: n for m, n in tree.items() if m in SPELLINGS or any(f == m or f.startswith(f"{m}.") for f in full)}

    def _has_its_own(self, module: str, found: dict[str, Target]) -> bool:
        """Whether a module offers something of what Lightning defines there, or defines nothing there itself."""
        names = self.names[module].items()
        own = {name for name, home in names if name != "__path__" and home in ("", module)}
        return not own or bool(own & found.keys())

    def homes(self, tree: dict[str, dict[str, Target]]) -> dict[str, dict[str, str]]:
        """Fulmen's module → class → the module that Lightning's class of that name says it is from."""
        homes: dict[str, dict[str, str]] = defaultdict(dict)
        # The Trainer's side comes last and so goes before Fabric's.
        for module in sorted(tree, key=lambda m: (m.startswith("lightning.pytorch"), m)):
            for name, (room, attribute) in tree[module].items():
                home = self.names[module][name]
                if name != attribute or home not in tree or not inspect.isclass(_get(room, attribute)):
                    continue
                homes[room][name] = HOME.get(name, home)
        return {room: dict(sorted(classes.items())) for room, classes in sorted(homes.items())}


def _get(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


# --------------------------------------------------------------------------------------------------------- the files


def spelled(module: str, package: str) -> str:
    """Lightning's module as the given installable package spells it (`pytorch_lightning.callbacks`)."""
    return module if package == "lightning" else SPELLINGS[package] + module.removeprefix(package)


def _listing(head: str, items: list[str], tail: str, indent: str = "") -> str:
    line = f"{indent}{head}{', '.join(items)}{tail}"
    if len(line) <= LINE:
        return line
    return f"{indent}{head}\n" + "".join(f"{indent}    {item},\n" for item in items) + f"{indent}{tail}"


def _all(names: list[str]) -> str:
    return _listing("__all__ = [", [f'"{n}"' for n in names], "]")


def leaf(module: str, names: dict[str, Target]) -> str:
    """Text of an alias module that has no modules below it."""
    by_room: dict[str, list[str]] = defaultdict(list)
    for name, (room, attribute) in names.items():
        by_room[room].append(name if name == attribute else f"{attribute} as {name}")
    imports = {"fulmen.compat.modules": ["absent"], **by_room}
    lines = []
    for room in sorted(imports):
        items = sorted(imports[room], key=_isort)
        one = f"from {room} import {', '.join(items)}"
        lines.append(one if len(one) <= LINE else _listing(f"from {room} import (", items, ")"))
    head = f'"""{module}, as far as Fulmen has it. Written by tools/make_aliases.py."""\n'
    return "\n".join([head, *lines, "", _all(sorted(names)), "__getattr__ = absent(__name__, __all__)", ""])


def _isort(name: str) -> tuple[int, str]:
    bare = name.split(" ")[0]
    kind = 0 if bare.isupper() and len(bare) > 1 else 1 if bare.lstrip("_")[:1].isupper() else 2
    return kind, bare


def package(module: str, names: dict[str, Target], modules: list[str], *, root: bool) -> str:
    """Text of the `__init__` of an alias package: names and modules are looked up when they are asked for."""
    head = f'"""{module}, as far as Fulmen has it. Written by tools/make_aliases.py."""\n'
    lines = [head]
    if root:
        # Reached through PYTHONPATH alone, in a spawned process say, the aliases are not switched on yet.
        lines += ["from fulmen.compat.install import ensure_installed", "from fulmen.compat.modules import lazy", ""]
        lines += ["ensure_installed()", f'__version__ = "{VERSION}"']
    else:
        lines += ["from fulmen.compat.modules import lazy", ""]
    lines.append(_all([*sorted(names), *(["__version__"] if root else [])]))
    by_room: dict[str, list[str]] = defaultdict(list)
    for name, (room, attribute) in sorted(names.items()):
        by_room[room].append(name if name == attribute else f"{attribute}@{name}")
    lines.append("_NAMES = {")
    for room, found in sorted(by_room.items()):
        lines.append(_words(f'    "{room}": ', found) + ",")
    lines += ["}", _words("_MODULES = ", modules), "__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)", ""]
    return "\n".join(lines)


def _words(head: str, words: list[str]) -> str:
    """One string of words, broken over several lines where it is long."""
    text = " ".join(words)
    if len(head) + len(text) < LINE - 4:
        return f'{head}"{text}"'
    indent = " " * (len(head) - len(head.lstrip()))
    parts = textwrap.wrap(text, LINE - 12, break_long_words=False, break_on_hyphens=False)
    body = "".join(f'{indent}    "{part}{"" if part is parts[-1] else " "}"\n' for part in parts)
    return f"{head}(\n{body}{indent})"


def table_of_homes(homes: dict[str, dict[str, str]]) -> str:
    """Text of `homes.py`."""
    lines = [
        '"""Which Lightning module each public class reports as its own while aliases are on.',
        "",
        "Written by tools/make_aliases.py: Fulmen's module → class → Lightning's module.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "HOMES: dict[str, dict[str, str]] = {",
    ]
    for room, classes in homes.items():
        lines.append(f'    "{room}": {{')
        lines += [f'        "{name}": "{home}",' for name, home in classes.items()]
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Not Lightning itself: Fulmen under its names, switched on by fulmen.compat
"""


def files() -> dict[Path, str]:
    """All generated files, with their text."""
    book = Book(json.loads(NAMES.read_text("utf-8")), read_fulmen())
    tree = book.tree()
    out = {COMPAT / "homes.py": table_of_homes(book.homes(tree))}
    path = COMPAT / "path"
    for family, spelling in SPELLINGS.items():
        for module, names in tree.items():
            if module != family and not module.startswith(f"{family}."):
                continue
            name = spelled(module, family)
            below = sorted(m.rpartition(".")[2] for m in tree if m.rpartition(".")[0] == module)
            where = path.joinpath(*name.split("."))
            root = name in SPELLINGS.values() or module in SPELLINGS
            if "__path__" in book.names[module]:
                out[where / "__init__.py"] = package(name, names, below, root=root)
            else:
                out[where.with_suffix(".py")] = leaf(name, names)
        info = path / f"{spelling}-{VERSION}.dist-info"
        out[info / "METADATA"] = METADATA.format(name=spelling.replace("_", "-"), version=VERSION)
        out[info / "top_level.txt"] = f"{spelling}\n"
        out[info / "INSTALLER"] = "fulmen\n"
    return out


def stale(wanted: dict[Path, str]) -> list[str]:
    """What differs between the files and what would be written."""
    there = {p for p in (COMPAT / "path").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    lines = [f"{p.relative_to(ROOT)}: would not be written" for p in sorted(there - wanted.keys())]
    for path, text in sorted(wanted.items()):
        if not path.exists() or path.read_text("utf-8") != text:
            lines.append(f"{path.relative_to(ROOT)}: {'differs' if path.exists() else 'is missing'}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with --check return 1 and the differences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    parser.add_argument("--names", action="store_true", help="read the names of the installed Lightning again")
    options = parser.parse_args(arguments)
    if options.names:
        NAMES.write_text(json.dumps(read_lightning(), indent=0, sort_keys=True) + "\n", "utf-8")
        return 0
    wanted = files()
    differences = stale(wanted)
    if options.check:
        print("\n".join(differences), file=sys.stderr)
        return int(bool(differences))
    for path in (COMPAT / "path").rglob("*"):
        if path.is_file() and path not in wanted and "__pycache__" not in path.parts:
            path.unlink()
    for folder in sorted((p for p in (COMPAT / "path").rglob("*") if p.is_dir()), reverse=True):
        if not any(folder in p.parents for p in wanted):
            shutil.rmtree(folder)  # with the caches of what was there
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    print(f"{len(wanted)} files, {len(differences)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

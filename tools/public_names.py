"""The public names: what `__all__` of each public package and module promises.

Public is what stands outside fulmen/engine under a path without a leading underscore. A package without `__all__`
promises nothing of its own. Run it to write tests/architecture/public_names.txt; a test compares.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "architecture" / "public_names.txt"
# The rooms of the engine, and the alias files, which are a copy of Lightning's paths (held by parity tests).
NOT_PUBLIC = ("fulmen.engine", "fulmen.compat.path")


def public_modules(package_dir: Path, package: str = "fulmen") -> list[str]:
    """Names of all public modules below a folder."""
    names = []
    for path in sorted(package_dir.rglob("*.py")):
        parts = path.relative_to(package_dir).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        name = ".".join([package, *parts])
        private = any(part.startswith("_") for part in parts)
        if not private and not any(name == n or name.startswith(n + ".") for n in NOT_PUBLIC):
            names.append(name)
    return names


def collect(modules: list[str]) -> tuple[list[str], list[str]]:
    """Public names, and those that are promised but not there."""
    names, broken = [], []
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            full = f"{module_name}.{name}"
            names.append(full)
            try:
                getattr(module, name)
            except AttributeError:
                broken.append(full)
    return sorted(names), broken


def main(arguments: list[str] | None = None) -> int:
    """Write the list, or with --check return 1 and the difference when it is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the list is stale")
    options = parser.parse_args(arguments)
    names, broken = collect(public_modules(ROOT / "src" / "fulmen"))
    for name in broken:
        print(f"{name} is in __all__, but not there", file=sys.stderr)
    if not options.check:
        LIST.write_text("\n".join(names) + "\n", "utf-8")
        print(f"{len(names)} public names")
        return int(bool(broken))
    listed = set(LIST.read_text("utf-8").split()) if LIST.exists() else set()
    for name in sorted(set(names) ^ listed):
        print(f"{'+' if name in names else '-'} {name}", file=sys.stderr)
    return int(bool(broken) or set(names) != listed)


if __name__ == "__main__":
    sys.exit(main())

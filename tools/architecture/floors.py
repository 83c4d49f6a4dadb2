"""The house: which room stands on which floor, read from the import contract in pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.architecture.source import Finding, Source

#: Modules that do not stand where their package stands: module -> room directly below it, in the contract's order.
SPECIAL = {
    "fulmen.callbacks.callback": "fulmen.core",
    "fulmen.fabric.strategies": "fulmen.plugins",
    "fulmen.fabric.plugins": "fulmen.plugins",
    "fulmen.fabric.utilities": "fulmen.plugins",
}
#: The lazy façade stands just below this room.
FACADE_BELOW = "fulmen.compat"
#: Packages that hold rooms and nothing else.
SHELLS = {"fulmen.engine"}


@dataclass(frozen=True)
class House:
    """Rank of every room; higher ranks may import lower ones. `siblings` share a rank and may not import each other."""

    rank: dict[str, float]

    @classmethod
    def from_layers(cls, layers: list[str], *, root: str = "fulmen") -> House:
        """Build from import-linter's list of layers, highest first."""
        rank: dict[str, float] = {}
        for index, layer in enumerate(reversed(layers)):
            for name in layer.split("|"):
                rank[name.strip().strip("()").strip()] = float(index)
        for module, below in SPECIAL.items():
            if below in rank:
                rank[module] = rank[below] + 0.5
        rank[root] = rank[FACADE_BELOW] - 0.5 if FACADE_BELOW in rank else float(len(layers))
        return cls(rank)

    @classmethod
    def from_pyproject(cls, path: Path) -> House:
        """Read the contract named `house`."""
        contracts = tomllib.loads(path.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
        return cls.from_layers(next(c["layers"] for c in contracts if c["id"] == "house"))

    def room(self, module: str) -> str | None:
        """The room a module stands in: its longest prefix that the table names."""
        parts = module.split(".")
        for end in range(len(parts), 1, -1):
            if (name := ".".join(parts[:end])) in self.rank:
                return name
        return module if module in self.rank else None


def resolve(source: Source, modules: set[str]) -> list[tuple[str, int, bool]]:
    """Modules of the package that a source imports: (module, line, at module level)."""
    root = source.module.split(".")[0]
    edges = []
    for item in source.imports:
        full = f"{item.module}.{item.name}" if item.name else item.module
        target = full if full in modules else item.module
        if target.split(".")[0] == root and target != source.module:
            edges.append((target, item.line, item.at_module_level))
    return edges


def edges_against_the_table(sources: list[Source], house: House) -> list[Finding]:
    """Imports that go up, sideways between independent rooms, or come from a module without a room."""
    modules = {s.module for s in sources}
    found = []
    for source in sources:
        room = house.room(source.module)
        if source.module in SHELLS:
            found += [
                Finding(source.module, line, target, f"{source.module} only holds rooms and imports nothing")
                for target, line, _ in resolve(source, modules)
            ]
            continue
        if room is None:
            found.append(Finding(source.module, 1, source.module, f"{source.module} stands in no room of the table"))
            continue
        for target, line, _ in resolve(source, modules):
            other = house.room(target)
            if other is None or other == room:
                continue
            if house.rank[other] >= house.rank[room]:
                found.append(
                    Finding(source.module, line, f"{source.module} -> {target}", f"{room} may not import {target}")
                )
    return found


def import_cycles(sources: list[Source]) -> list[list[str]]:
    """Groups of modules that import each other at module level (strongly connected components)."""
    modules = {s.module for s in sources}
    graph = {s.module: {t for t, _, top in resolve(s, modules) if top and t in modules} for s in sources}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == node:
                    break
            if len(component) > 1:
                cycles.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return cycles

"""While aliases are on, public classes say that they are from the Lightning module of their name.

Pickles then name `lightning.pytorch.callbacks.early_stopping.EarlyStopping`, as dotted paths in configuration files
and the allow-lists of other libraries' safe loading expect. Classes of modules that are imported later are labelled
when they come.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class Labels:
    """Gives classes the module names of a table, and their own back.

    Args:
        homes: Module → class → the module that the class is to report.
    """

    def __init__(self, homes: Mapping[str, Mapping[str, str]]) -> None:
        self._homes = homes
        self._former: list[tuple[type, str, dict[str, Any]]] = []

    def install(self) -> None:
        """Label what is imported already, and watch imports for the rest."""
        sys.meta_path.insert(0, self)
        for name in self._homes.keys() & sys.modules.keys():
            self.label(sys.modules[name])

    def remove(self) -> None:
        """Stop watching, and give all classes their own module names back."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        while self._former:
            kind, module, annotations = self._former.pop()
            kind.__module__ = module
            if annotations:
                kind.__annotations__ = annotations

    def label(self, module: ModuleType) -> None:
        """Label the classes of one module."""
        for name, home in self._homes[module.__name__].items():
            kind = vars(module).get(name)
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            annotations = vars(kind).get("__annotations__", {})
            self._former.append((kind, module.__name__, annotations))
            if annotations:
                kind.__annotations__ = _resolved(annotations, module, kind)
            kind.__module__ = home

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find modules of the table as Python itself does, and label their classes once they have run."""
        if name not in self._homes:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_label(module: ModuleType) -> None:
            run(module)
            self.label(module)

        # On the loader itself: resources, source lines and the rest must keep working.
        spec.loader.exec_module = run_and_label  # type: ignore[method-assign]  # one loader per module, made just now
        return spec


def _resolved(annotations: Mapping[str, Any], module: ModuleType, kind: type) -> dict[str, Any]:
    """Annotations as objects: `typing.get_type_hints` would look their names up in the reported module."""
    found = dict(annotations)
    for name, value in annotations.items():
        if isinstance(value, str):
            try:
                found[name] = eval(value, vars(module), dict(vars(kind)))
            except (NameError, AttributeError, TypeError, SyntaxError):  # for type checkers only
                continue
    return found

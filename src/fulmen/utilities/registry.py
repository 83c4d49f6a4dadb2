"""Names for classes and factories, extended by users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """What stands under a name."""

    factory: Callable[..., Any]
    description: str = ""
    init_params: dict[str, Any] = field(default_factory=dict)


class Registry:
    """A table from names to classes or factories with the arguments to call them with.

    Args:
        kind: What is registered, for messages: ``"strategy"`` or ``"accelerator"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entries: dict[str, RegistryEntry] = {}

    def register(
        self,
        name: str,
        factory: Callable[..., Any] | None = None,
        description: str = "",
        override: bool = False,
        **init_params: Any,
    ) -> Any:
        """Register a class or factory; without `factory` it is a decorator.

        Args:
            name: The name; upper and lower case are the same.
            factory: Called with `init_params` to make the object.
            description: One line about it.
            override: Whether an entry of that name may be replaced.
            **init_params: Arguments for the factory.

        Raises:
            ArgumentTypeError: The name is not a string.
            ArgumentValueError: The name is taken.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError(f"register({name!r}, ...): the name of a {self.kind} is a string.")
        key = name.lower()
        if key in self.entries and not override:
            raise ArgumentValueError(f"{name!r} is already a registered {self.kind}; pass override=True to replace it.")

        def add(factory: Callable[..., Any]) -> Callable[..., Any]:
            self.entries[key] = RegistryEntry(factory, description, init_params)
            return factory

        return add if factory is None else add(factory)

    def get(self, name: str, **params: Any) -> Any:
        """Return the object of a name, made with its registered arguments and these.

        Raises:
            ArgumentValueError: There is no such name.
        """
        entry = self.entry(name)
        return entry.factory(**{**entry.init_params, **params})

    def entry(self, name: str) -> RegistryEntry:
        """Return what stands under a name."""
        found = self.entries.get(name.lower())
        if found is None:
            raise ArgumentValueError(
                f"{self.kind} {name!r} is not registered; there are {', '.join(sorted(self.entries))}."
                f"{suggest(name.lower(), self.entries)}"
            )
        return found

    def remove(self, name: str) -> None:
        """Take a name out."""
        self.entry(name)
        del self.entries[name.lower()]

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self.entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self.entries

    def __getitem__(self, name: str) -> dict[str, Any]:
        entry = self.entry(name)
        return {self.kind: entry.factory, "description": entry.description, "init_params": dict(entry.init_params)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.names())})"

"""Tools on a plain `nn.Module`: what it consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulmen.export.summary import LayerSummary, ModelSummary, summarize

__all__ = ["LayerSummary", "ModelSummary", "summarize"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from fulmen.export import summary

        return getattr(summary, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fulmen.engine.storage import decode, encode, safe_types


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(safe_types, "_REGISTERED", {})
    yield


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make this process forget what makes it the writer of its files, as any other process would not know it."""

    def forget() -> None:
        monkeypatch.setattr(safe_types, "_KEY", os.urandom(32))
        monkeypatch.setattr(safe_types, "_WRITTEN", {})

    return forget


def through_torch(value: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.fixture
def round_trip() -> Callable[..., Any]:
    def run(value: Any, **kwargs: Any) -> Any:
        return decode(through_torch(encode({"x": value})), **kwargs)["x"]

    return run

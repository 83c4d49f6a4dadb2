"""Where metrics, hyperparameters and graphs of a run go; every class is imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulmen.loggers.csv_logs import CSVLogger
    from fulmen.loggers.logger import DummyLogger, Logger
    from fulmen.loggers.record import RunRecord, read_record
    from fulmen.loggers.tensorboard import TensorBoardLogger

_HOME = {
    "CSVLogger": "csv_logs",
    "DummyLogger": "logger",
    "Logger": "logger",
    "RunRecord": "record",
    "TensorBoardLogger": "tensorboard",
    "read_record": "record",
}

__all__ = ["CSVLogger", "DummyLogger", "Logger", "RunRecord", "TensorBoardLogger", "read_record"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

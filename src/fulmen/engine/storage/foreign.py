"""Checkpoints that Fulmen did not write: names in them that stand for plain values and may be read as such.

torch's restricted unpickler looks names up in a table, so a name of another library can be given a builtin's meaning
without that library being installed.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import fractions
import uuid
from functools import cache
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

_LIGHTNING_DICTS = (
    "lightning.fabric.utilities.data.AttributeDict",
    "lightning_fabric.utilities.data.AttributeDict",
    "lightning.pytorch.utilities.parsing.AttributeDict",
    "pytorch_lightning.utilities.parsing.AttributeDict",
)
_VALUES: tuple[type, ...] = (
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    argparse.Namespace,
    frozenset,
    range,
    slice,
    PurePath,
    PurePosixPath,
    PureWindowsPath,
)


@cache
def stand_ins() -> dict[str, Any]:
    """Return what names of plain values in foreign checkpoints mean here; making any of them runs nothing."""
    table: dict[str, Any] = dict.fromkeys(_LIGHTNING_DICTS, dict)
    table.update({f"{kind.__module__}.{kind.__qualname__}": kind for kind in _VALUES})
    # A path of another operating system is a path of this one.
    table.update(dict.fromkeys(("pathlib.PosixPath", "pathlib.WindowsPath", "pathlib.Path"), Path))
    return table

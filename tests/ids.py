"""Names of test cases that are the same in every process."""

from __future__ import annotations

import re
from typing import Any


def plain(value: Any) -> str:
    """A value as text, without the address of an object."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))

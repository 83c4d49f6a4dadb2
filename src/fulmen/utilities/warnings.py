"""Switch off the hints about things that may be intended."""

from __future__ import annotations

import warnings

from fulmen.errors import PossibleUserWarning

__all__ = ["PossibleUserWarning", "disable_possible_user_warnings"]


def disable_possible_user_warnings(module: str = "") -> None:
    """Ignore warnings of the category `PossibleUserWarning`.

    Args:
        module: Only those that are given in modules whose name starts with this regular expression.
    """
    warnings.filterwarnings("ignore", module=module, category=PossibleUserWarning)

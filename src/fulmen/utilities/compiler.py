"""What `torch.compile` has to know of this framework; nothing here imports the compiler."""

from __future__ import annotations

import sys
from typing import Any

# Bookkeeping of a run: it counts, keeps values and calls user code. Traced, it would be replayed with the values of the
# batch that was traced; skipped, it runs as it is, after a break in the graph.
_SKIPPED = ("fulmen.engine", "fulmen.core.optimizer")


class _State:
    told: Any = None


def keep_compiler_out() -> None:
    """Tell torch's compiler, if it is there, not to trace the engine: `self.log` in a compiled step needs it."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None or _State.told is dynamo:
        return
    _State.told = dynamo
    skip = getattr(getattr(dynamo, "trace_rules", None), "add", None)
    if skip is not None:  # no promise of torch's
        for name in _SKIPPED:
            skip(name)


def compiled_with(module: Any) -> Any:
    """What a module was compiled with as a whole: a function that compiles functions in the same way, or `None`."""
    return getattr(module, "dynamo_ctx", None) if "torch._dynamo" in sys.modules else None

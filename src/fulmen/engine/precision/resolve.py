"""From the argument `precision` to an object."""

from __future__ import annotations

from typing import Any

import torch

from fulmen.engine.precision.base import Precision
from fulmen.engine.precision.mixed import MixedPrecision
from fulmen.engine.precision.true import DoublePrecision, HalfPrecision
from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest, warn
from fulmen.utilities.rank_zero import rank_zero_info

PRECISION_NAMES = ("32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true", "auto")
_ALIASES = {"32": "32-true", "64": "64-true"}
_OLD = {"16": "16-mixed", "bf16": "bf16-mixed"}
_REFUSED = {
    "32-mixed": "there is nothing to mix float32 with: use '32-true' (the default), '16-mixed' or 'bf16-mixed'",
    "64-mixed": "autocast has no float64: use '64-true'",
    "8-mixed": "there is no 8-bit autocast in torch: use 'bf16-mixed'",
    "fp16": "the spelling is '16-mixed' (autocast) or '16-true' (everything in float16)",
    "float16": "the spelling is '16-mixed' (autocast) or '16-true' (everything in float16)",
    "bfloat16": "the spelling is 'bf16-mixed' (autocast) or 'bf16-true' (everything in bfloat16)",
    "fp32": "the spelling is '32-true'",
    "float32": "the spelling is '32-true'",
    "float64": "the spelling is '64-true'",
    "o1": "NVIDIA apex is gone from torch: use '16-mixed'",
    "o2": "NVIDIA apex is gone from torch: use '16-mixed'",
}


def precision_name(value: Any) -> str:
    """Return the current spelling of a precision.

    Args:
        value: A name, one of the old spellings 16, 32, 64, ``"bf16"`` (16 and ``"bf16"`` with a warning), or `None`
            for ``"32-true"``.

    Raises:
        ArgumentTypeError: Neither a name nor a number.
        ArgumentValueError: A name or number that is not known.
    """
    if value is None:
        return "32-true"
    if isinstance(value, torch.dtype):
        raise ArgumentTypeError(f"precision={value!r}: give a name, one of {', '.join(PRECISION_NAMES)}.")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ArgumentTypeError(
            f"precision={value!r}: give a name ({', '.join(PRECISION_NAMES)}) or a precision object, not a"
            f" {type(value).__name__}."
        )
    name = str(value).strip().lower()
    if name in PRECISION_NAMES:
        return name
    if name in _ALIASES:
        return _ALIASES[name]
    if name in _OLD:
        new = _OLD[name]
        warn("W031", f"precision={value!r} is an old spelling; write {new!r}.", key=name, category=FutureWarning)
        return new
    if name in _REFUSED:
        raise ArgumentValueError(f"precision={value!r} is not possible: {_REFUSED[name]}.")
    raise ArgumentValueError(
        f"precision={value!r} is not known; give one of {', '.join(PRECISION_NAMES)}.{suggest(name, PRECISION_NAMES)}"
    )


def resolve_precision(value: Any, device_type: str, cpu_fp16_is_fp16: bool = True) -> Precision:
    """Return the precision object for a name.

    Args:
        value: A `Precision` (returned as it is), a name as in `precision_name`, or ``"auto"``: bfloat16 autocast on
            GPUs that have it, float16 autocast on older ones, full precision elsewhere.
        device_type: ``"cpu"``, ``"cuda"``, ``"mps"``.
        cpu_fp16_is_fp16: Whether ``"16-mixed"`` on the CPU is float16 with a loss scaler; if not it becomes
            ``"bf16-mixed"`` with a message, which is what Lightning does.

    Raises:
        ArgumentTypeError: Neither a name nor a precision object.
        ArgumentValueError: The name is not known, or the device cannot do it.
    """
    if isinstance(value, Precision):
        return value
    name = precision_name(value)
    if name == "auto":
        name = _automatic(device_type)
        rank_zero_info(f"precision='auto' is {name!r} here.")
    if name == "64-true" and device_type == "mps":
        raise ArgumentValueError(
            "precision='64-true': MPS devices have no float64; use '32-true' or accelerator='cpu'."
        )
    if name == "16-mixed" and device_type == "cpu" and not cpu_fp16_is_fp16:
        rank_zero_info("precision='16-mixed' on the CPU is taken as 'bf16-mixed', as Lightning does.")
        name = "bf16-mixed"
    if name in ("16-mixed", "bf16-mixed"):
        return MixedPrecision(name, device_type)
    if name in ("16-true", "bf16-true"):
        return HalfPrecision(name)
    if name == "64-true":
        return DoublePrecision()
    return Precision()


def _automatic(device_type: str) -> str:
    if device_type != "cuda":
        return "32-true"
    return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"

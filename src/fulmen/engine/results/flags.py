"""What `self.log` was asked to do with one key: its flags, checked once, and the errors that name key and place."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.hooks.spec import SPECS, HookSpec
from fulmen.errors import LoggingError, suggest

FLAG_NAMES = (
    "prog_bar",
    "logger",
    "on_step",
    "on_epoch",
    "reduce_fx",
    "enable_graph",
    "sync_dist",
    "sync_dist_group",
    "add_dataloader_idx",
    "metric_attribute",
    "rank_zero_only",
    "axis",
    "reduce_loaders",
)
_REDUCTIONS: dict[Any, str] = {torch.mean: "mean", torch.sum: "sum", torch.min: "min", torch.max: "max"}
_REDUCTIONS |= {sum: "sum", min: "min", max: "max", "avg": "mean"}
_REDUCTIONS |= {name: name for name in ("mean", "sum", "min", "max")}


class Flags:
    """The checked flags of one key; see `LightningModule.log`.

    Attributes:
        name: Key as given.
        hook: Name of the hook that logs it.
        given: The flags as the caller gave them, for comparison with later calls; `None` in a key from a checkpoint.
        place: `file:line` of the first call, for the error when a later call differs.
        suffix: What is appended to the key to tell loaders apart; empty if nothing is.
        over_loaders: The values of several loaders also make one, under the plain name.
    """

    __slots__ = (
        "add_dataloader_idx",
        "axis",
        "dataloader_idx",
        "given",
        "hook",
        "logger",
        "metric_attribute",
        "name",
        "on_epoch",
        "on_step",
        "over_loaders",
        "place",
        "prog_bar",
        "rank_zero_only",
        "reduce",
        "suffix",
        "sync_dist",
        "sync_dist_group",
    )

    name: str
    hook: str
    given: tuple[Any, ...] | None
    place: str
    prog_bar: bool
    logger: bool
    on_step: bool
    on_epoch: bool
    reduce: Any
    sync_dist: bool
    sync_dist_group: Any
    add_dataloader_idx: bool
    rank_zero_only: bool
    metric_attribute: str | None
    dataloader_idx: int | None
    suffix: str
    over_loaders: bool
    axis: str | None

    def __init__(self, **values: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, values[name])

    def state_dict(self) -> dict[str, Any]:
        """What tells how the values are reduced and shown; no functions, no process groups."""
        skipped = ("given", "sync_dist_group")
        state = {name: getattr(self, name) for name in self.__slots__ if name not in skipped}
        return {**state, "reduce": None if callable(self.reduce) else self.reduce}

    @classmethod
    def restored(cls, state: dict[str, Any], value: Tensor | None) -> Flags:
        """Flags from a checkpoint; the first call of `self.log` checks the key anew, as `given` is not known.

        Args:
            state: What `state_dict` returned.
            value: What a function of the user's made of the values, which stands until that call brings the function.
        """
        reduce = state["reduce"] if value is None else lambda _: value
        # Files of earlier versions do not have all of them.
        later = {"metric_attribute": None, "suffix": "", "over_loaders": False, "axis": None}
        return cls(**{**later, **state, "given": None, "sync_dist_group": None, "reduce": reduce})

    def key(self, *, on_step: bool) -> str:
        """The name under which loggers and the bar see the step's or the epoch's value."""
        fork = ("_step" if on_step else "_epoch") if self.on_step and self.on_epoch else ""
        return f"{self.name}{fork}{self.suffix}"

    def same_with_new_function(self, given: tuple[Any, ...]) -> bool:
        """Whether `given` differs only in a function that was made anew from the same source, as a lambda is."""
        if self.given is None or len(given) != len(self.given):
            return False
        at = FLAG_NAMES.index("reduce_fx")
        code = getattr(given[at], "__code__", None)
        if code is None or code is not getattr(self.given[at], "__code__", None):
            return False
        return given[:at] == self.given[:at] and given[at + 1 :] == self.given[at + 1 :]


def where_of(hook: HookSpec | None) -> str:
    """A hook's name for a message."""
    return hook.name if hook is not None else "no hook"


def not_allowed(name: Any, hook: HookSpec | None, why: str = "") -> LoggingError:
    """The error for a place in which nothing can be logged.

    Args:
        name: Key.
        hook: The hook that is running, if any.
        why: What there is to say of it.
    """
    allowed = ", ".join(spec.name for spec in SPECS.values() if spec.log is not None)
    return LoggingError(
        f"self.log({name!r}, ...) in `{where_of(hook)}`: logging is not allowed there{why}. It is in: {allowed}."
    )


def short(value: Any) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _caller() -> str:
    """`file:line` of the first frame outside of Fulmen."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("fulmen."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "unknown place"


def differs(name: str, flags: Flags, given: tuple[Any, ...]) -> str:
    """The error text for a key that is logged with other flags than before."""
    changes = [
        f"{flag}={new!r} (was {old!r})"
        for flag, new, old in zip(FLAG_NAMES, given, flags.given or given, strict=True)
        if new != old
    ]
    return (
        f"self.log({name!r}, ...) in `{flags.hook}` was called with other flags than before: {', '.join(changes)}. "
        f"First call: {flags.place}; this call: {_caller()}. Use the same flags, or another name."
    )


def check_flags(
    hook: HookSpec | None,
    name: str,
    given: tuple[Any, ...],
    dataloader_idx: int | None,
    loader_names: list[str] | None = None,
) -> Flags:
    """Check a key's flags at its first call.

    Args:
        hook: The hook that is running.
        name: Key.
        given: Flags in the order of `FLAG_NAMES`, as the caller gave them.
        dataloader_idx: Number of the loader if there are several.
        loader_names: Their names, if they have any.

    Raises:
        LoggingError: For a hook, a name or flags that are not allowed.
    """
    if not name or type(name) is not str:
        raise LoggingError(f"self.log({name!r}, ...): the name must be a non-empty string.")
    where = f"self.log({name!r}, ...) in `{where_of(hook)}`"
    if hook is None or hook.log is None:
        raise not_allowed(name, hook)
    values = dict(zip(FLAG_NAMES, given, strict=True))
    _check_kinds(where, name, values)
    rule = hook.log
    on_step = rule.default_step if values["on_step"] is None else values["on_step"]
    on_epoch = rule.default_epoch if values["on_epoch"] is None else values["on_epoch"]
    for flag, value, options in (("on_step", on_step, rule.step), ("on_epoch", on_epoch, rule.epoch)):
        if value not in options:
            raise LoggingError(f"{where}: {flag}={value} is not allowed in this hook, only {flag}={options[0]}.")
    if not on_step and not on_epoch:
        raise LoggingError(f"{where}: on_step=False and on_epoch=False log nothing; set one of them to True.")
    reduce, separate = reduction(where, values["reduce_fx"]), values["add_dataloader_idx"]
    if values["reduce_loaders"] is not None:
        _check_reduce_loaders(where, values, reduce, on_epoch=on_epoch)
    suffix = ""
    if dataloader_idx is not None and separate:
        suffix = f"/{loader_names[dataloader_idx]}" if loader_names else f"/dataloader_idx_{dataloader_idx}"
    return Flags(
        name=name,
        hook=hook.name,
        given=given,
        place=_caller(),
        prog_bar=values["prog_bar"],
        logger=True if values["logger"] is None else values["logger"],
        on_step=on_step,
        on_epoch=on_epoch,
        reduce=reduce,
        sync_dist=values["sync_dist"],
        sync_dist_group=values["sync_dist_group"],
        add_dataloader_idx=separate,
        rank_zero_only=values["rank_zero_only"],
        metric_attribute=values["metric_attribute"],
        dataloader_idx=dataloader_idx,
        suffix=suffix,
        over_loaders=dataloader_idx is not None and (not separate or values["reduce_loaders"] is not None),
        axis=values["axis"],
    )


def _check_kinds(where: str, name: str, values: dict[str, Any]) -> None:
    """Raise for flags that are of a wrong kind."""
    for flag in ("prog_bar", "enable_graph", "sync_dist", "add_dataloader_idx", "rank_zero_only"):
        if not isinstance(values[flag], bool):
            raise LoggingError(f"{where}: {flag}={short(values[flag])} must be True or False.")
    for flag in ("logger", "on_step", "on_epoch"):
        if values[flag] is not None and not isinstance(values[flag], bool):
            raise LoggingError(f"{where}: {flag}={short(values[flag])} must be True, False or None.")
    for flag in ("metric_attribute", "axis"):
        if values[flag] is not None and (type(values[flag]) is not str or not values[flag]):
            raise LoggingError(f"{where}: {flag}={short(values[flag])} must be a non-empty string or None.")
    if values["axis"] == name:
        raise LoggingError(f"{where}: axis={name!r} is the value itself; give another axis.")
    if values["add_dataloader_idx"] and "/dataloader_idx_" in name:
        raise LoggingError(f"{where}: the name must not contain '/dataloader_idx_'; it is added for several loaders.")


def _check_reduce_loaders(where: str, values: dict[str, Any], reduce: Any, *, on_epoch: bool) -> None:
    given = values["reduce_loaders"]
    if given != "mean":
        raise LoggingError(f"{where}: reduce_loaders={short(given)} must be 'mean' or None.")
    if not on_epoch:
        raise LoggingError(f"{where}: reduce_loaders='mean' is of values of the epoch; set on_epoch=True.")
    if reduce != "mean":
        raise LoggingError(
            f"{where}: reduce_loaders='mean' needs reduce_fx='mean', not {short(values['reduce_fx'])}: it is the mean "
            "over all batches of all loaders, weighted by batch size."
        )
    if not values["add_dataloader_idx"]:
        raise LoggingError(
            f"{where}: reduce_loaders='mean' with add_dataloader_idx=False is the same as add_dataloader_idx=False "
            "alone: leave one of them out."
        )


def reduction(where: str, reduce_fx: Any) -> Any:
    """The name of a known reduction, or the function itself.

    Raises:
        LoggingError: If it is neither.
    """
    try:
        known = _REDUCTIONS.get(reduce_fx)
    except TypeError:
        known = None
    if known is None and isinstance(reduce_fx, str):
        known = _REDUCTIONS.get(reduce_fx.lower())
    if known is not None:
        return known
    if callable(reduce_fx):
        return reduce_fx
    names = ["mean", "sum", "min", "max"]
    hint = suggest(reduce_fx, names) if isinstance(reduce_fx, str) else ""
    raise LoggingError(f"{where}: reduce_fx={short(reduce_fx)} must be one of {names} or a callable.{hint}")


def check_batch_size(where: str, batch_size: Any) -> None:
    """Raise unless `batch_size` can be a weight.

    Raises:
        LoggingError: If it is no number, or negative.
    """
    tensor = isinstance(batch_size, Tensor) and batch_size.numel() == 1
    if not tensor and (isinstance(batch_size, bool) or not isinstance(batch_size, (int, float))):
        raise LoggingError(
            f"{where}: batch_size={short(batch_size)} must be a number, not {type(batch_size).__name__}."
        )
    if not tensor and batch_size < 0:
        raise LoggingError(f"{where}: batch_size={batch_size} must not be negative; it is the weight of the value.")

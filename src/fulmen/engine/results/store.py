"""What `self.log` feeds: one entry per (hook, key, loader), checked at the first call and cheap afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import SPECS, HookSpec
from fulmen.engine.results.entry import Entry, Flags, MetricEntry, float_dtype
from fulmen.errors import LoggingError, suggest, warn

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
)
_REDUCTIONS: dict[Any, str] = {torch.mean: "mean", torch.sum: "sum", torch.min: "min", torch.max: "max"}
_REDUCTIONS |= {sum: "sum", min: "min", max: "max", "avg": "mean"}
_REDUCTIONS |= {name: name for name in ("mean", "sum", "min", "max")}


@dataclass
class View:
    """Values as they stand now, by who reads them.

    Attributes:
        callback: For monitors: plain keys and their `_step`/`_epoch` forms.
        log: For loggers.
        bar: For progress bars (tensors still; they become numbers when the bar reads).
    """

    callback: dict[str, Tensor] = field(default_factory=dict)
    log: dict[str, Tensor] = field(default_factory=dict)
    bar: dict[str, Tensor] = field(default_factory=dict)


class Results:
    """Logged values of one loop.

    Args:
        cursor: Tells which hook is running.
        training: Whether it is the training loop's store (its step values can be monitored).
        keep_integers: `Policy.keep_integers`.
        batch_size: Called at most once per batch, and only if an epoch mean asks: the batch's size.
    """

    def __init__(
        self, cursor: Cursor, *, training: bool, keep_integers: bool, batch_size: Callable[[Any], float]
    ) -> None:
        self.cursor = cursor
        self.training = training
        self.keep_integers = keep_integers
        self.find_batch_size = batch_size
        self.entries: dict[tuple[HookSpec, str, int | None], Entry | MetricEntry] = {}
        self.pending: dict[str, Any] = {}
        self.dataloader_idx: int | None = None
        self.batch_size: float | None = None
        self.on_step = False
        self.logs_steps = False

    def start_batch(self, dataloader_idx: int | None = None) -> None:
        """A new batch begins: its size is looked up anew if asked for."""
        self.batch_size = None
        self.dataloader_idx = dataloader_idx
        self.on_step = True

    def log(self, name: str, value: Any, given: tuple[Any, ...], batch_size: int | None) -> None:
        """Take one value from `LightningModule.log`.

        Args:
            name: Key.
            value: Number, tensor of one element, or metric object.
            given: Flags in the order of `FLAG_NAMES`, as the caller gave them.
            batch_size: Weight of the value, `None` to find it.

        Raises:
            LoggingError: For a hook, flag or value that is not allowed.
        """
        hook = self.cursor.hook
        entry = self.entries.get((hook, name, self.dataloader_idx))  # type: ignore[arg-type]  # None hook: no such key
        if entry is None:
            entry = self._new(hook, name, value, given)
        elif entry.flags.given != given:
            entry = self._other_flags(entry, hook, name, value, given)
        weight: float = 1
        if entry.weighted:
            size = self.batch_size if batch_size is None else batch_size
            if size is None and self.cursor.batch is not None:
                size = self.batch_size = self.find_batch_size(self.cursor.batch)
            weight = 1 if size is None else size
        if isinstance(value, Tensor):
            if value.dim():
                value = self._single(name, value.detach(), hook)
            if entry.by_number and value.is_cpu and value.is_floating_point():
                # In host memory its number is the cheapest copy: 0.1 µs, against 0.9 µs for `detach` and `copy_`.
                entry.put_number(value.item(), weight, value.dtype)
                return
        elif not isinstance(value, (int, float)):
            value = self._plain(name, value, hook)
        entry.put(value, weight)

    def _single(self, name: str, value: Tensor, hook: HookSpec | None) -> Tensor:
        if value.numel() != 1:
            raise LoggingError(
                f"self.log({name!r}, ...) in `{_where(hook)}` got a tensor of shape {tuple(value.shape)}; a logged "
                f"value is one number. Reduce it first, for example with `.mean()`, or use `self.log_dict`."
            )
        return value.reshape(())

    def _plain(self, name: str, value: Any, hook: HookSpec | None) -> Any:
        if is_metric(value):
            return value
        if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
            return value.item()
        hint = " Log its items with `self.log_dict`." if isinstance(value, dict) else ""
        raise LoggingError(
            f"self.log({name!r}, {_short(value)}) in `{_where(hook)}`: {type(value).__name__} cannot be logged; "
            f"give a number, a tensor of one element or a torchmetrics object.{hint}"
        )

    def _new(self, hook: HookSpec | None, name: str, value: Any, given: tuple[Any, ...]) -> Entry | MetricEntry:
        flags = _check(hook, name, given, self.dataloader_idx)
        assert hook is not None
        self.logs_steps = self.logs_steps or flags.on_step
        entry: Entry | MetricEntry
        if is_metric(value):
            entry = MetricEntry(flags, value)
        else:
            entry = Entry(flags, keep_integers=self.keep_integers)
            state = self.pending.pop(_state_key(hook, name, self.dataloader_idx), None)
            if state is not None:
                entry.load_state_dict(state)
        self.entries[(hook, name, self.dataloader_idx)] = entry
        if isinstance(value, Tensor) and not value.is_floating_point() and flags.on_epoch:
            warn(
                "W201",
                f"self.log({name!r}, ...) in `{hook.name}` got a tensor of {value.dtype}; it is reduced as a float. "
                "Convert it with `.float()` to say so.",
                key=name,
                stacklevel=5,
            )
        return entry

    def _other_flags(
        self, entry: Entry | MetricEntry, hook: HookSpec | None, name: str, value: Any, given: tuple[Any, ...]
    ) -> Entry | MetricEntry:
        """Flags differ: an error, unless the key came from a checkpoint and is logged for the first time since."""
        if entry.flags.given is not None or isinstance(entry, MetricEntry):
            raise LoggingError(_differs(name, entry.flags, given))
        assert hook is not None
        self.pending[_state_key(hook, name, self.dataloader_idx)] = entry.state_dict()
        return self._new(hook, name, value, given)

    def _valid(self) -> Iterator[Entry | MetricEntry]:
        idx = self.dataloader_idx
        for entry in self.entries.values():
            if entry.set and entry.flags.dataloader_idx == idx:
                yield entry

    def view(self, *, on_step: bool | None = None) -> View:
        """Values as they stand, of the step while batches run, else of the epoch.

        Args:
            on_step: Ask for the step's (`True`) or the epoch's values whatever runs.
        """
        step = self.on_step if on_step is None else on_step
        view = View()
        for entry in self._valid():
            flags = entry.flags
            if not (flags.on_step if step else flags.on_epoch):
                continue
            value = entry.step_value if step else entry.epoch_value()
            if value is None:
                continue
            key = flags.key(on_step=step)
            if flags.logger:
                view.log[key] = value
            if self.training or not step:
                view.callback[flags.name + flags.suffix] = value
                view.callback[key] = value
            if flags.prog_bar:
                view.bar[key] = value
        return view

    def row(self) -> dict[str, Any]:
        """Step values for the loggers: numbers where they are at hand, else 0-dim tensors."""
        found: dict[str, Any] = {}
        for entry in self._valid():
            flags = entry.flags
            if flags.on_step and flags.logger:
                value = entry.step_number
                if value is not None:
                    found[flags.key(on_step=True)] = value
        return found

    def reset(self) -> None:
        """Forget the values of all keys; flags stay frozen."""
        for entry in self.entries.values():
            if entry.set:
                entry.reset()
        self.pending.clear()
        self.on_step = False

    def state_dict(self) -> dict[str, Any]:
        """Values of all plain keys since the last reset (metric objects are states of the module)."""
        values = {
            _state_key(*key): entry.state_dict()
            for key, entry in self.entries.items()
            if isinstance(entry, Entry) and entry.set
        }
        return {**self.pending, **values}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take values back."""
        for key, state in state_dict.items():
            hook, rest = key.split("|", 1)
            name, _, idx = rest.rpartition("|")
            if state["flags"]["reduce"] is None and state["reduced"] is None:
                self.pending[key] = state  # readable when it is logged again and brings its function
                continue
            entry = Entry(Flags.restored(state["flags"], state["reduced"]), keep_integers=self.keep_integers)
            entry.load_state_dict(state)
            self.entries[(SPECS[hook], name, int(idx) if idx else None)] = entry


def _state_key(hook: HookSpec, name: str, dataloader_idx: int | None) -> str:
    return f"{hook.name}|{name}|{'' if dataloader_idx is None else dataloader_idx}"


def is_metric(value: Any) -> bool:
    """Whether `value` is a torchmetrics object; never imports torchmetrics."""
    module = sys.modules.get("torchmetrics")
    return module is not None and isinstance(value, (module.Metric, module.MetricCollection))


def _where(hook: HookSpec | None) -> str:
    return hook.name if hook is not None else "no hook"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _caller() -> str:
    """`file:line` of the first frame outside of Fulmen."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("fulmen."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "unknown place"


def _differs(name: str, flags: Flags, given: tuple[Any, ...]) -> str:
    changes = [
        f"{flag}={new!r} (was {old!r})"
        for flag, new, old in zip(FLAG_NAMES, given, flags.given or given, strict=True)
        if new != old
    ]
    return (
        f"self.log({name!r}, ...) in `{flags.hook}` was called with other flags than before: {', '.join(changes)}. "
        f"First call: {flags.place}; this call: {_caller()}. Use the same flags, or another name."
    )


def _check(hook: HookSpec | None, name: str, given: tuple[Any, ...], dataloader_idx: int | None) -> Flags:
    """Check a key's flags at its first call."""
    if not name or type(name) is not str:
        raise LoggingError(f"self.log({name!r}, ...): the name must be a non-empty string.")
    where = f"self.log({name!r}, ...) in `{_where(hook)}`"
    if hook is None or hook.log is None:
        allowed = ", ".join(s.name for s in SPECS.values() if s.log is not None)
        raise LoggingError(f"{where}: logging is not allowed there. It is in: {allowed}.")
    values = dict(zip(FLAG_NAMES, given, strict=True))
    for flag in ("prog_bar", "enable_graph", "sync_dist", "add_dataloader_idx", "rank_zero_only"):
        if not isinstance(values[flag], bool):
            raise LoggingError(f"{where}: {flag}={_short(values[flag])} must be True or False.")
    for flag in ("logger", "on_step", "on_epoch"):
        if values[flag] is not None and not isinstance(values[flag], bool):
            raise LoggingError(f"{where}: {flag}={_short(values[flag])} must be True, False or None.")
    if "/dataloader_idx_" in name:
        raise LoggingError(f"{where}: the name must not contain '/dataloader_idx_'; it is added for several loaders.")
    rule = hook.log
    on_step = rule.default_step if values["on_step"] is None else values["on_step"]
    on_epoch = rule.default_epoch if values["on_epoch"] is None else values["on_epoch"]
    for flag, value, options in (("on_step", on_step, rule.step), ("on_epoch", on_epoch, rule.epoch)):
        if value not in options:
            raise LoggingError(f"{where}: {flag}={value} is not allowed in this hook, only {flag}={options[0]}.")
    if not on_step and not on_epoch:
        raise LoggingError(f"{where}: on_step=False and on_epoch=False log nothing; set one of them to True.")
    logger = values["logger"]
    return Flags(
        name=name,
        hook=hook.name,
        given=given,
        place=_caller(),
        prog_bar=values["prog_bar"],
        logger=True if logger is None else logger,
        on_step=on_step,
        on_epoch=on_epoch,
        reduce=_reduction(where, values["reduce_fx"]),
        sync_dist=values["sync_dist"],
        sync_dist_group=values["sync_dist_group"],
        add_dataloader_idx=values["add_dataloader_idx"],
        rank_zero_only=values["rank_zero_only"],
        dataloader_idx=dataloader_idx,
    )


def _reduction(where: str, reduce_fx: Any) -> Any:
    try:
        known = _REDUCTIONS.get(reduce_fx)
    except TypeError:
        known = None
    if known is not None:
        return known
    if callable(reduce_fx):
        return reduce_fx
    names = ["mean", "sum", "min", "max"]
    hint = suggest(reduce_fx, names) if isinstance(reduce_fx, str) else ""
    raise LoggingError(f"{where}: reduce_fx={_short(reduce_fx)} must be one of {names} or a callable.{hint}")


def to_numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """Turn 0-dim tensors into Python numbers with one transfer per device and kind; numbers stay."""
    numbers: dict[str, float] = {}
    groups: dict[tuple[torch.device, bool], list[str]] = {}
    for name, value in metrics.items():
        if not isinstance(value, Tensor):
            numbers[name] = value
            continue
        if value.numel() != 1:
            raise LoggingError(
                f"The value logged as {name!r} has shape {tuple(value.shape)}, but must be one number. A metric that "
                "computes a vector cannot be logged; log its elements one by one."
            )
        groups.setdefault((value.device, value.is_floating_point()), []).append(name)
    for (device, floating), names in groups.items():
        if device.type == "cpu":
            numbers.update({name: metrics[name].item() for name in names})
            continue
        dtype = float_dtype() if floating else torch.int64
        stacked = torch.stack([metrics[name].reshape(()).to(dtype) for name in names])
        numbers.update(zip(names, stacked.tolist(), strict=True))
    return {name: numbers[name] for name in metrics}

"""What `self.log` feeds: one entry per (hook, key, loader), checked at the first call and cheap afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import SPECS, HookSpec
from fulmen.engine.results.axes import SAMPLES, TOKENS, Axes, TokenEntry
from fulmen.engine.results.entry import Entry, float_dtype
from fulmen.engine.results.flags import FLAG_NAMES, Flags, check_batch_size, check_flags, differs, short, where_of
from fulmen.engine.results.loaders import over_loaders
from fulmen.engine.results.metrics import MetricEntry, is_collection, is_metric, path_of, warn_of_new_object
from fulmen.errors import LoggingError, PossibleUserWarning, warn


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
        merge_loaders: `Policy.merge_loaders`.
        module: Where metric objects are to be found.
        axes: x axes other than the step.

    Attributes:
        loader_names: Names of several loaders if they have any; they tell their keys apart.
    """

    def __init__(
        self,
        cursor: Cursor,
        *,
        training: bool,
        keep_integers: bool,
        batch_size: Callable[[Any], float],
        merge_loaders: bool = True,
        module: Any = None,
        axes: Axes | None = None,
    ) -> None:
        self.cursor = cursor
        self.training = training
        self.keep_integers = keep_integers
        self.find_batch_size = batch_size
        self.merge_loaders = merge_loaders
        self.module = module
        self.axes = Axes() if axes is None else axes
        self.entries: dict[tuple[HookSpec, str, int | None], Entry | MetricEntry] = {}
        self.groups: dict[tuple[HookSpec, str], list[Entry | MetricEntry]] = {}
        self.pending: dict[str, Any] = {}
        self.loader_names: list[str] | None = None
        self.dataloader_idx: int | None = None
        self.batch_size: float | None = None
        self.on_step = False
        self.logs_steps = False

    def name_loaders(self, names: list[str] | None) -> None:
        """Several loaders begin; keys of loaders with other names are dropped."""
        if names != self.loader_names:
            self.loader_names = names
            self.entries = {key: entry for key, entry in self.entries.items() if key[2] is None}
            self.groups = {}

    def current_size(self) -> float:
        """The size of the batch at hand, looked up once."""
        if self.batch_size is None:
            self.batch_size = self.find_batch_size(self.cursor.batch)
        return self.batch_size

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
            entry = self._new(hook, name, value, given, batch_size)
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
            value = self._plain(name, value, entry, hook)
        entry.put(value, weight)

    def _single(self, name: str, value: Tensor, hook: HookSpec | None) -> Tensor:
        if value.numel() != 1:
            raise LoggingError(
                f"self.log({name!r}, ...) in `{where_of(hook)}` got a tensor of shape {tuple(value.shape)}; a logged "
                f"value is one number. Reduce it first, for example with `.mean()`, or use `self.log_dict`."
            )
        return value.reshape(())

    def _plain(self, name: str, value: Any, entry: Entry | MetricEntry | None, hook: HookSpec | None) -> Any:
        if is_metric(value):
            if isinstance(entry, Entry):
                raise LoggingError(
                    f"self.log({name!r}, ...) in `{where_of(hook)}` got a {type(value).__name__} after numbers; one "
                    "key takes either metric objects or numbers."
                )
            return value
        if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
            value = value.item()
            if isinstance(value, (int, float)):
                return value
        hint = ""
        if isinstance(value, dict) or is_collection(value):
            hint = " Log its items with `self.log_dict`."
        raise LoggingError(
            f"self.log({name!r}, {short(value)}) in `{where_of(hook)}`: {type(value).__name__} cannot be logged; "
            f"give a number, a tensor of one element or a torchmetrics object.{hint}"
        )

    def _new(
        self, hook: HookSpec | None, name: str, value: Any, given: tuple[Any, ...], batch_size: Any
    ) -> Entry | MetricEntry:
        flags = check_flags(hook, name, given, self.dataloader_idx, self.loader_names)
        assert hook is not None
        where = f"self.log({name!r}, ...) in `{hook.name}`"
        if batch_size is not None:
            check_batch_size(where, batch_size)
        if isinstance(value, Tensor):
            self._check_tensor(name, value, hook, flags)
        elif not isinstance(value, (int, float)):
            value = self._plain(name, value, None, hook)
        entry = self._make_entry(flags, value)
        if flags.over_loaders:
            self._join_loaders(where, entry, self.groups.setdefault((hook, name), []))
        state = self.pending.pop(_state_key(hook, name, self.dataloader_idx), None)
        if state is not None and isinstance(entry, Entry):
            entry.load_state_dict(state)
        self.logs_steps = self.logs_steps or flags.on_step
        self.entries[(hook, name, self.dataloader_idx)] = entry
        if flags.axis is not None:
            self.axes.use(flags)
            if flags.axis == SAMPLES and not self.axes.counting:
                self.axes.counting = True
                if self.training and self.cursor.batch is not None:
                    self.axes.count(self.current_size())
        return entry

    def is_shared(self, flags: Flags, metric: Any) -> bool:
        """Whether another loader logs the same metric object under the same key."""
        return any(
            isinstance(entry, MetricEntry)
            and entry.metric is metric
            and entry.flags.name == flags.name
            and entry.flags.dataloader_idx != flags.dataloader_idx
            for entry in self.entries.values()
        )

    def _make_entry(self, flags: Flags, value: Any) -> Entry | MetricEntry:
        if is_metric(value):
            if flags.metric_attribute is None and path_of(self.module, value) is None and self.module is not None:
                warn_of_new_object(flags, value, type(self.module).__name__)
            if flags.add_dataloader_idx and self.is_shared(flags, value):
                warn(
                    "W211",
                    f"self.log({flags.name!r}, ...) in `{flags.hook}` got one {type(value).__name__} for several "
                    "loaders, so that its value runs on from one loader to the next. Keep a metric object for each, "
                    "for example in an `nn.ModuleList`, and log the one of `dataloader_idx`.",
                    key=flags.name,
                    category=PossibleUserWarning,
                )
            return MetricEntry(flags, value)
        if self.training and flags.name == TOKENS:
            return TokenEntry(flags, self.axes, keep_integers=self.keep_integers)
        return Entry(flags, keep_integers=self.keep_integers)

    def _check_tensor(self, name: str, value: Tensor, hook: HookSpec, flags: Flags) -> None:
        if not value.is_floating_point() and flags.on_epoch:
            warn(
                "W201",
                f"self.log({name!r}, ...) in `{hook.name}` got a tensor of {value.dtype}; it is reduced as a float. "
                "Convert it with `.float()` to say so.",
                key=name,
                stacklevel=6,
            )

    def _join_loaders(self, where: str, entry: Entry | MetricEntry, group: list[Entry | MetricEntry]) -> None:
        """One more loader logs a key whose values are also put together."""
        if group and not entry.flags.add_dataloader_idx and not self.merge_loaders:
            raise LoggingError(
                f"{where}: the key comes from a second loader, and add_dataloader_idx=False lets both have one name. "
                "Use another name for each loader, or the policy's field `merge_loaders`, which makes it one mean."
            )
        metrics = [other.metric for other in (*group, entry) if isinstance(other, MetricEntry)]
        if metrics and (entry.flags.add_dataloader_idx or any(other is not metrics[0] for other in metrics)):
            raise LoggingError(
                f"{where}: a {type(metrics[0]).__name__} of its own for each loader cannot be put together with those "
                "of others. Log one metric object in all loaders with add_dataloader_idx=False for the value over all."
            )
        group.append(entry)

    def _other_flags(
        self, entry: Entry | MetricEntry, hook: HookSpec | None, name: str, value: Any, given: tuple[Any, ...]
    ) -> Entry | MetricEntry:
        """Flags differ: an error, unless the key came from a checkpoint and is logged for the first time since."""
        flags = entry.flags
        if flags.same_with_new_function(given):
            flags.given, flags.reduce = given, given[FLAG_NAMES.index("reduce_fx")]
            return entry
        if flags.given is not None:
            raise LoggingError(differs(name, flags, given))
        assert hook is not None
        if flags.over_loaders:
            self.groups[(hook, name)].remove(entry)
        if isinstance(entry, MetricEntry):
            kept = entry
            entry = self._new(hook, name, value, given, None)
            entry.set = kept.set
            return entry
        self.pending[_state_key(hook, name, self.dataloader_idx)] = entry.state_dict()
        return self._new(hook, name, value, given, None)

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
        if self.groups and not step and self.dataloader_idx is None:
            self._add_over_loaders(view)
        return view

    def _add_over_loaders(self, view: View) -> None:
        """Values over all loaders, once all are done."""
        for group in self.groups.values():
            entries = [entry for entry in group if entry.set]
            if not entries:
                continue
            flags = entries[0].flags
            if len(group) == 1 and not flags.add_dataloader_idx:
                continue  # a name of its own for this loader
            value = over_loaders(entries)
            key = flags.key(on_step=False).removesuffix(flags.suffix)
            if flags.logger:
                view.log[key] = value
            view.callback[flags.name] = view.callback[key] = value
            if flags.prog_bar:
                view.bar[key] = value

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
            if entry.set or isinstance(entry, MetricEntry):
                entry.reset()
        self.pending.clear()
        self.on_step = False

    def metrics(self) -> list[Any]:
        """Metric objects that are logged here."""
        return [entry.metric for entry in self.entries.values() if isinstance(entry, MetricEntry)]

    def state_dict(self) -> dict[str, Any]:
        """Values of all keys since the last reset; metric objects keep theirs (`metric_states`)."""
        values: dict[str, Any] = {}
        for key, entry in self.entries.items():
            if not entry.set:
                continue
            if isinstance(entry, Entry):
                values[_state_key(*key)] = entry.state_dict()
            elif (path := path_of(self.module, entry.metric)) is not None:
                values[_state_key(*key)] = entry.state_dict(path)
        return {**self.pending, **values}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take values back."""
        for key, state in state_dict.items():
            hook, rest = key.split("|", 1)
            name, _, idx = rest.rpartition("|")
            place = (SPECS[hook], name, int(idx) if idx else None)
            if "metric" in state:
                self._load_metric(place, state)
                continue
            if state["flags"]["reduce"] is None and state["reduced"] is None:
                self.pending[key] = state  # readable when it is logged again and brings its function
                continue
            flags = Flags.restored(state["flags"], state["reduced"])
            if self.training and name == TOKENS:
                entry: Entry = TokenEntry(flags, self.axes, keep_integers=self.keep_integers)
            else:
                entry = Entry(flags, keep_integers=self.keep_integers)
            entry.load_state_dict(state)
            self._restored(place, entry)

    def _restored(self, place: tuple[HookSpec, str, int | None], entry: Entry | MetricEntry) -> None:
        self.entries[place] = entry
        self.logs_steps = self.logs_steps or entry.flags.on_step
        if entry.flags.over_loaders:
            self.groups.setdefault(place[:2], []).append(entry)

    def _load_metric(self, place: tuple[HookSpec, str, int | None], state: dict[str, Any]) -> None:
        for path, child in self.module.named_modules() if self.module is not None else ():
            if path == state["metric"] and is_metric(child):
                entry = MetricEntry(Flags.restored(state["flags"], None), child)
                entry.load_state_dict(state)
                self._restored(place, entry)


def _state_key(hook: HookSpec, name: str, dataloader_idx: int | None) -> str:
    return f"{hook.name}|{name}|{'' if dataloader_idx is None else dataloader_idx}"


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

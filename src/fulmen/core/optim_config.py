"""What `configure_optimizers` may return, and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

from fulmen.core.optimizer import NoOptimizer
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException, suggest, warn

_SCHEDULER_KEYS = ("scheduler", "name", "interval", "frequency", "reduce_on_plateau", "monitor", "strict")
_OPTIMIZER_KEYS = ("optimizer", "lr_scheduler", "monitor", "name", "frequency")
_FORMS = (
    "an optimizer, a list of optimizers, two lists (optimizers, schedulers), a dict with 'optimizer' and optionally "
    "'lr_scheduler', a list or tuple of such dicts, or None"
)


@dataclass
class LRSchedulerConfig:
    """A scheduler and when it steps.

    Attributes:
        scheduler: The scheduler.
        name: Name for LearningRateMonitor.
        interval: `"step"` (optimizer steps) or `"epoch"`.
        frequency: Step each so many intervals.
        reduce_on_plateau: Whether it needs the monitored value.
        monitor: Key of that value.
        strict: Whether a missing value is an error.
    """

    scheduler: Any
    name: str | None = None
    interval: str = "epoch"
    frequency: int = 1
    reduce_on_plateau: bool = False
    monitor: str | None = None
    strict: bool = True


def parse_optimizers(value: Any, owner: str, *, own_scheduler_step: bool) -> tuple[list[Any], list[LRSchedulerConfig]]:
    """Read the return value of `configure_optimizers`.

    Args:
        value: What it returned.
        owner: Class name of the module, for errors.
        own_scheduler_step: Whether the module overrides `lr_scheduler_step` (schedulers of any kind are fine then).

    Returns:
        Optimizers, and one config for each scheduler.

    Raises:
        MisconfigurationException: For any other form, with what was found and what to return.
    """
    where = f"{owner}.configure_optimizers"
    optimizers, schedulers, monitors = _split(value, where)
    configs = [
        _scheduler(item, where, monitor, own_scheduler_step=own_scheduler_step)
        for item, monitor in zip(schedulers, monitors, strict=True)
    ]
    for index, optimizer in enumerate(optimizers):
        if any(optimizer is other for other in optimizers[:index]):
            raise MisconfigurationException(
                f"{where} returned the same {type(optimizer).__name__} twice, so that it would step twice; return it "
                "once. Several schedulers of one optimizer: `[optimizer], [scheduler, scheduler]`."
            )
    for config in configs:
        owned = getattr(config.scheduler, "optimizer", None)
        if isinstance(owned, Optimizer) and not any(owned is o for o in optimizers):
            raise MisconfigurationException(
                f"{where} returned a {type(config.scheduler).__name__} whose optimizer is not among those returned; "
                "return that optimizer too, or build the scheduler with one that is."
            )
    return optimizers, configs


@dataclass(frozen=True)
class OptimizerLabels:
    """What dicts of `configure_optimizers` say of optimizers among others.

    Attributes:
        names: One per optimizer, by which a dict of losses refers to it; its index where none was given.
        frequencies: For how many batches in turn each is used (Lightning 1.x); empty if all are used in each batch.
    """

    names: tuple[str, ...]
    frequencies: tuple[int, ...] = ()


def read_labels(value: Any, count: int, owner: str) -> OptimizerLabels:
    """Read the names and frequencies of optimizers.

    Args:
        value: What `configure_optimizers` returned, checked by `parse_optimizers`.
        count: The number of optimizers in it.
        owner: Class name of the module, for errors.

    Raises:
        ArgumentTypeError: For a name that is no string, or a frequency that is no int.
        ArgumentValueError: For a name that comes twice, a frequency below 1, or one that only some have.
    """
    where = f"{owner}.configure_optimizers"
    items = [value] if isinstance(value, Mapping) else list(value) if isinstance(value, (list, tuple)) else []
    dicts: list[Mapping[Any, Any]] = [item for item in items if isinstance(item, Mapping)] or [{}] * count
    names = [conf.get("name", str(index)) for index, conf in enumerate(dicts)]
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{where} returned an optimizer with name={name!r}; it must be a string.")
        if names.count(name) > 1:
            raise ArgumentValueError(f"{where} returned {names.count(name)} optimizers with the name {name!r}.")
    frequencies = [conf.get("frequency") for conf in dicts]
    given = [frequency for frequency in frequencies if frequency is not None]
    for frequency in given:
        if isinstance(frequency, bool) or not isinstance(frequency, int):
            raise ArgumentTypeError(f"{where} returned an optimizer with frequency={frequency!r}; it must be an int.")
        if frequency < 1:
            raise ArgumentValueError(
                f"{where} returned an optimizer with frequency={frequency}; it must be at least 1."
            )
    if given and len(given) < count:
        raise ArgumentValueError(
            f"{where} gives a 'frequency' to {len(given)} of {count} optimizers; give it to all of them or to none."
        )
    return OptimizerLabels(tuple(names), tuple(given))


def _split(value: Any, where: str) -> tuple[list[Any], list[Any], list[str | None]]:
    if value is None:
        warn("W501", f"{where} returned None: training runs without an optimizer, no weight will change.", key=where)
        return [NoOptimizer()], [], []
    if isinstance(value, Optimizer):
        return [value], [], []
    if isinstance(value, Mapping):
        return _from_dicts([value], where)
    if isinstance(value, (list, tuple)):
        return _from_sequence(value, where)
    raise ArgumentTypeError(f"{where} returned {_show(value)}; it must return {_FORMS}.")


def _from_sequence(value: Sequence[Any], where: str) -> tuple[list[Any], list[Any], list[str | None]]:
    if not value:
        raise ArgumentValueError(f"{where} returned an empty {type(value).__name__}; it must return {_FORMS}.")
    if len(value) == 2 and isinstance(value[0], (list, tuple)):
        optimizers, schedulers = list(value[0]), value[1]
        schedulers = list(schedulers) if isinstance(schedulers, (list, tuple)) else [schedulers]
        _all_optimizers(optimizers, where)
        return optimizers, schedulers, [None] * len(schedulers)
    if all(isinstance(item, Mapping) for item in value):
        return _from_dicts(value, where)
    if len(value) == 2 and isinstance(value[0], Optimizer) and not isinstance(value[1], (Optimizer, Mapping)):
        raise ArgumentTypeError(
            f"{where} returned ({_show(value[0])}, {_show(value[1])}); for one optimizer and one scheduler return "
            "two lists, `[optimizer], [scheduler]`, or a dict with 'optimizer' and 'lr_scheduler'."
        )
    _all_optimizers(value, where)
    return list(value), [], []


def _all_optimizers(values: Sequence[Any], where: str) -> None:
    for item in values:
        if not isinstance(item, Optimizer):
            raise ArgumentTypeError(f"{where} returned {_show(item)} where an optimizer is needed; return {_FORMS}.")


def _from_dicts(dicts: Sequence[Any], where: str) -> tuple[list[Any], list[Any], list[str | None]]:
    optimizers: list[Any] = []
    schedulers: list[Any] = []
    monitors: list[str | None] = []
    for conf in dicts:
        _check_keys(conf, _OPTIMIZER_KEYS, f"{where} returned a dict")
        if "optimizer" not in conf:
            raise ArgumentValueError(f"{where} returned a dict without 'optimizer' (keys: {sorted(map(str, conf))}).")
        optimizer = conf["optimizer"]
        _all_optimizers([optimizer], where)
        optimizers.append(optimizer)
        if conf.get("lr_scheduler") is not None:
            schedulers.append(conf["lr_scheduler"])
            monitors.append(conf.get("monitor"))
    return optimizers, schedulers, monitors


def _check_keys(conf: Mapping[Any, Any], known: Sequence[str], what: str) -> None:
    for key in conf:
        if key in known:
            continue
        hint = suggest(str(key), known)
        if hint:
            raise ArgumentValueError(f"{what} with the unknown key {key!r}.{hint} Known keys: {list(known)}.")
        warn("W502", f"{what} with the key {key!r}, which is not used. Known keys: {list(known)}.", key=str(key))


def _scheduler(item: Any, where: str, monitor: str | None, *, own_scheduler_step: bool) -> LRSchedulerConfig:
    if isinstance(item, LRSchedulerConfig):
        return item
    if isinstance(item, Mapping):
        what = f"{where} returned an lr_scheduler dict"
        _check_keys(item, _SCHEDULER_KEYS, what)
        if "scheduler" not in item:
            raise ArgumentValueError(f"{what} without 'scheduler' (keys: {sorted(map(str, item))}).")
        values = {key: item[key] for key in _SCHEDULER_KEYS if key in item}
        values.setdefault("reduce_on_plateau", isinstance(item["scheduler"], ReduceLROnPlateau))
        if values.get("monitor") is None:
            values["monitor"] = monitor
        config = LRSchedulerConfig(**values)
        _check_config(config, what)
    else:
        config = LRSchedulerConfig(item, monitor=monitor, reduce_on_plateau=isinstance(item, ReduceLROnPlateau))
    _check_scheduler(config, where, own_scheduler_step=own_scheduler_step, given_interval=isinstance(item, Mapping))
    return config


def _check_config(config: LRSchedulerConfig, what: str) -> None:
    if config.interval not in ("step", "epoch"):
        hint = suggest(str(config.interval), ("step", "epoch"))
        raise ArgumentValueError(f"{what} with interval={config.interval!r}; it must be 'step' or 'epoch'.{hint}")
    if isinstance(config.frequency, bool) or not isinstance(config.frequency, int):
        raise ArgumentTypeError(f"{what} with frequency={config.frequency!r}; it must be an int of at least 1.")
    if config.frequency < 1:
        raise ArgumentValueError(f"{what} with frequency={config.frequency}; it must be at least 1.")
    for key in ("strict", "reduce_on_plateau"):
        if not isinstance(getattr(config, key), bool):
            raise ArgumentTypeError(f"{what} with {key}={getattr(config, key)!r}; it must be True or False.")
    for key in ("name", "monitor"):
        if getattr(config, key) is not None and not isinstance(getattr(config, key), str):
            raise ArgumentTypeError(f"{what} with {key}={getattr(config, key)!r}; it must be a string.")


def _check_scheduler(config: LRSchedulerConfig, where: str, *, own_scheduler_step: bool, given_interval: bool) -> None:
    scheduler = config.scheduler
    methods = ("step", "state_dict", "load_state_dict")
    if not all(callable(getattr(scheduler, m, None)) for m in methods) and not own_scheduler_step:
        raise ArgumentTypeError(
            f"{where} returned {_show(scheduler)} as scheduler, which has not all of {list(methods)}; return a torch "
            "scheduler, or override `lr_scheduler_step`."
        )
    if config.reduce_on_plateau and config.monitor is None:
        raise MisconfigurationException(
            f"{where} returned a {type(scheduler).__name__} without the value that it watches; return "
            "{'optimizer': ..., 'lr_scheduler': {'scheduler': ..., 'monitor': 'val_loss'}}."
        )
    if isinstance(scheduler, OneCycleLR) and config.interval == "epoch" and not given_interval:
        warn(
            "W503",
            f"{where} returned a OneCycleLR that steps per epoch; it is usually meant to step per batch: "
            "{'scheduler': ..., 'interval': 'step'}.",
        )


def _show(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} ({text[:57] + '...' if len(text) > 60 else text})".replace("\n", " ")

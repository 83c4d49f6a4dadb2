"""`torchmetrics` objects: as logged values, in checkpoints, and where they are held so that they cannot work.

`torchmetrics` is never imported here: whoever has such an object has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.results.flags import Flags, short
from fulmen.errors import LoggingError, warn


def is_metric(value: Any) -> bool:
    """Whether `value` is a `torchmetrics.Metric`."""
    module = sys.modules.get("torchmetrics")
    return module is not None and isinstance(value, module.Metric)


def is_collection(value: Any) -> bool:
    """Whether `value` is a `torchmetrics.MetricCollection`."""
    module = sys.modules.get("torchmetrics")
    return module is not None and isinstance(value, module.MetricCollection)


def items_of(dictionary: Any) -> Any:
    """The names and values that `self.log_dict` was given.

    Raises:
        LoggingError: If it is no mapping and no `MetricCollection`.
    """
    if is_collection(dictionary):
        return dictionary.items(keep_base=False, copy_state=False)  # members of a compute group share their state
    if not isinstance(dictionary, Mapping) and not hasattr(dictionary, "items"):
        raise LoggingError(
            f"self.log_dict({short(dictionary)}): needs a mapping of names to values or a MetricCollection, not "
            f"{type(dictionary).__name__}."
        )
    return dictionary.items()


class MetricEntry:
    """A key whose value is a `torchmetrics` object: it keeps, reduces and resets its own state.

    Args:
        flags: The key's checked flags.
        metric: The object.
    """

    __slots__ = ("_cache", "_computed", "by_number", "flags", "metric", "set", "weighted")

    def __init__(self, flags: Flags, metric: Any) -> None:
        self.flags = flags
        self.metric = metric
        self.by_number = self.weighted = False
        self.set = False
        self._cache: Any = None
        self._computed: Tensor | None = None

    def put(self, value: Any, weight: float) -> None:
        """Note that the metric was updated."""
        if not is_metric(value):
            raise LoggingError(
                f"self.log({self.flags.name!r}, ...) in `{self.flags.hook}` got {type(value).__name__} after a "
                f"{type(self.metric).__name__}; one key takes either metric objects or numbers."
            )
        if value is not self.metric and self.flags.metric_attribute is None:
            warn_of_new_object(self.flags, value)
        self.metric = value
        self.set = True
        self._cache = getattr(value, "_forward_cache", None)
        self._computed = None

    def put_number(self, value: float | int, weight: float, dtype: torch.dtype | None = None) -> None:
        """A number is refused, as by `put`."""
        self.put(value, weight)

    def reset(self) -> None:
        """Reset the metric for the next epoch, also if this one did not log it."""
        self.metric.reset()
        self.set = False
        self._cache = self._computed = None

    @property
    def step_value(self) -> Tensor | None:
        """What the last `forward` returned; `None` after a bare `update`."""
        return self._cache.detach() if isinstance(self._cache, Tensor) else None

    @property
    def step_number(self) -> Tensor | None:
        """As `step_value`."""
        return self.step_value

    def epoch_value(self) -> Tensor:
        """The metric's value over the epoch, computed once.

        Raises:
            LoggingError: If it computes a dict or a list.
        """
        if self._computed is None:
            value = self.metric.compute()
            if not isinstance(value, (Tensor, int, float)):
                raise LoggingError(
                    f"self.log({self.flags.name!r}, ...) in `{self.flags.hook}`: {type(self.metric).__name__} computes "
                    f"a {type(value).__name__}, but a logged value is one number. Compute it at the epoch's end and "
                    "log its parts with `self.log_dict`."
                )
            self._computed = torch.as_tensor(value).detach()
        return self._computed

    def state_dict(self, path: str) -> dict[str, Any]:
        """What is needed to find the metric again at `path` in the module; its own state is kept elsewhere."""
        cache = self._cache.detach().clone() if isinstance(self._cache, Tensor) else None
        return {"flags": self.flags.state_dict(), "metric": path, "cache": cache}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self.set = True
        self._cache = state["cache"]


def path_of(module: Any, metric: Any) -> str | None:
    """Where in `module` the metric is registered; `None` if it is not."""
    if module is not None:
        for path, child in module.named_modules():
            if child is metric:
                return str(path)
    return None


def warn_of_new_object(flags: Flags, metric: Any, module: str = "the module") -> None:
    """Say that a metric object is none that the module holds."""
    kind = type(metric).__name__
    warn(
        "W205",
        f"self.log({flags.name!r}, {kind}(...)) in `{flags.hook}`: this {kind} is no attribute of {module}. If the "
        "step makes it, each batch has a new one, and the epoch's value is that of the last batch alone. Make it once "
        "in `__init__`, as an attribute or in an `nn.ModuleList`, `nn.ModuleDict` or `MetricCollection`; only there it "
        "moves to the device and is in checkpoints. `self.log(..., metric_attribute=...)` says that it is meant so.",
        key=f"{flags.hook} {flags.name}",
        stacklevel=6,
    )


def warn_of_loose_metrics(module: Any) -> None:
    """Say which metrics a module holds in plain lists or dicts, where torch does not see them."""
    if "torchmetrics" not in sys.modules:
        return
    for attribute, value in vars(module).items():
        if not isinstance(value, (list, tuple, dict)) or attribute.startswith("_"):
            continue
        held = list(value.values()) if isinstance(value, dict) else value
        metrics = [item for item in held if is_metric(item) or is_collection(item)]
        loose = [type(item).__name__ for item in metrics if path_of(module, item) is None]
        if loose:
            better = "nn.ModuleDict" if isinstance(value, dict) else "nn.ModuleList"
            name = type(module).__name__
            warn(
                "W206",
                f"{name}.{attribute} is a plain {type(value).__name__} with {', '.join(sorted(set(loose)))} in it: "
                "torch does not see these metrics, so they stay on the device where they were made and are not in "
                f"checkpoints. Use `self.{attribute} = {better}(...)`.",
                key=f"{name}.{attribute}",
            )


def _metrics(module: Any) -> Iterator[tuple[str, Any]]:
    if "torchmetrics" in sys.modules:
        for path, child in module.named_modules():
            if is_metric(child):
                yield path, child


def metric_states(module: Any, done: list[Any]) -> dict[str, Any]:
    """The states of all metrics in `module`, whether they are logged as objects or computed by the user.

    Args:
        module: Where they are.
        done: Metrics whose epoch is over: after a resume they begin anew.

    Returns:
        By path: `None` for one that begins anew, else its number of updates and its states. Metrics without an update
        are left out.
    """
    found: dict[str, Any] = {}
    if "torchmetrics" not in sys.modules:
        return found
    for child in module.modules():
        if is_collection(child):
            child.values(copy_state=False)  # brings the members of its compute groups up to date
    over = {id(child) for metric in done for child in metric.modules()}
    for path, metric in _metrics(module):
        # Wrappers such as MinMaxMetric keep tensors that are no declared states, and do not count updates.
        own = {key: value for key, value in vars(metric).items() if isinstance(value, Tensor) and key[0] != "_"}
        if id(metric) in over:
            found[path] = None
        elif metric.update_called or own.keys() - metric.metric_state.keys():
            state = {
                name: value.detach().clone() if isinstance(value, Tensor) else list(value)
                for name, value in {**own, **metric.metric_state}.items()
            }
            found[path] = {"updates": metric.update_count, "state": state}
    return found


def load_metric_states(module: Any, states: dict[str, Any]) -> None:
    """Take back what `metric_states` returned; metrics without a state begin anew.

    Args:
        module: Where the metrics are.
        states: By path.
    """
    for path, metric in _metrics(module):
        kept = states.get(path)
        if kept is None:
            if path in states or metric.update_called:
                metric.reset()
            continue
        metric.reset()
        for name, value in kept["state"].items():
            if isinstance(value, Tensor):
                setattr(metric, name, value.to(metric.device))
            else:
                setattr(metric, name, [item.to(metric.device) for item in value])
        setattr(metric, "_update_count", kept["updates"])  # noqa: B010  # a name that is torchmetrics' own

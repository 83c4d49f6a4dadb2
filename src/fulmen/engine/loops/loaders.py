"""Which loaders a run has, where they come from, and how their batches get to the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fulmen.core.datahooks import DataHooks
from fulmen.core.module import LightningModule
from fulmen.data.combined import AnyPlan
from fulmen.data.prefetch import CudaBoundary, DeviceBoundary, DevicePrefetcher
from fulmen.data.sources import Stage, loader_plans
from fulmen.data.transfer import BatchTransfer
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.hooks.spec import PREDICT, SPECS, TEST, TRAIN_LOADER, TRANSFER, VALIDATION, StageNames
from fulmen.engine.hooks.table import overrides
from fulmen.engine.loops.control import RunControl
from fulmen.errors import DataError
from fulmen.utilities.combined_loader import CombinedLoader, Nesting, map_loaders

_STAGES: dict[str, Stage] = {VALIDATION.loader: "val", TEST.loader: "test", PREDICT.loader: "predict"}
_ARGUMENTS = {
    TRAIN_LOADER: "train_dataloaders",
    VALIDATION.loader: "val_dataloaders",
    TEST.loader: "dataloaders",
    PREDICT.loader: "dataloaders",
}


class Loaders:
    """Loader plans of a run, made on first use.

    Args:
        module: The user's module.
        datamodule: The data module, or `None`.
        given: Loaders passed to `fit` and so on, by hook name; they win over hooks.
        control: Limits.
        device: Where batches go.
        convert_input: Precision's conversion of a batch, `None` for none.
        bind_transfer: The strategy's way around the transfer of a batch.
        cursor: Where the run is.
        by_count: Believe the length that loaders tell.
        process: What exchanges a loader for another (a strategy's subclass may), `None` for nothing.
        overfit: Gives training and validation loaders that do not shuffle, `None` to leave them.
    """

    def __init__(
        self,
        module: Any,
        datamodule: Any,
        given: dict[str, Any],
        control: RunControl,
        device: Any,
        convert_input: Callable[[Any], Any] | None,
        bind_transfer: Callable[[Callable[..., Any]], Callable[..., Any]],
        *,
        cursor: Cursor,
        by_count: bool = False,
        process: Callable[[Any], Any] | None = None,
        overfit: Callable[[Any, str], Any] | None = None,
    ) -> None:
        self.module = module
        self.datamodule = datamodule
        self.given = {name: value for name, value in given.items() if value is not None}
        self.control = control
        self.device = device
        self.convert_input = convert_input
        self.bind_transfer = bind_transfer
        self.cursor = cursor
        self.by_count = by_count
        self.process = process
        self.overfit = overfit
        self.boundary: Callable[[Any], DeviceBoundary] = CudaBoundary
        self.train_plan: AnyPlan | None = None
        self.eval_plans: dict[str, list[AnyPlan]] = {}
        self.values: dict[str, Any] = {}

    def source(self, name: str) -> tuple[Any, str] | None:
        """Who gives the loader of hook `name`, and its description; `None` if nobody does."""
        if name in self.given:
            return self.given[name], f"the argument `{_ARGUMENTS[name]}`"
        owner = self.datamodule if self.datamodule is not None else self.module
        base = DataHooks if self.datamodule is not None else LightningModule
        if owner is not None and overrides(owner, name, base):
            return getattr(owner, name), f"{type(owner).__name__}.{name}"
        return None

    def has(self, name: str) -> bool:
        """Whether there is a loader for hook `name`."""
        return self.source(name) is not None

    def _request(self, name: str, stage: Stage, limit: Any) -> list[AnyPlan]:
        found = self.source(name)
        if found is None:
            raise DataError(missing_loader(name, type(self.module).__name__))
        value, owner = found
        if name not in self.given:
            value = self._call(name, value)
        self.values[name] = value.iterables if isinstance(value, CombinedLoader) else value
        if self.overfit is not None and stage in ("train", "val"):
            value = self.overfit(value, stage)
        if self.process is not None:
            value = map_loaders(value, self.process)
        # States of workers come with their batches (12 kB each): where they are needed to go on exactly from a file.
        track = stage == "train" or _any_has(value, "persistent_workers")
        return loader_plans(
            value, stage=stage, limit=limit, owner_name=owner, by_count=self.by_count, track_workers=track
        )

    def relimit(self, names: StageNames) -> None:
        """The limit of an evaluation stage was set during the run."""
        for plan in self.opened(names):
            plan.relimit(getattr(self.control.limits, _STAGES[names.loader]))

    def train(self, *, reload: bool = False) -> AnyPlan:
        """The plan of the training loader.

        Args:
            reload: Ask the hook again.
        """
        if self.train_plan is None or reload:
            if self.train_plan is not None:
                self.train_plan.close()
            plans = self._request(TRAIN_LOADER, "train", self.control.limits.train)
            self.train_plan = plans[0]
        return self.train_plan

    def evaluation(self, names: StageNames, *, reload: bool = False) -> list[AnyPlan]:
        """The plans of an evaluation stage.

        Args:
            names: The stage's hooks.
            reload: Ask the hook again.
        """
        plans = self.eval_plans.get(names.loader)
        if plans is None or reload:
            for plan in plans or ():
                plan.close()
            stage = _STAGES[names.loader]
            plans = self._request(names.loader, stage, getattr(self.control.limits, stage))
            self.eval_plans[names.loader] = plans
        return plans

    def opened(self, names: StageNames) -> list[AnyPlan]:
        """The plans of an evaluation stage that were made already."""
        return self.eval_plans.get(names.loader, [])

    def prefetched(self, run: Any, plan: AnyPlan) -> Any:
        """The run of a training epoch, one batch ahead on an accelerator where that changes nothing but time.

        That is so if the loader pins memory, has workers (else its random numbers would be drawn earlier), and nobody
        overrides a transfer hook.
        """
        worthwhile = all(getattr(x, "pin_memory", False) and getattr(x, "num_workers", 0) for x in _leaves(plan.loader))
        if self.device.type != "cuda" or not worthwhile or any(self._transfer_hook(name) for name in TRANSFER):
            return run
        return DevicePrefetcher(run, self.transfer(), self.boundary(self.device))

    def transfer_of(self, run: Any) -> Callable[[Any, int], Any]:
        """What is left to do to bring the batches of `run` to the device."""
        return _there if isinstance(run, DevicePrefetcher) else self.transfer()

    def close(self) -> None:
        """End what loaders keep running, such as workers."""
        plans = [plan for plans in self.eval_plans.values() for plan in plans]
        for plan in [*plans, self.train_plan]:
            if plan is not None:
                plan.close()

    def transfer(self) -> Callable[[Any, int], Any]:
        """What moves a batch to the device, with the hooks that are overridden now."""
        before, move, after = (self._transfer_hook(name) for name in TRANSFER)
        transfer = BatchTransfer(before, move, after, device=self.device, convert_input=self.convert_input)
        return self.bind_transfer(transfer)

    def _transfer_hook(self, name: str) -> Callable[..., Any] | None:
        if self.datamodule is not None and overrides(self.datamodule, name, DataHooks):
            return partial(self._call, name, getattr(self.datamodule, name))
        if overrides(self.module, name, LightningModule):
            return partial(self._call, name, getattr(self.module, name))
        return None

    def _call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a hook of the user's with the cursor on it."""
        cursor = self.cursor
        outer, cursor.hook = cursor.hook, SPECS[name]
        result = function(*args)
        cursor.hook = outer
        return result


def _there(batch: Any, dataloader_idx: int) -> Any:
    return batch


def _leaves(value: Any) -> list[Any]:
    return value.flattened if isinstance(value, CombinedLoader) else Nesting(value).leaves


def _any_has(value: Any, attribute: str) -> bool:
    return any(getattr(loader, attribute, False) for loader in _leaves(value))


def missing_loader(name: str, module: str, *, fitting: bool = True) -> str:
    """The error text for a loader that nobody gives."""
    argument = _ARGUMENTS[name] if fitting else "dataloaders"
    return (
        f"There is no `{name}`. Give one in one of three ways: pass `{argument}=` to the Trainer's method, pass a "
        f"LightningDataModule that defines `{name}`, or define `{name}` on {module}."
    )

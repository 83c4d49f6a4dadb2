"""Batch norm statistics of the present weights, instead of a moving average over past ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from fulmen.callbacks.callback import Callback
from fulmen.data.rng import find_generators, generator_states, set_generator_states
from fulmen.data.runs import end_workers
from fulmen.data.taps import make_twin
from fulmen.engine.hooks.spec import TRAINING_STEP
from fulmen.engine.loops.marks import StateMarks
from fulmen.engine.loops.modes import ModeKeeper
from fulmen.engine.results.entry import wide
from fulmen.engine.results.pieces import HeldResults
from fulmen.errors import ArgumentTypeError, ArgumentValueError, DataError, MisconfigurationException
from fulmen.utilities.combined_loader import CombinedLoader
from fulmen.utilities.seed import isolate_rng

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class PreciseBatchNorm(Callback):
    """Computes the running statistics of batch norm layers anew before each validation of a fit, and at its end.

    A pass over training batches without gradients; the statistics are those of all their samples together, as if they
    were one batch (Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021, section 3.1). Layers are in the modes that
    they have in training, dropout included; frozen batch norm layers (in evaluation mode) are left alone. Everything
    else is as if the pass had not been: random numbers, the training loader's position, logged values, metrics, other
    buffers, gradients of an open accumulation window. So weights are trained the same with and without it.

    Example::

        Trainer(callbacks=[PreciseBatchNorm(num_batches=100)])

    Args:
        num_batches: Most training batches to use, `None` for an epoch of them.
        dataloader: Where batches come from; the training loader if not given.
        forward: Called with the module and a batch (on its device) instead of `training_step`; needed in manual
            optimization.

    Raises:
        ArgumentTypeError: `num_batches` is no whole number, or `forward` cannot be called.
        ArgumentValueError: `num_batches` is less than 1.
        MisconfigurationException: At the start of a fit: manual optimization without `forward`.
        DataError: The loader can be iterated only once at a time, or gives no batch.
    """

    def __init__(
        self,
        num_batches: int | None = 200,
        dataloader: Any = None,
        forward: Callable[[LightningModule, Any], Any] | None = None,
    ) -> None:
        given: Any = num_batches
        if given is not None:
            if isinstance(given, bool) or not isinstance(given, int):
                raise ArgumentTypeError(
                    f"PreciseBatchNorm(num_batches={given!r}): must be an int of at least 1, or None."
                )
            if given < 1:
                raise ArgumentValueError(f"PreciseBatchNorm(num_batches={given}): must be at least 1, or None.")
        if forward is not None and not callable(forward):
            raise ArgumentTypeError(f"PreciseBatchNorm(forward={forward!r}): must be a function of module and batch.")
        self.num_batches = num_batches
        self.dataloader = dataloader
        self.forward = forward
        self._done_at = -1
        self._modes: ModeKeeper | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that the step can be run."""
        if self.forward is not None:
            return
        session = trainer.session
        assert session is not None
        room = session.optimization
        if not pl_module.automatic_optimization or room.takes_iterator or room.indexed:
            raise MisconfigurationException(
                f"PreciseBatchNorm runs `training_step` for its statistics, and that of {type(pl_module).__name__} "
                "steps the optimizer, fetches batches itself or takes `optimizer_idx`. Say what to run: "
                "`PreciseBatchNorm(forward=lambda module, batch: module(batch[0]))`."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note which layers train."""
        self._modes = ModeKeeper(pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note which layers train."""
        self._modes = ModeKeeper(pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compute the statistics; not for the sanity check, and not in `Trainer.validate`."""
        if self._modes is not None and not trainer.sanity_checking:
            self._update(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compute the statistics of the last weights, unless a validation did."""
        self._update(trainer, pl_module)
        self._modes = None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """The fit is over."""
        self._modes = None

    def state_dict(self) -> dict[str, Any]:
        """For which weights the statistics are."""
        return {"done_at": self._done_at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self._done_at = int(state_dict["done_at"])

    def _update(self, trainer: Trainer, module: LightningModule) -> None:
        session = trainer.session
        assert session is not None
        assert self._modes is not None
        if self._done_at == session.progress.total_batches:
            return
        now = ModeKeeper(module)
        cursor = trainer.cursor
        place = cursor.mark()
        marks = StateMarks(module, rng=False)
        marks.mark()
        sums: dict[nn.Module, _Moments] = {}
        handles: list[Any] = []
        cursor.stage, cursor.hook, cursor.dataloader_idx = "train", TRAINING_STEP, None
        held: Any = HeldResults(session.train_results, lambda: 1)
        cursor.results = held
        # Evaluation runs under inference mode, whose tensors a module could not train with later.
        with torch.inference_mode(False), torch.no_grad(), isolate_rng():
            self._modes.restore(module)
            for layer in module.modules():
                if _counts(layer):
                    sums[layer] = _Moments()
                    handles.append(layer.register_forward_pre_hook(partial(_observe, sums[layer])))
            try:
                if sums:
                    self._run(trainer, module)
            finally:
                for handle in handles:
                    handle.remove()
                cursor.back(place)
                now.restore(module)
                marks.put_back()
            for layer, moments in sums.items():
                moments.write(layer)
        self._done_at = session.progress.total_batches

    def _run(self, trainer: Trainer, module: LightningModule) -> None:
        session = trainer.session
        assert session is not None
        room, cursor, transfer = session.optimization, trainer.cursor, session.loaders.transfer()
        loader = trainer.train_dataloader if self.dataloader is None else self.dataloader
        most = math.inf if self.num_batches is None else self.num_batches
        if self.dataloader is None:
            most = min(most, trainer.num_training_batches)
        seen = 0
        for index, batch in enumerate(_fresh(loader, most)):
            batch = transfer(batch, 0)
            cursor.batch, cursor.batch_idx = batch, index
            with nullcontext() if room.context is None else room.context():
                if self.forward is not None:
                    self.forward(module, batch)
                else:
                    room.step_function(*((batch, index) if room.with_index else (batch,)))
            seen += 1
        if not seen:
            raise DataError("PreciseBatchNorm: the loader gave no batch, so that there is nothing to compute from.")


class _Moments:
    """Count, mean and sum of squared deviations per channel, joined batch by batch (Chan, Golub and LeVeque, 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = 0.0
        self.squares: Any = 0.0

    def add(self, values: Tensor) -> None:
        """Take a batch of shape (N, C, ...)."""
        values = values.detach().to(wide(values.device)).transpose(0, 1).flatten(1)
        count = values.size(1)
        if not count:
            return
        mean = values.mean(1)
        squares = (values - mean[:, None]).square().sum(1)
        total = self.count + count
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)
        self.squares = self.squares + squares + delta.square() * (self.count * count / total)
        self.count = total

    def write(self, layer: Any) -> None:
        """Put the statistics into a layer; one that the pass did not reach keeps its own."""
        if self.count:
            layer.running_mean.copy_(self.mean)
            layer.running_var.copy_(self.squares / max(self.count - 1, 1))  # unbiased, as torch's own


def _counts(layer: Any) -> bool:
    names = [base.__name__ for base in type(layer).__mro__]
    is_batch_norm = any("BatchNorm" in name for name in names)
    return is_batch_norm and layer.training and isinstance(getattr(layer, "running_mean", None), Tensor)


def _observe(moments: _Moments, layer: nn.Module, args: Any) -> None:
    moments.add(args[0])


def _fresh(loader: Any, most: int | float) -> Iterator[Any]:
    """Batches of a pass of its own, which leaves a pass that is under way alone."""
    parts = loader if isinstance(loader, (list, tuple)) else ()
    if isinstance(loader, (Mapping, CombinedLoader)) or any(isinstance(part, DataLoader) for part in parts):
        raise DataError(
            f"PreciseBatchNorm goes over one loader, and this run trains on several ({type(loader).__name__}). Give "
            "one that yields such batches: `PreciseBatchNorm(dataloader=...)`."
        )
    dataset: Any = getattr(loader, "dataset", None)
    owned = {"loader": find_generators(loader), "data": find_generators(SimpleNamespace(sampler=dataset))}
    states = {name: generator_states(generators) for name, generators in owned.items()}
    own = make_twin(loader, persistent_workers=False) if isinstance(loader, DataLoader) else loader
    single = isinstance(dataset, IterableDataset) and not getattr(loader, "num_workers", 0) and iter(dataset) is dataset
    iterator: Any = iter(own) if not single else loader
    if iterator is loader:
        what = type(dataset if single else loader).__name__
        raise DataError(
            f"PreciseBatchNorm needs a second pass beside the one that trains, and {what} can be iterated only once at "
            "a time. Give a loader for it: `PreciseBatchNorm(dataloader=...)`."
        )
    try:
        yield from iterator if most == math.inf else islice(iterator, int(most))
    finally:
        end_workers(iterator, persistent=True)
        for name, generators in owned.items():
            set_generator_states(generators, states[name])

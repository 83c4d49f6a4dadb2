"""The automatic step with safeguards: weights of losses in a window, bad batches left out, large batches in parts.

It takes the place of `AutomaticStep` if `accumulate_normalize`, `skip_bad_batches` or `on_oom` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fulmen.core.optimizer import LightningOptimizer
from fulmen.engine.loops.bad_batches import DEFAULT_LIMIT, BadBatches
from fulmen.engine.loops.manual import ManualStep
from fulmen.engine.loops.marks import StateMarks
from fulmen.engine.loops.normalize import Normalizer, resolve_count
from fulmen.engine.loops.oom import Splitter, join_outputs, parts_of, refuse_batch_norm
from fulmen.engine.loops.step_room import StepRoom, clear_gradients
from fulmen.engine.loops.steps import AutomaticStep, SkipStep
from fulmen.engine.results.pieces import HeldResults
from fulmen.engine.runtime.flags import TrainerFlags
from fulmen.errors import MisconfigurationException
from fulmen.utilities.system import garbage_collection_cuda, is_out_of_memory


def make_room(module: Any, *args: Any, flags: TrainerFlags, note: Callable[..., None]) -> StepRoom:
    """The step room of a run: automatic or manual, with safeguards if one was asked for.

    Args:
        module: The user's module.
        *args: Further arguments of the rooms.
        flags: The Trainer's arguments.
        note: Writes an entry of the run record.

    Raises:
        MisconfigurationException: For safeguards in manual optimization, or that do not go with the module.
    """
    names = [name for name in ("accumulate_normalize", "skip_bad_batches", "on_oom") if getattr(flags, name)]
    if not names:
        kind = AutomaticStep if module.automatic_optimization else ManualStep
        return kind(module, *args)
    if not module.automatic_optimization:
        shown = ", ".join(f"{name}={getattr(flags, name)!r}" for name in names)
        raise MisconfigurationException(
            f"Trainer({shown}) works in automatic optimization only, and {type(module).__name__}."
            "automatic_optimization is False. Leave it out, and do it in `training_step`."
        )
    return GuardedStep(module, *args, flags=flags, note=note)


class GuardedStep(AutomaticStep):
    """`AutomaticStep` with safeguards.

    Args:
        *args: As in `StepRoom`.
        flags: The Trainer's arguments.
        note: Writes an entry of the run record.
    """

    def __init__(self, *args: Any, flags: TrainerFlags, note: Callable[..., None]) -> None:
        super().__init__(*args)
        owner = type(self.module).__name__
        count = resolve_count(flags.accumulate_normalize)
        self.normalizer = Normalizer(count, self.strategy.reduce) if count is not None else None
        limit = DEFAULT_LIMIT if flags.skip_bad_batches is True else int(flags.skip_bad_batches)
        self.bad_batches = BadBatches(limit, owner, note) if flags.skip_bad_batches else None
        self.splitter = Splitter(owner) if flags.on_oom else None
        if self.splitter is not None:
            refuse_batch_norm(self.module)
        self.marks = StateMarks(self.module, rng=self.splitter is not None)
        self.undoes = self.bad_batches is not None or self.splitter is not None
        self.why: str | None = None  # what is wrong with the batch at hand
        self.share = 1.0  # of the part at hand in its batch
        self.samples = 0  # of the part at hand; 0: not in parts
        self.before: dict[Tensor, Tensor] = {}  # gradients of the window's earlier batches
        self.cleared = self.announced = False
        self.more = False  # whether parts follow that the one at hand is not the last of
        self.judge = self.weigh

    def take_optimizers(self) -> None:
        """As in `AutomaticStep`.

        Raises:
            MisconfigurationException: For optimizers that a safeguard does not go with.
        """
        super().take_optimizers()
        several = len(self.control.optimizers) > 1 or self.indexed
        for name, guard in (("accumulate_normalize", self.normalizer), ("on_oom", self.splitter)):
            if guard is not None and several:
                raise MisconfigurationException(
                    f"Trainer({name}=...) works with one optimizer and no `optimizer_idx`, and "
                    f"{type(self.module).__name__}.configure_optimizers returned {len(self.control.optimizers)}. Leave "
                    "it out."
                )
        if self.bad_batches is not None and self.indexed:
            raise MisconfigurationException(
                f"Trainer(skip_bad_batches=...) does not go with {type(self.module).__name__}.training_step(..., "
                "optimizer_idx): one optimizer has stepped when the loss of the next is known. Return all losses at "
                "once, as `{'loss': {name: loss}}`, or leave it out."
            )
        if self.splitter is not None and self.keeps:
            kind = type(self.control.optimizers[0]).__name__
            raise MisconfigurationException(
                f"Trainer(on_oom='split') does not go with {kind}, which runs a batch several times for one update. "
                "Leave on_oom out."
            )

    def bind(self) -> None:
        """As in `AutomaticStep`; the long way is always taken."""
        super().bind()
        self.observed = True

    # --- a batch -----------------------------------------------------------------------------------------------

    def run(self, batch: Any, batch_idx: int, is_last: bool) -> None:
        """As in `AutomaticStep.run`; what the batch logged and changed is undone if it is left out."""
        self.why = None
        if self.normalizer is not None:
            self.normalizer.begin(first=self.progress.in_window == 0)
        if self.undoes:
            self.run_undoable(batch, batch_idx, is_last)
        else:
            super().run(batch, batch_idx, is_last)
        if self.normalizer is not None and self.loss is not None:
            self.loss = self.normalizer.shown(self.loss.detach())

    def run_undoable(self, batch: Any, batch_idx: int, is_last: bool) -> None:
        """A batch that may be left out, or be run again."""
        cursor = self.cursor
        results = cursor.results
        assert results is not None
        held: Any = HeldResults(results, self.held_size)
        cursor.results = held
        self.marks.mark()
        super().run(batch, batch_idx, is_last)
        cursor.results = results
        if self.why is not None and self.bad_batches is not None:
            held.drop()
            self.marks.put_back()
            self.gave_loss = True  # what is skipped is told in its own words
            progress = self.progress
            place = {"epoch": progress.epoch, "batch_idx": batch_idx, "step": progress.global_step}
            self.bad_batches.bad(self.why, batch, **place)
            return
        if self.bad_batches is not None:
            self.bad_batches.good()
        held.release(joined=self.samples > 0)
        self.samples = 0

    def held_size(self) -> float:
        """Weight of a value that is logged now."""
        return self.samples or 1

    def weigh(self, loss: Tensor | None, output: Any) -> Tensor | None:
        """The loss as it counts, `None` to leave the batch out."""
        named = isinstance(output, Mapping) and isinstance(output.get("loss"), Mapping)
        if self.bad_batches is not None and not self.by_hand and not (named and loss is None):
            why = self.bad_batches.why(loss)
            self.why = self.why or why
            if why is not None:
                return None
        if loss is None:
            return None
        if self.normalizer is not None:
            return self.normalizer.weigh(loss)
        return loss * self.share if self.share != 1.0 else loss

    def run_closure(self) -> Tensor | None:
        """As in `AutomaticStep.run_closure`, in parts if the batch does not fit."""
        if self.splitter is None:
            self._look(again=self.called)
            return super().run_closure()
        batch, finish, first, contributed = self.batch, self.finish, self.first, self.contributed
        hook = self.cursor.hook
        self.finish, self.cleared, self.announced = None, False, False
        self.before = self._gradients_to_keep()
        part = self._known_part(batch)
        while True:
            try:
                loss = self._run_parts(batch, part)
                break
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                size = self.splitter.size(batch)
                smaller = self.splitter.smaller(size, part or size)
                if smaller is None:
                    error.add_note("Trainer(on_oom='split'): a single sample does not fit.")
                    raise
            # Outside of `except`: the traceback, which holds the tensors of the step, is gone.
            part = smaller
            self.splitter.tell(size, part)
            self.cursor.hook, self.first = hook, first
            self._undo(contributed)
        self.batch, self.first, self.finish, self.before = batch, first, finish, {}
        self.share, self.more = 1.0, False
        if finish is not None:
            self.before_step(finish)
        return loss

    def _known_part(self, batch: Any) -> int | None:
        assert self.splitter is not None
        return self.splitter.fits.get(self.splitter.size(batch)) if self.splitter.fits else None

    def _gradients_to_keep(self) -> dict[Tensor, Tensor]:
        """Those that this batch adds to: all inside of a window, else those that no optimizer clears."""
        cleared: set[Tensor] = set()
        if self.first:
            cleared = {p for group in self.control.optimizers[0].param_groups for p in group["params"]}
        return {p: p.grad for p in self.module.parameters() if p.grad is not None and p not in cleared}

    def _look(self, *, again: bool) -> None:
        if self.normalizer is not None:
            if again:
                self.normalizer.again()
            self.normalizer.look(self.batch)

    def _run_parts(self, batch: Any, part: int | None) -> Tensor | None:
        """The batch, whole or in parts; gradients of the window's earlier batches are put aside meanwhile."""
        first, contributed = self.first, self.contributed
        assert self.splitter is not None
        parts = [(batch, 0)] if part is None else list(parts_of(batch, self.splitter.size(batch), part))
        total = sum(samples for _, samples in parts)
        for parameter in self.before:
            parameter.grad = None
        losses: list[Tensor] = []
        outputs: list[tuple[Mapping[str, Any], int]] = []
        for index, (self.batch, self.samples) in enumerate(parts):
            self.first = first and index == 0
            self.more = index + 1 < len(parts)
            self.share = self.samples / total if total else 1.0
            if self.contributed == contributed:
                self.called = False  # no part has given a loss yet
            self._look(again=False)
            loss = super().run_closure()
            if self.why is not None:
                break
            if loss is not None:
                losses.append(loss.detach())
            if self.output is not None:
                outputs.append((self.output, self.samples))
        if self.why is not None:
            # Parts before the bad one have left gradients.
            self.contributed, self.loss = contributed, None
            if self.normalizer is not None:
                self.normalizer.again()
            for parameter in self.module.parameters():
                parameter.grad = None
        for parameter, gradient in self.before.items():
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        if len(parts) > 1 and losses and self.why is None:
            self.loss = sum(losses[1:], losses[0])
            self.output = join_outputs(outputs) if outputs else None
        return self.loss

    def _undo(self, contributed: int) -> None:
        """All that the attempt left behind, before the next one."""
        garbage_collection_cuda()
        held: Any = self.cursor.results
        held.drop()
        self.marks.put_back()
        self.contributed, self.loss, self.output, self.why = contributed, None, None, None
        if self.normalizer is not None:
            self.normalizer.again()
        for parameter in self.module.parameters():
            parameter.grad = self.before.get(parameter)

    def zero_grad(self, optimizer: LightningOptimizer) -> None:
        """As in `AutomaticStep`; hooks once for a batch."""
        if self.cleared:
            clear_gradients(optimizer.optimizer)
            return
        super().zero_grad(optimizer)
        self.cleared = self.splitter is not None

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """As in `StepRoom`; hooks once for a batch."""
        hooks = self.hooks
        before, after = hooks.on_before_backward, hooks.on_after_backward
        if self.announced:
            hooks.on_before_backward = None
        if self.more:
            hooks.on_after_backward = None
        self.announced = self.splitter is not None
        try:
            super().backward(loss, *args, **kwargs)
        finally:  # unless the table was built anew meanwhile
            hooks.on_before_backward = hooks.on_before_backward or before
            hooks.on_after_backward = hooks.on_after_backward or after

    # --- the end of a window -----------------------------------------------------------------------------------

    def before_step(self, optimizer: LightningOptimizer) -> None:
        """As in `AutomaticStep`, with gradients brought to the window's mean first."""
        if self.normalizer is not None and self.contributed:
            self.multiply(optimizer, self.normalizer.factor(self.divisor))
        super().before_step(optimizer)

    def mend(self, optimizer: LightningOptimizer) -> None:
        """As in `AutomaticStep`; a normalised window is the mean already, and one without a good batch is no step.

        Raises:
            SkipStep: If no batch gave a loss.
        """
        if not self.contributed and self.bad_batches is not None:
            raise SkipStep
        if self.normalizer is not None and self.contributed:
            return
        if self.bad_batches is not None and self.contributed:
            self.multiply(optimizer, self.divisor / self.contributed)
            return
        super().mend(optimizer)

    def multiply(self, optimizer: LightningOptimizer, factor: float) -> None:
        """Multiply an optimizer's gradients."""
        if factor == 1.0:
            return
        for group in optimizer.optimizer.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.grad.mul_(factor)

    def report(self) -> None:
        """What is to be said at the end of the fit."""
        if self.bad_batches is not None:
            self.bad_batches.report()

    # --- state -------------------------------------------------------------------------------------------------

    def _guards(self) -> dict[str, Any]:
        guards: dict[str, Any] = {"skipped": self.bad_batches, "parts": self.splitter, "counts": self.normalizer}
        return {name: guard for name, guard in guards.items() if guard is not None}

    def state_dict(self) -> dict[str, Any]:
        """As in `AutomaticStep`, with the counts of the safeguards."""
        guards = {name: guard.state_dict() for name, guard in self._guards().items()}
        return {**super().state_dict(), "guards": guards}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        super().load_state_dict(state_dict)
        kept = state_dict.get("guards") or {}
        for name, guard in self._guards().items():
            if name in kept:
                guard.load_state_dict(kept[name])

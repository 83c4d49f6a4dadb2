"""Print what the model consists of when `fit` begins."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.callback import Callback
from fulmen.callbacks.console import output_kind
from fulmen.export.summary import ModelSummary as Summary
from fulmen.export.summary import check_depth, format_table, total_lines
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class ModelSummary(Callback):
    """Logs a table of the model's layers when `fit` begins: types, parameters, modes, and with an example input sizes.

    Args:
        max_depth: Levels of nesting to show; 0 shows nothing, -1 all.
        **summarize_kwargs: Handed on to `summarize`, for subclasses.

    Raises:
        ArgumentTypeError: `max_depth` is no whole number.
        ArgumentValueError: `max_depth` is less than -1.
    """

    def __init__(self, max_depth: int = 1, **summarize_kwargs: Any) -> None:
        check_depth(max_depth, type(self).__name__)
        self._max_depth = max_depth
        self._summarize_kwargs = summarize_kwargs

    @property
    def max_depth(self) -> int:
        """Levels of nesting that are shown."""
        return self._max_depth

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the summary on all ranks (the example's forward pass may be a collective); show it on the first."""
        if self._max_depth == 0:
            return
        summary = self._summary(trainer, pl_module)
        if trainer.is_global_zero:
            self.summarize(
                summary.columns(),
                summary.total_parameters,
                summary.trainable_parameters,
                summary.model_size,
                summary.total_training_modes,
                total_flops=summary.total_flops,
                **self._summarize_kwargs,
            )

    def _summary(self, trainer: Trainer, pl_module: LightningModule) -> Summary:
        precision = getattr(trainer, "precision_plugin", None)
        if precision is None:
            return Summary(pl_module, self._max_depth)
        return Summary(pl_module, self._max_depth, context=precision.context, convert=precision.convert_input)

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]],
        total_parameters: int,
        trainable_parameters: int,
        model_size: float,
        total_training_modes: dict[str, int],
        total_flops: int,
        **summarize_kwargs: Any,
    ) -> None:
        """Show the table; override it to show it elsewhere.

        Args:
            summary_data: Columns: pairs of title and cells.
            total_parameters: All parameters.
            trainable_parameters: Those that need a gradient.
            model_size: MB.
            total_training_modes: Modules in ``"train"`` and ``"eval"`` mode.
            total_flops: FLOPs of one forward pass; 0 if unknown.
            **summarize_kwargs: What the constructor was given.
        """
        totals = total_lines(total_parameters, trainable_parameters, model_size, total_training_modes, total_flops)
        rank_zero_info("\n" + format_table(summary_data, totals))


def default_model_summary(max_depth: int = 1) -> ModelSummary:
    """Return the summary callback that fits standard output: with rich on a terminal, as text elsewhere."""
    if output_kind() == "terminal":
        with contextlib.suppress(ImportError):
            from fulmen.callbacks.rich_model_summary import RichModelSummary

            return RichModelSummary(max_depth)
    return ModelSummary(max_depth)

"""The bar drawn with tqdm, under Lightning's names; tqdm is not a dependency of Fulmen."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.console import format_seconds
from fulmen.callbacks.progress.timed_progress import TimedProgressBar
from fulmen.callbacks.progress.whole_run import RunState
from fulmen.errors import ArgumentTypeError, ArgumentValueError
from fulmen.utilities.imports import module_available

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule

_HAS_TQDM = module_available("tqdm")
if _HAS_TQDM:
    # `tqdm.auto` draws a widget in notebooks, and warns there if ipywidgets is missing.
    if module_available("ipywidgets"):
        from tqdm.auto import tqdm as _tqdm
    else:
        from tqdm import tqdm as _tqdm
else:
    _tqdm = object

_WIDTH = 5  # characters of a number, so that the line does not jump


class Tqdm(_tqdm):
    """A tqdm bar whose numbers have a fixed width, and that starts no monitor thread."""

    monitor_interval = 0

    @staticmethod
    def format_num(n: float | str) -> str:
        """Write a number as tqdm does, filled up with zeros; text and whole numbers stay as they are."""
        text = n if isinstance(n, str) else str(_tqdm.format_num(n))
        if isinstance(n, int) or "e" in text:
            return text
        try:
            float(text)
        except ValueError:
            return text
        if "." not in text and len(text) < _WIDTH:
            text += "."
        return text.ljust(_WIDTH, "0") if "." in text else text


class TQDMProgressBar(TimedProgressBar):
    """Progress with tqdm: a training bar, below it a validation bar while it runs; test and prediction bars.

    Bars are drawn every `refresh_rate` batches, but ten times a second at most. Override `init_train_tqdm` and its
    siblings to make other bars.

    Args:
        refresh_rate: Draw after this many batches; 0 switches the bars off.
        process_position: Lines to leave free above, for bars of other processes.
        leave: Keep the finished bar of each epoch on the screen.
        total_bar: Also show one bar with time left over all epochs, up to `max_steps` or `max_time`.

    Raises:
        ModuleNotFoundError: tqdm is not installed.
        ArgumentTypeError: A number that is none.
        ArgumentValueError: A negative number.
    """

    BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"

    def __init__(
        self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False, *, total_bar: bool = False
    ) -> None:
        if not _HAS_TQDM:
            raise ModuleNotFoundError(
                "TQDMProgressBar needs tqdm, which is not installed: `pip install tqdm`; or use RichProgressBar, "
                "which needs nothing more."
            )
        for name, value in (("refresh_rate", refresh_rate), ("process_position", process_position)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentTypeError(f"TQDMProgressBar({name}={value!r}): give a whole number.")
            if value < 0:
                raise ArgumentValueError(f"TQDMProgressBar({name}={value!r}): give 0 or more.")
        super().__init__()
        self._refresh_rate = self._resolve_refresh_rate(refresh_rate)
        self._process_position = process_position
        self._leave = leave
        self.total_bar = total_bar
        self._bars: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the bars on the screen."""
        return {**super().__getstate__(), "_bars": {}}

    # ------------------------------------------------------------------------------------------- what subclasses read
    @property
    def refresh_rate(self) -> int:
        """Batches between two drawings."""
        return self._refresh_rate

    @property
    def process_position(self) -> int:
        """Lines left free above."""
        return self._process_position

    @property
    def is_enabled(self) -> bool:
        """Whether the bars show anything."""
        return self._enabled and self.refresh_rate > 0

    @property
    def train_progress_bar(self) -> Any:
        """The training bar."""
        return self._bar("train")

    @train_progress_bar.setter
    def train_progress_bar(self, bar: Any) -> None:
        self._bars["train"] = bar

    @property
    def run_progress_bar(self) -> Any:
        """The bar of the whole run, with `total_bar`."""
        return self._bar("run")

    @property
    def val_progress_bar(self) -> Any:
        """The bar of validation, or of the sanity check."""
        return self._bar("validate")

    @val_progress_bar.setter
    def val_progress_bar(self, bar: Any) -> None:
        self._bars["validate"] = bar

    @property
    def test_progress_bar(self) -> Any:
        """The test bar."""
        return self._bar("test")

    @test_progress_bar.setter
    def test_progress_bar(self, bar: Any) -> None:
        self._bars["test"] = bar

    @property
    def predict_progress_bar(self) -> Any:
        """The prediction bar."""
        return self._bar("predict")

    @predict_progress_bar.setter
    def predict_progress_bar(self, bar: Any) -> None:
        self._bars["predict"] = bar

    def _bar(self, stage: str) -> Any:
        bar = self._bars.get(stage)
        if bar is None:
            raise TypeError(f"{type(self).__name__} has no bar for {stage!r} yet: it is made when the stage begins.")
        return bar

    # --------------------------------------------------------------------------------------------------- making bars
    def _tqdm(self, description: str, *, position: int = 0, leave: bool = True, **kwargs: Any) -> Tqdm:
        return Tqdm(
            desc=description,
            position=(3 if self.total_bar else 2) * self.process_position + position,
            disable=self.is_disabled,
            leave=leave,
            dynamic_ncols=True,
            file=sys.stdout,
            bar_format=self.BAR_FORMAT,
            **kwargs,
        )

    def init_sanity_tqdm(self) -> Tqdm:
        """Make the bar of the sanity check."""
        return self._tqdm(self.sanity_check_description, leave=False)

    def init_train_tqdm(self) -> Tqdm:
        """Make the training bar."""
        return self._tqdm(self.train_description, smoothing=0)

    def init_validation_tqdm(self) -> Tqdm:
        """Make the validation bar: below the training bar in `fit`, alone in `validate`."""
        alone = self.trainer.state.fn == "validate"
        return self._tqdm(self.validation_description, position=0 if alone else 1, leave=alone)

    def init_run_tqdm(self) -> Tqdm:
        """Make the bar of the whole run: below the training and the validation bar."""
        return self._tqdm("Run", position=2, smoothing=0)

    def init_test_tqdm(self) -> Tqdm:
        """Make the test bar."""
        return self._tqdm(self.test_description)

    def init_predict_tqdm(self) -> Tqdm:
        """Make the prediction bar."""
        return self._tqdm(self.predict_description, smoothing=0)

    def _should_update(self, current: int, total: int | float | None) -> bool:
        return self.is_enabled and (current % self.refresh_rate == 0 or current == total)

    @staticmethod
    def _resolve_refresh_rate(refresh_rate: int) -> int:
        if refresh_rate == 1 and os.environ.get("COLAB_GPU"):
            return 20  # Colab's output channel cannot take more
        try:
            return max(refresh_rate, int(os.environ["TQDM_MINITERS"])) if refresh_rate else 0
        except (KeyError, ValueError):
            return refresh_rate

    # ------------------------------------------------------------------------------------------------ drawing by time
    def _open(self, stage: str) -> None:
        if stage == "train":
            self.train_progress_bar = self.init_train_tqdm()
            state = self._run_state(0) if self.total_bar else None
            if state is not None:
                self._bars["run"] = self.init_run_tqdm()
                self._begin_run_bar(state)
        elif stage == "sanity":
            self.val_progress_bar = self.init_sanity_tqdm()
        elif stage == "validate":
            train = self._bars.get("train")
            if train is not None and not train.disable and self.trainer.state.fn == "fit":
                train.n = self._train_done
            self.val_progress_bar = self.init_validation_tqdm()
        elif stage == "test":
            self.test_progress_bar = self.init_test_tqdm()
        else:
            self.predict_progress_bar = self.init_predict_tqdm()

    def _begin(self, stage: str, total: int | float) -> None:
        if stage == "train" and self._leave and self.trainer.current_epoch > 0 and self.train_progress_bar.n > 0:
            self.train_progress_bar.close()
            self.train_progress_bar = self.init_train_tqdm()
        bar = self._bar(_BARS.get(stage, stage))
        if bar.disable:
            return
        # tqdm's own `reset` draws at once, which many short epochs cannot pay.
        bar.n = bar.last_print_n = bar.initial = 0
        bar.total = convert_inf(total)
        bar.start_t = bar.last_print_t = time.time()
        text = self._title(stage)
        if stage != "train":
            text = f"{self._stage_name(stage)} DataLoader {self._current_eval_dataloader_idx or 0}"
        bar.set_description(text, refresh=False)

    def _start_at(self, done: int) -> None:
        super()._start_at(done)
        bar = self._bars.get("train")
        if done > 0 and bar is not None and not bar.disable:
            bar.initial, bar.total = done, convert_inf(self.total_train_batches)
        if done > 0 and "run" in self._bars and (state := self._run_state(done)) is not None:
            self._begin_run_bar(state)

    def _begin_run_bar(self, state: RunState) -> None:
        """Count from where the run is; what was done before says nothing about its speed."""
        bar = self._bars["run"]
        if not bar.disable:
            bar.unit = {"batches": "it", "seconds": "s"}.get(state.unit, f" {state.unit}")
            bar.start_t = bar.last_print_t = time.time()
            bar.initial = bar.last_print_n = state.done
            self._count_run(state)

    def _count_run(self, state: RunState) -> None:
        bar = self._bars["run"]
        bar.n, bar.total = round(state.done, 2), state.total
        if state.most is not None and state.unit != "seconds":
            bar.set_postfix_str(f"at most {format_seconds(state.most)}", refresh=False)

    def _draw(self, stage: str, done: int, pl_module: LightningModule, last: bool) -> bool:
        bar = self._bars.get(_BARS.get(stage, stage))
        if bar is None or bar.disable or not (last or self._should_update(done, bar.total)):
            return False
        bar.n = done
        run = self._run_bar() if stage == "train" else None
        if run is not None and (state := self._run_state(done)) is not None:
            self._count_run(state)
        if last and not self.is_due:
            return False
        self._postfix(stage, bar, pl_module)
        bar.refresh()
        if run is not None:
            run.refresh()
        return True

    def _run_bar(self) -> Any:
        bar = self._bars.get("run")
        return None if bar is None or bar.disable else bar

    def _postfix(self, stage: str, bar: Any, pl_module: LightningModule) -> None:
        if stage == "train":
            bar.set_postfix(self.get_metrics(self.trainer, pl_module), refresh=False)

    def _close(self, stage: str) -> None:
        bar = self._bars.get(_BARS.get(stage, stage))
        if bar is None:
            return
        if stage == "train" and not bar.disable:
            self._postfix(stage, bar, self.trainer.lightning_module)
        if not bar.disable:
            bar.refresh()
        bar.close()
        if stage == "train" and (run := self._run_bar()) is not None:
            run.refresh()
            run.close()

    def _stop(self) -> None:
        for bar in self._bars.values():
            bar.close()
        self._bars.pop("run", None)

    def _hide(self) -> None:
        for bar in self._bars.values():
            if not bar.disable:
                bar.clear()

    def print(self, *args: Any, sep: str = " ", **kwargs: Any) -> None:
        """Print above the bars."""
        if any(not bar.disable for bar in self._bars.values()):
            Tqdm.write(sep.join(map(str, args)), **{"file": sys.stdout, **kwargs})
        else:
            print(*args, sep=sep, **kwargs)


_BARS = {"sanity": "validate"}


def convert_inf(x: int | float | None) -> int | float | None:
    """Return `None` for what tqdm cannot take as a total: infinity and NaN."""
    return None if x is None or math.isinf(x) or math.isnan(x) else x

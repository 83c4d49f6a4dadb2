"""`trainer.limit_train_batches` and its kin: settable, with effect by the next batch boundary."""

from __future__ import annotations

from typing import Any

from fulmen.engine.hooks.spec import PREDICT, TEST, VALIDATION
from fulmen.engine.loops.control import RunControl, batches_of
from fulmen.engine.loops.session import Session
from fulmen.engine.runtime.flags import check_flag
from fulmen.engine.runtime.plan import Plan
from fulmen.trainer.states import TrainerFn, TrainerState

_STAGES = {"val": VALIDATION, "test": TEST, "predict": PREDICT}


class LimitViews:
    """The limits of batches as properties."""

    state: TrainerState
    plan: Plan
    _control: RunControl
    session: Session | None
    _loops: dict[str, Any]

    @property
    def overfit_batches(self) -> int | float:
        """Batches that training and validation use each epoch, without shuffling; 0 for all."""
        value: int | float = self.plan.flags.overfit_batches
        return value

    @property
    def limit_train_batches(self) -> int | float:
        """Training batches per epoch, or share of them; settable."""
        return self._limit("train")

    @limit_train_batches.setter
    def limit_train_batches(self, value: int | float | None) -> None:
        self._set_limit("train", value)

    @property
    def limit_val_batches(self) -> int | float:
        """Validation batches, or share of them; settable."""
        return self._limit("val")

    @limit_val_batches.setter
    def limit_val_batches(self, value: int | float | None) -> None:
        self._set_limit("val", value)

    @property
    def limit_test_batches(self) -> int | float:
        """Test batches, or share of them; settable."""
        return self._limit("test")

    @limit_test_batches.setter
    def limit_test_batches(self, value: int | float | None) -> None:
        self._set_limit("test", value)

    @property
    def limit_predict_batches(self) -> int | float:
        """Batches of prediction, or share of them; settable."""
        return self._limit("predict")

    @limit_predict_batches.setter
    def limit_predict_batches(self, value: int | float | None) -> None:
        self._set_limit("predict", value)

    def _limit(self, stage: str) -> int | float:
        value: int | float | None = getattr(self._control.limits, stage)
        return 1.0 if value is None else value

    def _set_limit(self, stage: str, value: int | float | None) -> None:
        check_flag(f"limit_{stage}_batches", value)
        setattr(self._control.limits, stage, batches_of(value))
        session, loop = self.session, self._loops.get(TrainerFn.FITTING)
        if session is None:
            return
        if stage in _STAGES:
            session.loaders.relimit(_STAGES[stage])
        elif loop is not None and self.state.fn == TrainerFn.FITTING:
            loop.relimit()

"""A callback made of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fulmen.callbacks.callback import Callback
from fulmen.errors import ArgumentTypeError

Function = Callable[..., Any]


class LambdaCallback(Callback):
    """Makes a callback of functions, one for each hook that is given.

    A function gets what the hook gets: the trainer, the module, and the hook's own arguments.

    Example::

        LambdaCallback(on_train_epoch_end=lambda trainer, module: print(trainer.current_epoch))

    Raises:
        ArgumentTypeError: A value that cannot be called.
    """

    def __init__(
        self,
        setup: Function | None = None,
        teardown: Function | None = None,
        on_fit_start: Function | None = None,
        on_fit_end: Function | None = None,
        on_sanity_check_start: Function | None = None,
        on_sanity_check_end: Function | None = None,
        on_train_batch_start: Function | None = None,
        on_train_batch_end: Function | None = None,
        on_train_epoch_start: Function | None = None,
        on_train_epoch_end: Function | None = None,
        on_validation_epoch_start: Function | None = None,
        on_validation_epoch_end: Function | None = None,
        on_test_epoch_start: Function | None = None,
        on_test_epoch_end: Function | None = None,
        on_validation_batch_start: Function | None = None,
        on_validation_batch_end: Function | None = None,
        on_test_batch_start: Function | None = None,
        on_test_batch_end: Function | None = None,
        on_train_start: Function | None = None,
        on_train_end: Function | None = None,
        on_validation_start: Function | None = None,
        on_validation_end: Function | None = None,
        on_test_start: Function | None = None,
        on_test_end: Function | None = None,
        on_exception: Function | None = None,
        on_save_checkpoint: Function | None = None,
        on_load_checkpoint: Function | None = None,
        on_before_backward: Function | None = None,
        on_after_backward: Function | None = None,
        on_before_optimizer_step: Function | None = None,
        on_before_zero_grad: Function | None = None,
        on_predict_start: Function | None = None,
        on_predict_end: Function | None = None,
        on_predict_batch_start: Function | None = None,
        on_predict_batch_end: Function | None = None,
        on_predict_epoch_start: Function | None = None,
        on_predict_epoch_end: Function | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self" and value is not None}
        for name, function in given.items():
            if not callable(function):
                raise ArgumentTypeError(
                    f"LambdaCallback({name}={function!r}): give a function; it gets the trainer, the module, and what "
                    f"the hook gets besides."
                )
            setattr(self, name, function)

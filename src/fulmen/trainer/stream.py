"""`predict(stream=True)`: a run that stands still while its caller works with an output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fulmen.errors import ArgumentTypeError, MisconfigurationException
from fulmen.trainer.aside import refuse_beside_stream, step_aside, step_in
from fulmen.trainer.run import Request, RunGuard

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


def check_stream(stream: object, return_predictions: bool | None) -> None:
    """Check `predict`'s argument `stream`.

    Raises:
        ArgumentTypeError: If it is no bool.
        MisconfigurationException: If outputs are to be streamed and not to be returned.
    """
    if not isinstance(stream, bool):
        raise ArgumentTypeError(f"Trainer.predict(stream={stream!r}): give True or False.")
    if stream and return_predictions is False:
        raise MisconfigurationException(
            "Trainer.predict(stream=True, return_predictions=False): a stream gives its outputs to the caller; leave "
            "one of the two out."
        )


def stream_predictions(trainer: Trainer, request: Request) -> Iterator[Any]:
    """Set up when the first output is asked for; end when there is none left or the generator is closed.

    Between two outputs nothing of the run is left in the process that other code could meet: gradients are on, Ctrl-C
    is Python's, `Callback.log` finds the run that it belongs to. Trainer and module stay taken.

    Yields:
        Outputs, as `PredictLoop.stream` gives them.

    Raises:
        MisconfigurationException: In a hook of another run of the Trainer, and with a strategy that starts processes.
    """
    refuse_beside_stream(trainer, request)
    if trainer.session is not None:
        raise MisconfigurationException(
            "Trainer.predict(stream=True): called while another run of this Trainer is going on, which the stream "
            "could outlive. Use `predict` without `stream`, or another Trainer."
        )
    if trainer.strategy.launcher is not None:
        raise MisconfigurationException(
            f"Trainer.predict(stream=True): {type(trainer.strategy).__name__} starts processes of its own, whose "
            "outputs cannot be streamed into this one. Write them to files in `on_predict_batch_end`."
        )
    with RunGuard(trainer, request) as guard:
        loop = guard.prepare()
        outputs = loop.stream()
        try:
            for output in outputs:
                step_aside(guard)
                try:
                    yield output
                finally:
                    step_in(guard)
        except GeneratorExit:
            # Closed early: a run that ends well, only sooner.
            loop.stopped = True
            for _ in outputs:
                pass
        guard.finish(None)

"""What a training step may return."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fulmen.errors import StepOutputError, warn


def loss_of(output: Any, module: Any, *, needs_grad: bool) -> Tensor | None:
    """Find the loss in what `training_step` returned (automatic optimization).

    Args:
        output: Tensor, mapping with `"loss"`, or `None`.
        module: The module, for errors.
        needs_grad: Whether a loss without gradient is an error (not if the module overrides `backward`).

    Returns:
        The loss, or `None` to skip the update.

    Raises:
        StepOutputError: For anything else.
    """
    where = f"{type(module).__name__}.training_step"
    loss = output
    if output is None:
        return None
    if isinstance(output, Mapping):
        if "loss" not in output:
            raise StepOutputError(
                f"{where} returned a dict without 'loss' (keys: {sorted(map(str, output))}). Put the loss under "
                "'loss', or set `self.automatic_optimization = False` in `__init__` to step the optimizer yourself."
            )
        loss = output["loss"]
        if loss is None:
            return None
    if not isinstance(loss, Tensor):
        place = "under 'loss' " if loss is not output else ""
        hint = (
            " An `.item()` or `float()` cuts the graph; return the tensor itself."
            if isinstance(loss, (int, float))
            else ""
        )
        raise StepOutputError(
            f"{where} returned {_show(loss)} {place}where a loss tensor is needed. Return a scalar tensor, a dict with "
            f"'loss', or None to skip the update.{hint}"
        )
    if loss.dim() and loss.numel() != 1:
        raise StepOutputError(
            f"{where} returned a loss of shape {tuple(loss.shape)}; it must be one number. Reduce it, for example with "
            "`.mean()`."
        )
    if needs_grad and not loss.requires_grad:
        raise StepOutputError(
            f"{where} returned a loss that needs no gradient ({_show(loss)}). Likely causes: `.item()`, `.detach()` or "
            "`torch.no_grad()` on the way to it, or all parameters are frozen."
        )
    return loss


def warn_of_old_keys(output: Any, where: str) -> None:
    """Warn of keys by which steps of early Lightning logged; asked for a step's first output only.

    Args:
        output: What the step returned.
        where: The step, for the warning.
    """
    if not isinstance(output, Mapping):
        return
    for key, flag in _OLD_KEYS.items():
        if isinstance(output.get(key), Mapping):
            names = ", ".join(map(str, output[key])) or "nothing"
            warn(
                "W616",
                f"{where} returned a dict with {key!r} ({names}): nothing is logged from there. Call "
                f"`self.log_dict(values{flag})` in the step.",
                key=f"{where}.{key}",
            )


# Keys of a step's output that early Lightning logged from, and what `self.log_dict` needs for the same.
_OLD_KEYS = {"log": "", "progress_bar": ", prog_bar=True, logger=False"}


class HeldGraphs:
    """Finds tensors that a step returned beside the loss, with their graph, and that somebody kept.

    A weak reference tells: what is still alive when the next batch comes was kept, together with the activations.

    Args:
        where: The step, for the warning.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.first = True
        self.watched: list[tuple[str, weakref.ref[Tensor], float]] = []

    def watch(self, output: Mapping[str, Any]) -> None:
        """Note the tensors with graph of a batch's output."""
        if self.first:
            self.first = False
            warn_of_old_keys(output, self.where)
        self.watched = [
            (str(key), weakref.ref(value), value.numel() * value.element_size() / 2**20)
            for key, value in output.items()
            if key != "loss" and isinstance(value, Tensor) and value.grad_fn is not None
        ]

    def report(self) -> None:
        """Warn once of those that are still alive."""
        held = [(key, size) for key, ref, size in self.watched if ref() is not None]
        self.watched = []
        if held:
            keys = ", ".join(repr(key) for key, _ in held)
            warn(
                "W604",
                f"{self.where} returned {keys} with graph ({sum(size for _, size in held):.2f} MB) and somebody keeps "
                "it, such as a list that `on_train_batch_end` appends to: the activations of every step stay in "
                "memory. Return it with `.detach()`.",
                key=self.where + keys,
            )


def check_manual(output: Any, module: Any) -> None:
    """Check what `training_step` returned in manual optimization.

    Raises:
        StepOutputError: If it is neither a tensor, a mapping nor `None`.
    """
    if output is not None and not isinstance(output, (Tensor, Mapping)):
        raise StepOutputError(
            f"{type(module).__name__}.training_step returned {_show(output)} in manual optimization; return a tensor, "
            "a dict or None."
        )


def manual_outputs(output: Any) -> dict[str, Any]:
    """What `on_train_batch_end` gets in manual optimization."""
    if output is None:
        return {}
    if isinstance(output, Tensor):
        return {"loss": output.detach()}
    outputs = dict(output)
    if isinstance(outputs.get("loss"), Tensor):
        outputs["loss"] = outputs["loss"].detach()
    return outputs


def _show(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return f"{type(value).__name__} {text[:57] + '...' if len(text) > 60 else text}"

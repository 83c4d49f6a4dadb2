"""Autocast to float16 (with loss scaling) or bfloat16."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from fulmen.engine.precision.base import Precision
from fulmen.errors import ArgumentTypeError, ArgumentValueError, MisconfigurationException
from fulmen.types import StepClosure


class MixedPrecision(Precision):
    """Weights stay float32, matrix products run in a 16-bit format under ``torch.autocast``.

    With ``"16-mixed"`` the loss is multiplied before backward and a step whose gradients overflowed is skipped. The
    scale changes when the next loss is scaled, after all optimizers of a batch have stepped, as torch's own examples
    do it; `state_dict` is always up to date.

    Args:
        precision: ``"16-mixed"`` (float16, also on the CPU) or ``"bf16-mixed"``.
        device: Device type for autocast, such as ``"cuda"``.
        scaler: A gradient scaler of one's own, for ``"16-mixed"``.

    Raises:
        ArgumentValueError: Another precision, or a scaler for bfloat16.
        ArgumentTypeError: `scaler` or `device` are of the wrong kind.
    """

    def __init__(self, precision: str, device: str, scaler: Any = None) -> None:
        if precision not in ("16-mixed", "bf16-mixed"):
            raise ArgumentValueError(f"MixedPrecision(precision={precision!r}): give '16-mixed' or 'bf16-mixed'.")
        if not isinstance(device, str):
            raise ArgumentTypeError(f"MixedPrecision(device={device!r}): give a device type such as 'cuda' or 'cpu'.")
        if scaler is not None and precision == "bf16-mixed":
            raise ArgumentValueError(
                "MixedPrecision('bf16-mixed', scaler=...): bfloat16 has float32's range and needs no loss scaling;"
                " leave the scaler out, or use '16-mixed'."
            )
        if scaler is not None and not all(hasattr(scaler, n) for n in ("scale", "unscale_", "step", "update")):
            raise ArgumentTypeError(f"MixedPrecision(scaler={scaler!r}): give a torch.amp.GradScaler.")
        self.precision = precision
        self.device = device.partition(":")[0]
        self.dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
        if scaler is None and precision == "16-mixed":
            scaler = torch.amp.GradScaler(self.device)
        self.scaler = scaler
        self._overflow: Tensor | bool = False

    @property
    def stepped(self) -> bool:  # type: ignore[override]  # a constant in the base class
        """Whether the last `step` changed weights; waits for the device if the optimizer is a fused one."""
        if isinstance(self._overflow, Tensor):
            self._overflow = bool(self._overflow.item())
        return not self._overflow

    def context(self) -> AbstractContextManager[Any]:
        # A fresh object (0.8 µs): one that is kept breaks when contexts nest. Autocast's weight cache is off, since a
        # forward under `no_grad` inside a step would leave casts without a graph in it.
        return torch.autocast(self.device, dtype=self.dtype, cache_enabled=False)

    def autocast_context_manager(self) -> AbstractContextManager[Any]:
        """Lightning's name of `context`."""
        return self.context()

    def scale(self, loss: Tensor) -> Tensor:
        if self.scaler is None:
            return loss
        if self.settles:
            self._update_scale()
        return self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        if self.scaler is None or not self.scaler.is_enabled():
            return
        stage = self._state_of(optimizer)["stage"].name
        if stage == "STEPPED":
            self._update_scale()
        if stage != "UNSCALED":
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Any, closure: StepClosure, **kwargs: Any) -> Any:
        """Run the closure, unscale, report gradients as final, and step unless they overflowed.

        A `None` loss skips all of it, unless the closure has a true attribute `manual`.

        Raises:
            MisconfigurationException: The optimizer is LBFGS and there is a loss scaler.
        """
        if self.scaler is None:
            return super().step(optimizer, closure, **kwargs)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise MisconfigurationException(
                f"precision={self.precision!r} and torch.optim.LBFGS do not go together: LBFGS evaluates its closure"
                " many times in one step, and the loss scaler works on one evaluation. Use 'bf16-mixed' or '32-true'."
            )
        loss = closure.compute()
        if loss is None and not getattr(closure, "manual", False):
            self._overflow = True  # nothing was stepped
            return None
        self.unscale(optimizer)
        closure.ready()
        result = self.scaler.step(optimizer, **kwargs)
        self._overflow = self._found_overflow(optimizer)
        return result

    def _state_of(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state: dict[str, Any] = self.scaler._per_optimizer_states[id(optimizer)]
        return state

    def _found_overflow(self, optimizer: torch.optim.Optimizer) -> Tensor | bool:
        if not self.scaler.is_enabled():
            return False
        found = list(self._state_of(optimizer)["found_inf_per_device"].values())
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            # Such an optimizer looks at the flag on the device; waiting for it is left to whoever asks.
            return torch.stack([flag.to(found[0].device, non_blocking=True) for flag in found]).sum()
        return any(flag.item() for flag in found)  # `scaler.step` has waited for them already

    def _update_scale(self) -> None:
        """Let the scaler grow or shrink its scale, if steps were made since it last did."""
        if self.scaler is None or not self.scaler.is_enabled():
            return
        states = self.scaler._per_optimizer_states.values()
        if any(state["stage"].name == "STEPPED" for state in states):
            self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        if self.scaler is None:
            return {}
        self._update_scale()
        return dict(self.scaler.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.scaler is not None and state_dict:
            self._update_scale()
            self.scaler.load_state_dict(state_dict)
            if self.scaler.is_enabled():
                # It makes its scale on the device with the first loss; gradients of an open window may come before.
                self.scaler.scale(torch.zeros((), device=self.device))

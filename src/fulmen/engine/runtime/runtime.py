"""The objects that carry a run: strategy, precision, accelerator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import torch

from fulmen.accelerators import resolve_accelerator
from fulmen.engine.environments import ClusterEnvironment
from fulmen.engine.launch.exchange import ControlExchange
from fulmen.engine.precision import Precision, resolve_precision
from fulmen.engine.runtime.plan import Plan
from fulmen.engine.storage import CheckpointIO
from fulmen.errors import ArgumentTypeError, MisconfigurationException, warn
from fulmen.strategies import Strategy, overridden_hooks, resolve_strategy, route_overrides


@dataclass
class Runtime:
    """Hardware layer of a Trainer.

    Attributes:
        strategy: Places the module, steps optimizers, talks between ranks.
        exchange: What ranks tell each other between batches.
        plain_steps: An optimizer step is torch's own call, with nothing of a strategy or precision around it.
        plain_backward: Backward is the module's own call.
        hooks: Hooks that a strategy's subclass overrides, by name.
        process_loader: What a strategy's subclass makes of a loader, `None` if it does not care.
    """

    strategy: Any
    exchange: ControlExchange
    plain_steps: bool = False
    plain_backward: bool = False
    hooks: dict[str, Any] = field(default_factory=dict)
    process_loader: Any = None

    @property
    def precision(self) -> Any:
        """Number format of the run."""
        return self.strategy.precision_plugin

    def take_strategy(self, strategy: Any) -> None:
        """Use another strategy from the next run on.

        Raises:
            ArgumentTypeError: If it is none.
        """
        if not isinstance(strategy, Strategy):
            raise ArgumentTypeError(f"Trainer.strategy = {strategy!r}: must be a Strategy object.")
        self.strategy = strategy

    def connect(self, module: Any) -> None:
        """Take the module of a run and look which verbs are plain."""
        strategy = self.strategy
        strategy.connect(module)
        routed = route_overrides(strategy)
        kind = type(strategy)
        self.plain_backward = (
            kind.backward is Strategy.backward and "backward" not in routed and not strategy.face_backward
        )
        self.plain_steps = (
            self.plain_backward and self.precision.plain and kind.step is Strategy.step and "step" not in routed
        )
        self.hooks = overridden_hooks(strategy)
        own_loader = kind.process_dataloader is not Strategy.process_dataloader
        self.process_loader = strategy.process_dataloader if own_loader else None


def make_runtime(plan: Plan) -> Runtime:
    """Build the hardware layer of a plan.

    Raises:
        MisconfigurationException: For an accelerator, precision, plugin or strategy that cannot be had.
    """
    try:
        return _make_runtime(plan)
    except MisconfigurationException as error:
        if str(error).startswith("Trainer("):
            raise
        # The rooms below do not know whose arguments they check.
        raise type(error)(f"Trainer: {error}") from None


def _make_runtime(plan: Plan) -> Runtime:
    flags = plan.flags
    hardware = resolve_accelerator(flags.accelerator, flags.devices)
    precision, checkpoint_io = _plugins(flags.plugins)
    if precision is not None and flags.precision is not None:
        raise MisconfigurationException(
            f"Trainer(precision={flags.precision!r}, plugins=[{precision!r}]): set the precision in one of them only."
        )
    if precision is None:
        device_type = hardware.devices[0].type
        given_own = isinstance(flags.strategy, Strategy) and flags.precision is None
        if not given_own:
            precision = resolve_precision(flags.precision, device_type, plan.policy.cpu_fp16_is_fp16)
    strategy = resolve_strategy(
        flags.strategy,
        hardware.devices,
        accelerator=hardware.accelerator,
        precision=precision,
        checkpoint_io=checkpoint_io,
    )
    return Runtime(strategy, ControlExchange())


def _plugins(plugins: Any) -> tuple[Any, Any]:
    if plugins is None:
        return None, None
    found: dict[str, Any] = {}
    for plugin in plugins if isinstance(plugins, (list, tuple)) else [plugins]:
        for kind, cls in (
            ("precision", Precision),
            ("checkpoint_io", CheckpointIO),
            ("environment", ClusterEnvironment),
        ):
            if isinstance(plugin, cls):
                if kind in found:
                    raise MisconfigurationException(f"Trainer(plugins={plugins!r}): there are two {kind} plugins.")
                found[kind] = plugin
                break
        else:
            raise ArgumentTypeError(
                f"Trainer(plugins=...): {plugin!r} is no plugin; give Precision, CheckpointIO or ClusterEnvironment "
                "objects."
            )
    return found.get("precision"), found.get("checkpoint_io")


def apply_determinism(deterministic: Any, benchmark: bool | None) -> None:
    """Set torch's switches for deterministic algorithms and cuDNN's benchmark."""
    if deterministic is not None:
        torch.use_deterministic_algorithms(bool(deterministic), warn_only=deterministic == "warn")
        if deterministic:
            # https://docs.nvidia.com/cuda/cublas: needed for deterministic matrix products
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if deterministic and benchmark:
        warn(
            "W417",
            f"Trainer(deterministic={deterministic!r}, benchmark=True): cuDNN then chooses algorithms by measuring, "
            "which may differ from run to run. Leave benchmark out.",
        )
    if benchmark is None and deterministic:
        benchmark = False
    if benchmark is not None:
        torch.backends.cudnn.benchmark = benchmark

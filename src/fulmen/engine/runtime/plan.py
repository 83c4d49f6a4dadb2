"""The frozen, validated plan of a Trainer: what its arguments mean, with defaults filled in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fulmen.engine.runtime.flags import TrainerFlags
from fulmen.engine.runtime.policy import Policy, default_policy
from fulmen.errors import ArgumentTypeError, MisconfigurationException
from fulmen.utilities.durations import read_duration
from fulmen.utilities.retry import RetryPolicy


@dataclass(frozen=True)
class Plan:
    """Meaning of a Trainer's arguments; see `fulmen.Trainer`.

    Attributes:
        fast_dev_run: Batches of a trial run, 0 for a real one.
        checkpoints: Whether checkpoints are written.
        progress_bar: Whether progress is shown.
        summary: Whether a fit says what it runs on and summarises the model.
        logger: `True` for the default logger, `False`, or loggers.
        log_every: Rows of step values each so many batches.
        sanity_steps: Batches of the sanity check.
        val_interval: Validation each so many batches, share of an epoch, or time, as given.
        folder: Where files go, as given or the working folder.
        max_time: Longest duration of training, `None` for no limit.
        policy: Differences from Lightning.
    """

    flags: TrainerFlags
    fast_dev_run: int
    checkpoints: bool
    progress_bar: bool
    summary: bool
    logger: Any
    log_every: int
    sanity_steps: int
    val_interval: Any
    folder: str
    max_time: timedelta | None
    policy: Policy

    @property
    def retry(self) -> RetryPolicy | None:
        """How a fit that failed is tried again, `None` for not at all."""
        given = self.flags.retry
        return RetryPolicy(given) if isinstance(given, int) else given


def make_plan(flags: TrainerFlags) -> Plan:
    """Check all arguments and fill in defaults.

    Raises:
        MisconfigurationException: For arguments that are wrong or not available.
    """
    flags.check()
    _refuse_later(flags)
    policy = flags.policy if flags.policy is not None else default_policy()
    if not isinstance(policy, Policy):
        raise ArgumentTypeError(
            f"Trainer(policy={policy!r}): must be a Policy, such as Policy.right, Policy.lightning or "
            "Policy.right.replace(...)."
        )
    dev = int(flags.fast_dev_run)
    quiet = flags.barebones
    on = not dev and not quiet
    return Plan(
        flags=flags,
        fast_dev_run=dev,
        checkpoints=on and flags.enable_checkpointing is not False,
        progress_bar=not quiet and flags.enable_progress_bar is not False,
        summary=not quiet and flags.enable_model_summary is not False,
        logger=False if not on else (True if flags.logger is None else flags.logger),
        log_every=(0 if quiet else 50) if flags.log_every_n_steps is None else flags.log_every_n_steps,
        sanity_steps=0 if not on else (2 if flags.num_sanity_val_steps is None else flags.num_sanity_val_steps),
        val_interval=1.0 if flags.val_check_interval is None or dev else flags.val_check_interval,
        folder=os.getcwd() if flags.default_root_dir is None else os.fspath(flags.default_root_dir),
        max_time=read_duration(flags.max_time, f"Trainer(max_time={flags.max_time!r})"),
        policy=policy,
    )


def _refuse_later(flags: TrainerFlags) -> None:
    """Refuse what this version cannot do, before anything starts."""
    if flags.num_nodes != 1:
        raise MisconfigurationException(
            f"Trainer(num_nodes={flags.num_nodes}): this version of Fulmen trains on one device; use num_nodes=1."
        )
    for name in ("profiler", "model_registry"):
        if getattr(flags, name) is not None:
            raise MisconfigurationException(
                f"Trainer({name}={getattr(flags, name)!r}): not available in this version of Fulmen; leave it out."
            )

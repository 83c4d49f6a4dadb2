"""Let the cluster run this job again, and go on then: Slurm's `scontrol requeue` and ``hpc_ckpt_<n>.ckpt``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fulmen.engine.storage.filesystem import join, list_names
from fulmen.errors import warn
from fulmen.trainer.states import TrainerFn
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

_INTERACTIVE = ("bash", "interactive")
_LIMIT = 60


def slurm_job(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the id of the Slurm job that this process belongs to, as `scontrol` takes it.

    `None` outside of a batch job: in an interactive one nobody could run the command again.

    Args:
        environment: Variables to read; this process's if not given.
    """
    variables = os.environ if environment is None else environment
    if "SLURM_JOB_ID" not in variables or "SLURM_NTASKS" not in variables:
        return None
    if variables.get("SLURM_JOB_NAME") in _INTERACTIVE:
        return None
    array = variables.get("SLURM_ARRAY_JOB_ID")
    if array is not None:
        return f"{array}_{variables.get('SLURM_ARRAY_TASK_ID', '0')}"
    return variables["SLURM_JOB_ID"]


_FILE = re.compile(r"hpc_ckpt_(\d+)\.ckpt")


def newest_hpc_checkpoint(folder: str) -> str | None:
    """Return the file ``hpc_ckpt_<n>.ckpt`` of a folder with the largest n, or `None`."""
    numbers = [int(match[1]) for name in list_names(folder) if (match := _FILE.fullmatch(name))]
    return join(folder, f"hpc_ckpt_{max(numbers)}.ckpt") if numbers else None


def save_for_requeue(trainer: Trainer) -> None:
    """Write the next ``hpc_ckpt_<n>.ckpt`` into the Trainer's root folder, if Slurm can run this job again."""
    if slurm_job() is None or trainer.global_step == 0:
        return
    folder = str(trainer.default_root_dir)
    newest = newest_hpc_checkpoint(folder)
    match = _FILE.search(newest or "")
    trainer.save_checkpoint(join(folder, f"hpc_ckpt_{int(match[1]) + 1 if match else 1}.ckpt"))


def requeued_checkpoint(trainer: Trainer) -> str | None:
    """What a fit of a requeued Slurm job goes on from, whatever `ckpt_path` says; `None` for any other run."""
    if trainer.state.fn != TrainerFn.FITTING or slurm_job() is None:
        return None
    if not int(os.environ.get("SLURM_RESTART_COUNT") or 0):
        return None
    found = newest_hpc_checkpoint(str(trainer.default_root_dir))
    if found is not None:
        rank_zero_info(f"This Slurm job was requeued: going on from {found}.")
    return found


def requeue_job() -> bool:
    """Requeue this Slurm job; a failure is a warning.

    Returns:
        Whether Slurm took it.
    """
    job = slurm_job()
    if job is None:
        return False
    command = ["scontrol", "requeue", job]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
        problem = "" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()}"
    except (OSError, subprocess.SubprocessError) as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        warn(
            "W410",
            f"`{' '.join(command)}` failed ({problem}). The state is saved; submit the job again, with "
            "`fit(..., ckpt_path='auto')` it goes on.",
        )
        return False
    rank_zero_info(f"Job {job} is requeued and will go on where it was.")
    return True

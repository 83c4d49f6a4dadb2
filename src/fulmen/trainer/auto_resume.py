"""`ckpt_path="auto"`: the same command run again goes on where it was; a first start is no error."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING, Any

from fulmen.callbacks.checkpoint_names import run_folder
from fulmen.engine.storage.filesystem import join
from fulmen.engine.storage.reader import manifest_entry, newest_resumable
from fulmen.errors import MisconfigurationException
from fulmen.loggers.files import entries
from fulmen.trainer.states import TrainerFn
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

AUTO = "auto"
_FOLDER = "checkpoints"


def program_of(module: Any) -> dict[str, str]:
    """Identify what a checkpoint belongs to: the module's class, and the command that trains it.

    A class of the script itself is named by the script's path. The command is a digest of the script's arguments, empty
    in a notebook or prompt.
    """
    kind = type(module)
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    home = kind.__module__
    if home == "__main__":
        home = os.path.abspath(main) if main is not None else ""
    arguments = "\0".join(sys.argv[1:]) if main is not None else ""
    return {"module": f"{home}:{kind.__qualname__}", "command": hashlib.sha256(arguments.encode()).hexdigest()[:16]}


def find_own_checkpoint(trainer: Trainer, module: Any) -> str | None:
    """Look for the newest whole checkpoint that a fit of this command wrote.

    Folders that a checkpoint callback names (`dirpath`) are looked through for files of this module's class. Else it is
    the folders of all versions of the first logger's experiment, and files of this very command. Loggers go on in the
    version in which the run that is found wrote.

    Args:
        trainer: The Trainer.
        module: The module to train.

    Returns:
        Path or URL; `None` if there is none, which is said in one line.

    Raises:
        MisconfigurationException: Outside of `fit`, or if nothing writes checkpoints.
    """
    if trainer.state.fn != TrainerFn.FITTING:
        raise MisconfigurationException(
            f"Trainer.{trainer.state.fn}(ckpt_path='auto'): only `fit` goes on by itself; give 'best', 'last' or "
            "a path."
        )
    callbacks = trainer.checkpoint_callbacks
    if not callbacks:
        raise MisconfigurationException(
            "Trainer.fit(ckpt_path='auto'): no checkpoint callback writes anything to go on from; add a "
            "ModelCheckpoint, or leave enable_checkpointing on."
        )
    program = program_of(module)
    named = [str(folder) for callback in callbacks if (folder := getattr(callback, "dirpath", None)) is not None]
    searched, wanted = named, {"module": program["module"]}
    if named:  # a name such as "val_loss/clean" in a file's name makes a folder
        searched = [*named, *(join(folder, inner) for folder in named for inner in entries(folder)[0])]
    else:
        searched, wanted = _default_folders(trainer), program
    found = newest_resumable(searched, wanted)
    if found is None:
        where = ", ".join(searched) if searched else "the log folder"
        rank_zero_info(f"ckpt_path='auto': there is no checkpoint of this command in {where} yet; starting anew.")
        return None
    rank_zero_info(f"ckpt_path='auto': going on from {found}.")
    _go_on_in(trainer, found)
    return found


def _default_folders(trainer: Trainer) -> list[str]:
    if not trainer.loggers:
        return [run_folder(trainer)]
    first = trainer.loggers[0]
    root = str(first.save_dir if first.save_dir is not None else trainer.default_root_dir)
    experiment = join(root, str(first.name)) if first.name else root
    folders, _ = entries(experiment)
    return [join(join(experiment, folder), _FOLDER) for folder in folders]


def log_version(trainer: Trainer) -> str:
    """Return the version in which the first logger writes, as the name of its folder; empty without loggers."""
    version = getattr(trainer.loggers[0], "version", None) if trainer.loggers else None
    return f"version_{version}" if isinstance(version, int) else str(version or "")


def _go_on_in(trainer: Trainer, path: str) -> None:
    """Let loggers that chose no version yet take that in which the checkpoint's run wrote."""
    version = manifest_entry(path).get("logs")
    if not version:
        return
    for logger in trainer.loggers:
        go_on = getattr(logger, "go_on_in", None)
        if callable(go_on):
            go_on(str(version))

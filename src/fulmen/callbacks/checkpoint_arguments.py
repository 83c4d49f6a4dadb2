"""Checks of `ModelCheckpoint`'s arguments."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from fulmen.callbacks.checkpoint_names import checked_template
from fulmen.callbacks.monitors import check_count, check_flag, check_mode, check_monitor
from fulmen.engine.storage.filesystem import is_local, local_path
from fulmen.errors import ArgumentTypeError, ArgumentValueError, suggest

_OWNER = "ModelCheckpoint"


def local_folder(dirpath: str | os.PathLike[str] | None) -> str | None:
    """Return a folder in one spelling: absolute, links followed, ``~`` expanded; URLs as they are."""
    if not dirpath:
        return None
    if not is_local(dirpath):
        return os.fspath(dirpath)
    return os.path.realpath(os.path.expanduser(local_path(dirpath)))


def check_arguments(
    *,
    dirpath: object,
    filename: object,
    monitor: object,
    save_last: object,
    save_top_k: Any,
    mode: object,
    every_n_train_steps: object,
    train_time_interval: object,
    every_n_epochs: object,
    save_on_train_epoch_end: object,
) -> None:
    """Refuse wrong types, values and combinations.

    Raises:
        ArgumentTypeError: For a wrong type.
        ArgumentValueError: For a wrong value or combination.
    """
    check_monitor(_OWNER, monitor, optional=True)
    check_mode(_OWNER, mode)
    check_count(_OWNER, "save_top_k", save_top_k, least=-1)
    check_count(_OWNER, "every_n_train_steps", every_n_train_steps, least=0, optional=True)
    check_count(_OWNER, "every_n_epochs", every_n_epochs, least=0, optional=True)
    check_flag(_OWNER, "save_on_train_epoch_end", save_on_train_epoch_end)
    _check_paths(dirpath, filename)
    _check_save_last(save_last, dirpath)
    _check_interval(train_time_interval)
    set_ones = {
        name: value
        for name, value in (
            ("every_n_train_steps", every_n_train_steps),
            ("every_n_epochs", every_n_epochs),
            ("train_time_interval", train_time_interval),
        )
        # An interval of zero is one (at every batch); zero steps or epochs are none.
        if value is not None and (value != 0 or isinstance(value, timedelta))
    }
    if len(set_ones) > 1:
        shown = ", ".join(f"{name}={value!r}" for name, value in set_ones.items())
        raise ArgumentValueError(
            f"{_OWNER}({shown}): these are mutually exclusive. Give one; for more, use one ModelCheckpoint for each."
        )
    if monitor is None and save_top_k not in (-1, 0, 1):
        raise ArgumentValueError(
            f"{_OWNER}(save_top_k={save_top_k}, monitor=None): there is no value to rank by. Give a monitor, or"
            " save_top_k=1 (the newest), -1 (all) or 0 (none)."
        )


def _check_paths(dirpath: object, filename: object) -> None:
    if dirpath is not None and not isinstance(dirpath, str | os.PathLike):
        raise ArgumentTypeError(f"{_OWNER}(dirpath={dirpath!r}): must be a path or URL, not {type(dirpath).__name__}.")
    if filename is None:
        return
    if not isinstance(filename, str):
        raise ArgumentTypeError(f"{_OWNER}(filename={filename!r}): must be a text, not {type(filename).__name__}.")
    checked_template(filename, f"{_OWNER}(filename)")


def _check_save_last(save_last: object, dirpath: object) -> None:
    if save_last is not None and not isinstance(save_last, bool | str):
        raise ArgumentTypeError(
            f"{_OWNER}(save_last={save_last!r}): must be True, False, None or 'link', not {type(save_last).__name__}."
        )
    if isinstance(save_last, str) and save_last != "link":
        raise ArgumentValueError(
            f"{_OWNER}(save_last={save_last!r}): must be True, False, None or 'link'.{suggest(save_last, ['link'])}"
        )
    if save_last == "link" and isinstance(dirpath, str) and not is_local(dirpath):
        raise ArgumentValueError(
            f"{_OWNER}(save_last='link', dirpath={dirpath!r}): a remote folder has no links; use save_last=True."
        )


def _check_interval(interval: object) -> None:
    if interval is None:
        return
    if not isinstance(interval, timedelta):
        raise ArgumentTypeError(
            f"{_OWNER}(train_time_interval={interval!r}): must be a datetime.timedelta, not {type(interval).__name__}."
        )
    if interval < timedelta(0):
        raise ArgumentValueError(f"{_OWNER}(train_time_interval={interval!r}): must not be negative.")

"""Names of checkpoint files: templates such as ``{epoch}-{val_loss:.2f}``, and the folder they go to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

from fulmen.engine.storage.filesystem import is_local, local_path
from fulmen.errors import ArgumentValueError, MisconfigurationException, suggest, warn

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer


def normal(path: str | os.PathLike[str]) -> str:
    """Return one spelling for a path, so that two can be compared; links are not followed."""
    return os.path.abspath(local_path(path)) if is_local(path) else str(path)


def checked_template(template: str, where: str) -> None:
    """Refuse a file name template that could not be filled.

    Raises:
        ArgumentValueError: For unbalanced braces, fields without a name, or a format that no number has.
    """
    try:
        fields = list(Formatter().parse(template))
    except ValueError as error:
        raise ArgumentValueError(
            f"{where}={template!r}: {error}. Write fields as {{epoch}} or {{val_loss:.2f}}."
        ) from error
    for _, name, spec, _ in fields:
        if name is None:
            continue
        if not name or name.isdigit():
            raise ArgumentValueError(
                f"{where}={template!r}: a field has no metric's name. Write fields as {{epoch}} or {{val_loss:.2f}}."
            )
        if not _some_number_takes(spec or ""):
            raise ArgumentValueError(
                f"{where}={template!r}: the format {spec!r} of {{{name}}} fits no number. Try {{{name}:.2f}}."
            )


def _some_number_takes(spec: str) -> bool:
    for sample in (1, 1.0):
        try:
            format(sample, spec)
        except ValueError:
            continue
        return True
    return False


def fill(template: str, metrics: Mapping[str, Any], *, equals: str, insert_names: bool) -> str:
    """Fill a file name template.

    Args:
        template: Text with fields ``{name}`` or ``{name:format}``; names may hold dots and slashes.
        metrics: Values by name; a name that is missing counts as 0.
        equals: Stands between name and value.
        insert_names: Write each field as ``name=value`` rather than the value alone.

    Raises:
        MisconfigurationException: If a value does not take its format.
    """
    parts = []
    for text, name, spec, _ in Formatter().parse(template):
        parts.append(text)
        if name is None:
            continue
        if name not in metrics:
            _warn_misspelt(name, template, metrics)
        value = metrics.get(name, 0)
        try:
            shown = format(value, spec or "")
        except (TypeError, ValueError) as error:
            raise MisconfigurationException(
                f"ModelCheckpoint(filename={template!r}): {{{name}:{spec}}} cannot show the value {value!r}: {error}."
                f" For a number with decimals use {{{name}:.2f}}."
            ) from error
        parts.append(f"{name}{equals}{shown}" if insert_names else shown)
    return "".join(parts)


def _warn_misspelt(name: str, template: str, metrics: Mapping[str, Any]) -> None:
    hint = suggest(name, metrics)
    if hint:
        warn(
            "W111",
            f"ModelCheckpoint(filename={template!r}): no value named {name!r} was logged; its place shows 0.{hint}",
            key=f"{template}/{name}",
            stacklevel=3,
        )


def template_pattern(template: str, join: str) -> re.Pattern[str]:
    """Return a pattern for the names (without extension) that a template gives, with or without a version."""
    body = "".join(re.escape(text) + ("" if name is None else ".*") for text, name, _, _ in Formatter().parse(template))
    return re.compile(rf"{body}(?:{re.escape(join)}v\d+)?")


def run_folder(trainer: Trainer) -> str:
    """Return the folder for checkpoints that were given none: the first logger's run, else the Trainer's root."""
    loggers = trainer.loggers
    if not loggers:
        return os.path.join(str(trainer.default_root_dir), "checkpoints")
    first = loggers[0]
    root = first.save_dir if first.save_dir is not None else trainer.default_root_dir
    version = first.version if isinstance(first.version, str) else f"version_{first.version}"
    return os.path.join(str(root), str(first.name), version, "checkpoints")

"""What an exception in user code gets added: where the run was, and what the batch looked like."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fulmen.data.trouble import note_dead_worker
from fulmen.engine.hooks.running import Cursor
from fulmen.engine.loops.anomaly import ANOMALY
from fulmen.engine.precision import dtype_note

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

_MOST = 8
_FETCHING = ("fulmen.data.runs", "fulmen.data.plan")


def describe(value: Any, indent: str = "    ") -> str:
    """Structure of a batch: keys, types, shapes, dtypes and devices; never its values."""
    if isinstance(value, Tensor):
        return f"Tensor(shape={tuple(value.shape)}, dtype={value.dtype}, device={value.device})"
    deeper = indent + "  "
    if isinstance(value, Mapping):
        parts = [f"{key!r}: {describe(item, deeper)}" for key, item in list(value.items())[:_MOST]]
        return _nested(type(value).__name__, parts, len(value), indent)
    if isinstance(value, (list, tuple)):
        parts = [describe(item, deeper) for item in value[:_MOST]]
        return _nested(type(value).__name__, parts, len(value), indent)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        parts = [f"{name}: {describe(getattr(value, name, None), deeper)}" for name in names[:_MOST]]
        return _nested(type(value).__name__, parts, len(names), indent)
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}(shape={tuple(shape)})" if isinstance(shape, tuple) else type(value).__name__


def _nested(kind: str, parts: list[str], total: int, indent: str) -> str:
    if total > len(parts):
        parts = [*parts, f"… {total - len(parts)} more"]
    return f"{kind} of {total}" + "".join(f"\n{indent}  {part}" for part in parts)


def add_place(error: BaseException, cursor: Cursor, *, epoch: int, rank: int, module: str) -> bool:
    """Add a note to an exception: hook, stage, epoch, batch, loader, rank, structure of the batch.

    Returns:
        Whether it was added: a run inside of another has told the place already.
    """
    if any(note.startswith("While Fulmen ran") for note in getattr(error, "__notes__", ())):
        return False
    where, batch, number = f"its own code of {module}", cursor.batch, cursor.batch_idx
    if cursor.hook is not None:
        where = f"`{cursor.hook.name}` of {module}"
    elif _in_loader(error):
        # The batch at hand is the one before.
        where, number, batch = "the loader", number + 1 if batch is not None else 0, None
    parts = [f"stage {cursor.stage}"] if cursor.stage is not None else []
    parts.append(f"epoch {epoch}")
    if batch is not None or where == "the loader":
        parts.append(f"batch {number}")
        if cursor.dataloader_idx is not None:
            parts.append(f"loader {cursor.dataloader_idx}")
    parts.append(f"rank {rank}")
    note = f"While Fulmen ran {where}: {', '.join(parts)}."
    if batch is not None:
        note += f"\n  Batch: {describe(batch)}"
    error.add_note(note)
    note_dead_worker(error)
    return True


def add_causes(error: BaseException, trainer: Trainer) -> None:
    """Add what is known of the cause: a layer that met another dtype, the layer that made the first NaN."""
    if trainer.session is None:
        return
    watch = trainer.kept_loop(ANOMALY)
    notes = [
        dtype_note(error, trainer.session.module, trainer.precision_plugin, trainer.cursor.batch),
        watch.note(error) if watch is not None else None,
    ]
    for note in notes:
        if note is not None:
            error.add_note(note)


def _in_loader(error: BaseException) -> bool:
    """Whether the exception came out of a loader while the next batch was fetched."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__") in _FETCHING:
            return True
        traceback = traceback.tb_next
    return False

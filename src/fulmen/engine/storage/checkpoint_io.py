"""How checkpoints get to disk and back, as a class that users can replace (Lightning's `CheckpointIO`)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fulmen.engine.storage import filesystem, format, manifest
from fulmen.engine.storage.reader import read_verified
from fulmen.engine.storage.writer import write_atomic
from fulmen.errors import ArgumentTypeError
from fulmen.types import MapLocation, PathOrStr


class CheckpointIO(ABC):
    """What a strategy uses to write, read and delete checkpoints. Subclass it to store them elsewhere."""

    @abstractmethod
    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathOrStr, storage_options: Any | None = None) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: State of model and trainer. May hold any value; see `fulmen.engine.storage.encode`.
            path: Where to; a path or URL.
            storage_options: Whatever this class wants to know beyond that.
        """

    @abstractmethod
    def load_checkpoint(
        self, path: PathOrStr, map_location: MapLocation = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint.

        Args:
            path: Where from; a path or URL.
            map_location: As for `torch.load`.
            weights_only: ``False`` allows the file to run code, `None` is this class's default.
        """

    @abstractmethod
    def remove_checkpoint(self, path: PathOrStr) -> None:
        """Delete a checkpoint; one that is not there is no error."""

    def teardown(self) -> None:  # noqa: B027 - Lightning's contract: optional for subclasses
        """Finish what is pending; called at the end of a run."""


@dataclass(frozen=True)
class Prepared:
    """A checkpoint in the form of its file.

    Attributes:
        content: What `torch.save` gets.
        path: Where it goes.
        info: What the folder's manifest will say of it.
        options: For fsspec.
    """

    content: dict[str, Any]
    path: PathOrStr
    info: dict[str, Any]
    options: dict[str, Any] | None

    def write(self, content: dict[str, Any]) -> None:
        """Write `content`, or a copy of it, to the file.

        Raises:
            CheckpointError: The file could not be written.
        """
        write_atomic(content, self.path, info=self.info, storage_options=self.options)


class TorchCheckpointIO(CheckpointIO):
    """Checkpoints as single torch files: written atomically, verified when read, readable without running code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: PathOrStr, storage_options: Any | None = None) -> None:
        """Write a checkpoint; what was there before stays whole until the new file is.

        Args:
            checkpoint: A dictionary with any values. Those that cannot be kept are left out, named by a warning.
            path: A path or fsspec URL. Missing folders are made.
            storage_options: A mapping for fsspec (credentials, endpoints), for URLs only.

        Raises:
            ArgumentTypeError: `storage_options` was given for a plain path, or is no mapping.
            CheckpointError: The file could not be written.
        """
        prepared = self.prepare(checkpoint, path, storage_options)
        prepared.write(prepared.content)

    def prepare(self, checkpoint: dict[str, Any], path: PathOrStr, storage_options: Any | None = None) -> Prepared:
        """Check the arguments of `save_checkpoint` and give the checkpoint its form in the file, without writing.

        Raises:
            ArgumentTypeError: As in `save_checkpoint`.
        """
        options = _check_options(storage_options, path)
        return Prepared(format.encode(checkpoint), path, _facts(checkpoint), options)

    def load_checkpoint(
        self, path: PathOrStr, map_location: MapLocation = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read and verify a checkpoint of Fulmen's, or one of Lightning's or plain torch's that holds plain values.

        Args:
            path: A path or URL.
            map_location: As for `torch.load`; by default everything comes to host memory.
            weights_only: ``False`` trusts the file and lets it run code; `None` and ``True`` never do. Pickled values
                are then `UnsafeValue` placeholders, unless their types are registered or this process wrote the file.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptCheckpointError: It is damaged.
            UnsafeCheckpointError: A file that Fulmen did not write holds values that only unpickling brings back.
        """
        raw = read_verified(path, map_location, weights_only)
        return format.decode(raw, weights_only=weights_only, where=os.fspath(path))

    def remove_checkpoint(self, path: PathOrStr) -> None:
        """Delete a checkpoint (a file, a link or a sharded checkpoint's folder) and its entry in the manifest."""
        filesystem.remove(path)
        folder, name = filesystem.split(path)
        if filesystem.exists(folder):
            manifest.forget(folder, name)


def _check_options(options: Any, path: PathOrStr) -> dict[str, Any] | None:
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise ArgumentTypeError(
            f"TorchCheckpointIO takes storage_options as a mapping for fsspec, got {type(options).__name__}. For other"
            " kinds write your own CheckpointIO."
        )
    if filesystem.is_local(path):
        raise ArgumentTypeError(
            f"storage_options={dict(options)!r:.100} is for URLs, but {os.fspath(path)!r} is a plain path. Leave it"
            " out, or write your own CheckpointIO."
        )
    return dict(options)


def _facts(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    own = checkpoint.get("fulmen")
    own = own if isinstance(own, Mapping) else {}
    program = own.get("program")
    facts = {
        "run_id": own.get("run_id"),
        "step": checkpoint.get("global_step"),
        "epoch": checkpoint.get("epoch"),
        "resumable": "optimizer_states" in checkpoint,
        "logs": own.get("logs"),
        **(program if isinstance(program, Mapping) else {}),
    }
    return {key: value for key, value in facts.items() if isinstance(value, (str, int))}

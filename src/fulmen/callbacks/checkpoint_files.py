"""Which checkpoint files belong to a run: only these are ever deleted or replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import Any

from fulmen.callbacks.checkpoint_names import normal
from fulmen.engine.storage.filesystem import exists, join, split
from fulmen.engine.storage.manifest import read_manifest


class RunFiles:
    """The files that one run has written through one callback.

    A run keeps its id when it is resumed, so that files of the time before belong to it as well. Paths of local files
    are compared in their absolute spelling.

    Attributes:
        run_id: Id of the run that the files belong to.
    """

    def __init__(self) -> None:
        self.run_id = ""
        self._owned: set[str] = set()
        self._doomed: dict[str, None] = {}
        self._leftover: set[str] = set()

    def owns(self, path: str) -> bool:
        """Return whether this run wrote the file."""
        return normal(path) in self._owned

    def may_replace(self, path: str) -> bool:
        """Return whether a file is a leftover of what this run did after the checkpoint it was resumed from."""
        return normal(path) in self._leftover

    def claim(self, path: str) -> None:
        """This run writes the file (or will, before anyone reads this state)."""
        key = normal(path)
        self._owned.add(key)
        self._doomed.pop(key, None)
        self._leftover.discard(key)

    def doom(self, path: str) -> None:
        """The file is to be deleted once a newer one is complete; a resumed run does it if this one cannot."""
        if self.owns(path):
            self._doomed[normal(path)] = None

    def forget(self, path: str) -> None:
        """The file is gone."""
        key = normal(path)
        self._owned.discard(key)
        self._doomed.pop(key, None)

    @property
    def owned(self) -> frozenset[str]:
        """All files of this run."""
        return frozenset(self._owned)

    @property
    def doomed(self) -> list[str]:
        """Files still to be deleted."""
        return list(self._doomed)

    def begin(self, run_id: str, state: dict[str, Any] | None) -> bool:
        """Start or go on with a run.

        Args:
            run_id: Id of the run that begins.
            state: What `state` returned, from the checkpoint the run is resumed from.

        Returns:
            Whether the state is of this very run, so that its files are ours.
        """
        same = state is not None and bool(run_id) and state.get("run_id") == run_id
        if self.run_id != run_id:
            self._owned, self._doomed = set(), {}
        self._leftover = set()
        self.run_id = run_id
        if same and state is not None:
            self._owned.update(state["files"])
            self._doomed.update(dict.fromkeys(state["doomed"]))
        return same

    def allow_replacing(self, paths: Iterable[str]) -> None:
        """Let names be used again whose files this run wrote after the checkpoint it was resumed from."""
        self._leftover = {normal(path) for path in paths}

    def state(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"run_id": self.run_id, "files": sorted(self._owned), "doomed": list(self._doomed)}

    def snapshot(self) -> tuple[set[str], dict[str, None], set[str]]:
        """Return a copy for `restore`."""
        return set(self._owned), dict(self._doomed), set(self._leftover)

    def restore(self, snapshot: tuple[set[str], dict[str, None], set[str]]) -> None:
        """Go back to a copy that `snapshot` returned; files named in both stay claimed."""
        self._owned, self._doomed, self._leftover = set(snapshot[0]), dict(snapshot[1]), set(snapshot[2])


def link_newest(target: str, link: str) -> None:
    """Point a link to a checkpoint in one step, so that it can be read at any moment; a copy where links are refused.

    Args:
        target: File or folder the link points to (relative, so that the folder can be moved).
        link: Path of the link; a file, link or folder there is replaced.
    """
    if os.path.abspath(target) == os.path.abspath(link):
        return
    temporary = f"{link}.{os.getpid()}.tmp"
    folder = os.path.dirname(link)
    if os.path.isdir(link) and not os.path.islink(link):
        shutil.rmtree(link)
    try:
        os.symlink(os.path.relpath(target, folder or os.curdir), temporary)
    except OSError:
        # Ordinary users may make no links on Windows.
        if os.path.isdir(target):
            shutil.copytree(target, link)
            return
        shutil.copy(target, temporary)
    os.replace(temporary, link)


def files_of_run(folder: str, run_id: str) -> list[str]:
    """Return the files in a folder that the folder's manifest says a run has written."""
    entries = read_manifest(folder)
    return [join(folder, name) for name, entry in sorted(entries.items()) if entry.get("run_id") == run_id]


def wrote(path: str, run_id: str) -> bool:
    """Return whether a folder's manifest says that a file is there which a run has written."""
    return normal(path) in {normal(own) for own in files_of_run(split(path)[0], run_id)} and exists(path)

"""How `ModelCheckpoint` saves: names, top-k, the last one, what may be deleted. When it saves is in its own file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import proxy

import torch
from torch import Tensor
from typing_extensions import override

from fulmen.callbacks.checkpoint import Checkpoint
from fulmen.callbacks.checkpoint_files import RunFiles, link_newest
from fulmen.callbacks.checkpoint_names import fill, normal, run_folder, template_pattern
from fulmen.callbacks.monitors import MissingMonitorError, MonitorWatch, missing_monitor, policy_of
from fulmen.callbacks.plain_state import PlainState
from fulmen.engine.storage.filesystem import exists, get_filesystem, is_local, join, list_names
from fulmen.errors import CheckpointError, warn
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.trainer.trainer import Trainer

_ROLLED_BACK = (
    "best_k_models",
    "best_model_path",
    "best_model_score",
    "current_score",
    "kth_best_model_path",
    "kth_value",
    "last_model_path",
    "_last_checkpoint_saved",
    "_last_global_step_saved",
)


class CheckpointSaver(PlainState, Checkpoint):
    """Writes, ranks and deletes checkpoint files; arguments and attributes are `ModelCheckpoint`'s."""

    CHECKPOINT_JOIN_CHAR = "-"
    CHECKPOINT_EQUALS_CHAR = "="
    CHECKPOINT_NAME_LAST = "last"
    FILE_EXTENSION = ".ckpt"
    STARTING_VERSION = 1
    _helpers: ClassVar[dict[str, type]] = {"_watch": MonitorWatch, "_files": RunFiles}

    def __init__(
        self,
        dirpath: str | None,
        filename: str | None,
        monitor: str | None,
        verbose: bool,
        save_last: bool | Literal["link"] | None,
        save_top_k: int,
        save_weights_only: bool,
        mode: str,
        auto_insert_metric_name: bool,
        enable_version_counter: bool,
    ) -> None:
        super().__init__()
        self.dirpath = dirpath
        self.filename = filename
        self.monitor = monitor
        self.verbose = verbose
        self.save_last = save_last
        self.save_top_k = save_top_k
        self.save_weights_only = save_weights_only
        self.mode = mode
        self.auto_insert_metric_name = auto_insert_metric_name
        self._enable_version_counter = enable_version_counter
        self.current_score: Tensor | None = None
        self.best_k_models: dict[str, Tensor] = {}
        self.best_model_path = ""
        self.best_model_score: Tensor | None = None
        self.kth_best_model_path = ""
        self.kth_value = torch.tensor(torch.inf if mode == "min" else -torch.inf)
        self.last_model_path = ""
        self.save_errors: list[Exception] = []
        self._last_global_step_saved = 0  # nothing to save before the first step
        self._last_checkpoint_saved = ""
        self._watch = MonitorWatch(monitor)
        self._files = RunFiles()
        self._writing = ""
        self._saves = 0

    @property
    @override
    def written_files(self) -> frozenset[str]:
        return self._files.owned

    # ----------------------------------------------------------------------------------------------------------- saving

    def _save_occasion(
        self, trainer: Trainer, candidates: dict[str, Tensor], *, topk: bool = True, last: bool = True
    ) -> None:
        self._forget_unwritten(trainer)
        if topk:
            self._guarded(trainer, lambda: self._save_topk_checkpoint(trainer, candidates))
        if last:
            self._guarded(trainer, lambda: self._save_last_checkpoint(trainer, candidates))

    def _forget_unwritten(self, trainer: Trainer) -> None:
        """Files that could not be written beside training are none of the best."""
        failures = getattr(getattr(trainer.strategy, "checkpoint_io", None), "failures", None)
        lost = [path for path in (failures() if callable(failures) else ()) if self._files.owns(path)]
        for path in lost:
            self._files.forget(path)
            if self.best_k_models.pop(path, None) is not None:
                self._rank_models()
            if self.best_model_path == path:
                self.best_model_path, self.best_model_score = "", None
            if self.last_model_path == path:
                self.last_model_path = ""

    def _guarded(self, trainer: Trainer, save: Callable[[], None]) -> bool:
        """Save; if a file cannot be written, go back to what was known before, warn and keep the error."""
        before = {name: getattr(self, name) for name in _ROLLED_BACK}
        before["best_k_models"] = dict(self.best_k_models)
        files, saves, self._writing = self._files.snapshot(), self._saves, ""
        try:
            save()
        except (CheckpointError, OSError) as error:
            failed, self._writing = self._writing, ""
            if not failed:
                raise  # not from writing: a logger, or a subclass
            vars(self).update(before)
            self._files.restore(files)
            self._note_failure(failed, error)
            return False
        if self._saves > saves:
            for path in self._files.doomed:
                self._drop(trainer, path, self._last_checkpoint_saved)
        return True

    def _note_failure(self, path: str, error: Exception) -> None:
        # Without the traceback: its frames would keep the whole checkpoint in memory.
        self.save_errors.append(error.with_traceback(None))
        warn(
            "W112",
            f"ModelCheckpoint could not write {path!r}: {type(error).__name__}: {error}. Earlier checkpoints are kept,"
            " training goes on, and the error is raised when fit ends. Is the disk full, or the folder read-only?",
            key=str(self.dirpath),
        )

    def _save_topk_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        if self.save_top_k == 0:
            return
        if self.monitor is None:
            self._save_none_monitor_checkpoint(trainer, monitor_candidates)
            return
        if self.monitor not in monitor_candidates:
            message = missing_monitor("ModelCheckpoint", self.monitor, monitor_candidates)
            if self._watch.validated:
                raise MissingMonitorError(message)
            warn("W113", f"{message} No checkpoint is saved until it is there.", key=self.monitor)
        self._save_monitor_checkpoint(trainer, monitor_candidates)

    def _save_monitor_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        current = monitor_candidates.get(str(self.monitor))
        if current is not None and self.check_monitor_top_k(trainer, current):
            self._update_best_and_save(current, trainer, monitor_candidates)
        elif self.verbose:
            rank_zero_info(
                f"Epoch {trainer.current_epoch}, global step {trainer.global_step}: {self.monitor!r} was not in top"
                f" {self.save_top_k}"
            )

    def _save_none_monitor_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        previous = self.best_model_path
        path = self._get_metric_interpolated_filepath_name(monitor_candidates, trainer, previous)
        # Known before the save, because it is part of the state in the file.
        self.best_model_path = path
        replaced = self.save_top_k == 1 and bool(previous) and self._should_remove_checkpoint(trainer, previous, path)
        if replaced:
            self._files.doom(previous)
        self._save_checkpoint(trainer, path)
        if replaced:
            self._drop(trainer, previous, path)

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Return whether a value is among the best `save_top_k` so far, on all ranks."""
        if current is None:
            return False
        if self.save_top_k == -1 or len(self.best_k_models) < self.save_top_k:
            return True
        if not self.best_k_models:
            return False  # save_top_k=0
        worst = self.best_k_models[self._worst()]
        return bool(trainer.strategy.reduce_boolean_decision(self._better(current.item(), worst.item())))

    def _better(self, one: float, other: float) -> bool:
        return one < other if self.mode == "min" else one > other

    def _best(self) -> str:
        """The best file; of equals the earliest."""
        choose = min if self.mode == "min" else max
        return choose(self.best_k_models, key=lambda path: self.best_k_models[path].item())

    def _worst(self) -> str:
        """The file to go next; of equals the latest, unless a subclass chose one."""
        if self.kth_best_model_path in self.best_k_models:
            return self.kth_best_model_path
        choose = max if self.mode == "min" else min
        return choose(reversed(self.best_k_models), key=lambda path: self.best_k_models[path].item())

    def _rank_models(self) -> None:
        self.kth_best_model_path = ""
        if not self.best_k_models:
            return
        if self.save_top_k == -1 or len(self.best_k_models) >= self.save_top_k:
            self.kth_best_model_path = self._worst()
            self.kth_value = self.best_k_models[self.kth_best_model_path]
        self.best_model_path = self._best()
        self.best_model_score = self.best_k_models[self.best_model_path]

    def _update_best_and_save(self, current: Tensor, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        dropped: list[str] = []
        while 0 < self.save_top_k <= len(self.best_k_models):
            dropped.append(self._worst())
            self.best_k_models.pop(dropped[-1])
        if torch.isnan(current):
            current = torch.full_like(current, torch.inf if self.mode == "min" else -torch.inf)
        path = self._get_metric_interpolated_filepath_name(monitor_candidates, trainer, dropped[0] if dropped else None)
        # Known before the save, because it is part of the state in the file.
        self.current_score = self.best_k_models[path] = current.cpu()
        self._rank_models()
        dropped = [old for old in dropped if self._should_remove_checkpoint(trainer, old, path)]
        for old in dropped:
            self._files.doom(old)
        if self.verbose:
            rank_zero_info(
                f"Epoch {trainer.current_epoch}, global step {trainer.global_step}: {self.monitor!r} reached"
                f" {current:0.5f} (best {self.best_model_score:0.5f}), saving model to {path!r} as top"
                f" {len(self.best_k_models) if self.save_top_k == -1 else self.save_top_k}"
            )
        self._save_checkpoint(trainer, path)
        for old in dropped:
            self._drop(trainer, old, path)

    def _save_last_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        if not self.save_last:
            return
        newest = self._last_global_step_saved == trainer.global_step or not policy_of(trainer).last_is_newest
        link = self.save_last == "link" and newest and bool(self._last_checkpoint_saved) and self.save_top_k != 0
        self._write_last(trainer, monitor_candidates, link=link)

    def _write_last(self, trainer: Trainer, monitor_candidates: dict[str, Tensor], *, link: bool) -> None:
        def name(version: int | None) -> str:
            return self.format_checkpoint_name(monitor_candidates, self.CHECKPOINT_NAME_LAST, ver=version)

        path = self._free_name(name, trainer, self.last_model_path)
        previous, self.last_model_path = self.last_model_path, path
        if link:
            self._files.claim(path)
            self._writing = path
            self._link_checkpoint(trainer, self._last_checkpoint_saved, path)
            self._writing = ""
        else:
            self._save_checkpoint(trainer, path)
        if previous and self._should_remove_checkpoint(trainer, previous, path):
            self._drop(trainer, previous, path)

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        """Write one checkpoint and tell the loggers."""
        self._files.claim(filepath)
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = filepath
        self._writing = filepath
        trainer.save_checkpoint(filepath, self.save_weights_only)
        self._writing = ""
        self._saves += 1
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.after_save_checkpoint(proxy(self))

    @staticmethod
    def _link_checkpoint(trainer: Trainer, filepath: str, linkpath: str) -> None:
        if trainer.is_global_zero:
            link_newest(filepath, linkpath)
        trainer.strategy.barrier()

    # --------------------------------------------------------------------------------------------------------- deleting

    def _should_remove_checkpoint(self, trainer: Trainer, previous: str, current: str) -> bool:
        """Whether `previous` may be deleted when `current` is complete: only a file of this run, in this folder."""
        if normal(previous) == normal(current) or not self._files.owns(previous):
            return False
        if not is_local(previous):
            return True
        came_from = trainer.ckpt_path
        if self.save_weights_only and came_from is not None and normal(came_from) == normal(previous):
            return False  # the new file could not be resumed from
        folder = normal(str(self.dirpath))
        return os.path.commonpath([folder, normal(previous)]) == folder

    def _drop(self, trainer: Trainer, path: str, newer: str) -> None:
        """Delete a file of this run; what cannot be deleted now is tried again after the next save."""
        last = self.last_model_path if self.save_last == "link" and trainer.is_global_zero else ""
        if os.path.islink(last) and os.path.realpath(last) == os.path.realpath(path):
            link_newest(newer, last)  # never a link to nothing, not even for a moment
        try:
            self._remove_checkpoint(trainer, path)
        except OSError as error:
            self._files.doom(path)
            warn(
                "W114",
                f"ModelCheckpoint could not delete {path!r} ({error}); it is tried again after the next save.",
                key=path,
            )
            return
        self._files.forget(path)

    def _remove_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        """Delete one checkpoint."""
        trainer.strategy.remove_checkpoint(filepath)

    # ------------------------------------------------------------------------------------------------------------ names

    def format_checkpoint_name(
        self,
        metrics: dict[str, Any],
        filename: str | None = None,
        ver: int | None = None,
        prefix: str | None = None,
    ) -> str:
        """Return the path that a template gives.

        Args:
            metrics: Values by name; a missing one counts as 0.
            filename: Template in place of this callback's own.
            ver: Version to append, as ``-v1``.
            prefix: Text to put before the name.

        Returns:
            The path in `dirpath`; the name alone while there is no folder.
        """
        join_char = self.CHECKPOINT_JOIN_CHAR
        template = filename or self.filename or f"{{epoch}}{join_char}{{step}}"
        name = fill(template, metrics, equals=self.CHECKPOINT_EQUALS_CHAR, insert_names=self.auto_insert_metric_name)
        parts = [prefix] * (prefix is not None) + [name] + [f"v{ver}"] * (ver is not None)
        name = join_char.join(str(part) for part in parts) + self.FILE_EXTENSION
        return join(str(self.dirpath), name) if self.dirpath else name

    def _monitor_candidates(self, trainer: Trainer) -> dict[str, Tensor]:
        """Copies of all logged values, with `epoch` and `step` as whole numbers."""
        candidates = {name: torch.as_tensor(value).detach().clone() for name, value in trainer.callback_metrics.items()}
        for name, value in (("epoch", trainer.current_epoch), ("step", trainer.global_step)):
            candidates[name] = candidates[name].int() if name in candidates else torch.tensor(value)
        return candidates

    def _get_metric_interpolated_filepath_name(
        self, monitor_candidates: dict[str, Tensor], trainer: Trainer, del_filepath: str | None = None
    ) -> str:
        def name(version: int | None) -> str:
            return self.format_checkpoint_name(monitor_candidates, ver=version)

        return self._free_name(name, trainer, del_filepath)

    def _free_name(self, name: Callable[[int | None], str], trainer: Trainer, replaced: str | None) -> str:
        """The first version of a name that no file has which must stay; this run owns it from here on."""
        path = name(None)
        version = self.STARTING_VERSION
        while self._enable_version_counter and path != replaced and self._taken(path, trainer):
            path = name(version)
            version += 1
        self._files.claim(path)
        return path

    def _taken(self, path: str, trainer: Trainer) -> bool:
        if self._files.may_replace(path):
            others = [callback for callback in trainer.checkpoint_callbacks if callback is not self]
            if not any(normal(path) in other.written_files for other in others):
                return False
        return self.file_exists(path, trainer)

    def file_exists(self, filepath: str | os.PathLike[str], trainer: Trainer) -> bool:
        """Return whether a file exists; rank zero looks, and all ranks get the same answer."""
        here = exists(filepath) if trainer.is_global_zero else False
        return bool(trainer.strategy.reduce_boolean_decision(here, all=False))

    @override
    def find_last_checkpoints(self, trainer: Trainer) -> set[str]:
        """Return the files in the folder that have the name of a last checkpoint, with or without a version."""
        folder = str(self.dirpath) if self.dirpath is not None else run_folder(trainer)
        pattern = template_pattern(self.CHECKPOINT_NAME_LAST, self.CHECKPOINT_JOIN_CHAR)
        return {
            join(folder, name)
            for name in list_names(folder)
            if name.endswith(self.FILE_EXTENSION) and pattern.fullmatch(name.removesuffix(self.FILE_EXTENSION))
        }

    def to_yaml(self, filepath: str | os.PathLike[str] | None = None) -> None:
        """Write the value of each of the best files as YAML.

        Args:
            filepath: By default ``best_k_models.yaml`` in `dirpath`.

        Raises:
            CheckpointError: If there is no folder yet and none is given.
        """
        import yaml

        if filepath is None:
            if self.dirpath is None:
                raise CheckpointError("ModelCheckpoint.to_yaml(): there is no folder before `fit`; give a filepath.")
            filepath = join(self.dirpath, "best_k_models.yaml")
        with get_filesystem(filepath).open(os.fspath(filepath), "w") as file:
            yaml.safe_dump({path: score.item() for path, score in self.best_k_models.items()}, file)

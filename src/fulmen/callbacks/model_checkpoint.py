"""Save checkpoints: the best by a monitored value, the newest, or one at every occasion."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor
from typing_extensions import override

from fulmen.callbacks.checkpoint_arguments import check_arguments, local_folder
from fulmen.callbacks.checkpoint_files import files_of_run, wrote
from fulmen.callbacks.checkpoint_names import normal, run_folder
from fulmen.callbacks.checkpoint_saver import CheckpointSaver
from fulmen.callbacks.monitors import (
    can_validate,
    is_fitting,
    policy_of,
    validation_batches,
    validation_follows,
)
from fulmen.engine.hooks.table import ignores_outputs
from fulmen.engine.storage.filesystem import exists, is_local
from fulmen.errors import ArgumentValueError, warn
from fulmen.utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from fulmen.core.module import LightningModule
    from fulmen.trainer.trainer import Trainer


class ModelCheckpoint(CheckpointSaver):
    """Save checkpoints while training: the best ones by a monitored value, the newest, or all.

    An *occasion* to save is the end of every n-th epoch (or its validation), every n-th training step, or the end of a
    time interval. At each occasion the checkpoint joins the best `save_top_k`, if its value earns it a place; the new
    file is complete before an old one is deleted. Only files that this run wrote are ever deleted (a resumed run is
    the same run), and no other's file is overwritten while `enable_version_counter` is on. A save that fails (a full
    disk) leaves the older files and this callback's memory of them as they were; training goes on with a warning, and
    the error is raised when `fit` ends.

    Where the behaviour differs from Lightning's there is a switch of `fulmen.Policy`: `last_is_newest` (``last.ckpt``
    is the newest state at every occasion and at the end of the run), `monitors_wait` (an occasion between two
    validations waits for the next one if the monitored value comes from validation) and `end_validates` (a run that
    ends inside an epoch validates, and the state is judged by it).

    Args:
        dirpath: Folder or URL; by default ``checkpoints`` in the folder of the first logger's run, else in
            `Trainer.default_root_dir`.
        filename: Template of the name, for example ``"{epoch}-{val_loss:.2f}"``; any logged value, `epoch` and `step`
            may be named. Default ``"{epoch}-{step}"``.
        monitor: Name of the logged value that says which checkpoints are best; `None` keeps the newest.
        verbose: Say what was saved and what was not.
        save_last: `True` writes ``last.ckpt`` too; ``"link"`` makes it a link to the newest file where that holds
            this state (local folders only).
        save_top_k: How many of the best to keep; 0 for none, -1 for all. Without a monitor: 1, 0 or -1.
        save_on_exception: Save when an exception ends the run.
        save_weights_only: Leave out optimizers, schedulers and all else that a resume needs.
        mode: ``"min"`` or ``"max"``: which values of the monitor are better. NaN is never better; of equal values the
            earlier stays.
        auto_insert_metric_name: Write ``epoch=3`` rather than ``3`` for ``{epoch}``.
        every_n_train_steps: Occasions by training steps; 0 for none.
        train_time_interval: Occasions by time, at the end of a batch.
        every_n_epochs: Occasions by epochs; 0 for none. One of these three; by default every epoch.
        save_on_train_epoch_end: Epoch occasions are at the end of the training epoch (`True`) or of validation
            (`False`); by default at the former if there is one validation per epoch or none.
        enable_version_counter: Append ``-v1``, ``-v2`` where a file of that name exists; otherwise overwrite it.

    Attributes:
        best_model_path: The best checkpoint (without a monitor: the newest), ``""`` if there is none yet.
        best_model_score: Its value, 0-dim.
        best_k_models: Value of each of the best files, by path, in the order they were written.
        last_model_path: Path of ``last.ckpt``.
        current_score: Value of the newest checkpoint that earned a place.
        save_errors: Errors of saves that failed in this run.

    Raises:
        ArgumentTypeError: If an argument has a wrong type.
        ArgumentValueError: For wrong values and combinations.
    """

    decides_last: ClassVar[bool] = True

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        verbose: bool = False,
        save_last: bool | Literal["link"] | None = None,
        save_top_k: int = 1,
        save_on_exception: bool = False,
        save_weights_only: bool = False,
        mode: str = "min",
        auto_insert_metric_name: bool = True,
        every_n_train_steps: int | None = None,
        train_time_interval: timedelta | None = None,
        every_n_epochs: int | None = None,
        save_on_train_epoch_end: bool | None = None,
        enable_version_counter: bool = True,
    ) -> None:
        check_arguments(
            dirpath=dirpath, filename=filename, monitor=monitor, save_last=save_last, save_top_k=save_top_k, mode=mode,
            every_n_train_steps=every_n_train_steps, train_time_interval=train_time_interval,
            every_n_epochs=every_n_epochs, save_on_train_epoch_end=save_on_train_epoch_end,
        )  # fmt: skip
        super().__init__(
            dirpath=local_folder(dirpath), filename=filename, monitor=monitor, verbose=verbose, save_last=save_last,
            save_top_k=save_top_k, save_weights_only=save_weights_only, mode=mode,
            auto_insert_metric_name=auto_insert_metric_name, enable_version_counter=enable_version_counter,
        )  # fmt: skip
        by_default = every_n_train_steps is None and every_n_epochs is None and train_time_interval is None
        self.save_on_exception = save_on_exception
        self._every_n_train_steps = every_n_train_steps or 0
        self._train_time_interval = train_time_interval
        self._every_n_epochs = 1 if by_default else every_n_epochs or 0
        self._save_on_train_epoch_end = save_on_train_epoch_end
        self._last_time_checked: float | None = None
        self._defer_save_until_validation = False
        self._loaded: dict[str, Any] | None = None
        self._active = False

    # --------------------------------------------------------------------------------------------------------- identity

    @property
    @override
    def state_key(self) -> str:
        return self._generate_state_key(
            monitor=self.monitor,
            mode=self.mode,
            every_n_train_steps=self._every_n_train_steps,
            every_n_epochs=self._every_n_epochs,
            train_time_interval=self._train_time_interval,
        )

    @property
    def every_n_epochs(self) -> int | None:
        """Occasions by epochs, as resolved; 0 for none."""
        return self._every_n_epochs

    # ------------------------------------------------------------------------------------------------------------ hooks

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Settle the folder.

        Raises:
            ArgumentValueError: For ``save_last="link"`` on a remote folder.
        """
        folder = self.dirpath if self.dirpath is not None else run_folder(trainer)
        self.dirpath = trainer.strategy.broadcast(folder)
        if self.save_last == "link" and not is_local(self.dirpath):
            raise ArgumentValueError(
                f"ModelCheckpoint(save_last='link'): the folder {self.dirpath!r} is remote and has no links; use"
                " save_last=True."
            )
        if stage == "fit":
            self.save_errors = []

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._active = False

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last_time_checked = time.monotonic()
        self._watch.fit_begins()
        self._begin(trainer)
        self._active = True

    @override
    @ignores_outputs
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save if this step, or the time, is an occasion."""
        steps, interval = self._every_n_train_steps, self._train_time_interval
        due = steps >= 1 and trainer.global_step % steps == 0
        if interval is not None and self._time_is_up(trainer, interval):
            due = True
        if not due or self._should_skip_saving_checkpoint(trainer):
            return
        candidates = self._monitor_candidates(trainer)
        if self.monitor is None or not self._must_wait(trainer, candidates, batch_idx):
            self._save_occasion(trainer, candidates)
            return
        self._defer_save_until_validation = True
        if policy_of(trainer).last_is_newest and not validation_follows(trainer, batch_idx):
            self._save_occasion(trainer, candidates, topk=False)

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._watch.validation_begins(trainer)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save if occasions wait for this validation, or epoch occasions are at its end."""
        self._watch.validation_ends(trainer)
        if policy_of(trainer).monitors_wait and self._save_deferred(trainer):
            return
        if self._should_skip_saving_checkpoint(trainer) or self._should_save_on_train_epoch_end(trainer):
            return
        if self._defer_save_until_validation and not policy_of(trainer).monitors_wait:
            self._defer_save_until_validation = False
            self._save_occasion(trainer, self._monitor_candidates(trainer))
            return
        self._epoch_occasion(trainer)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save if epoch occasions are at the end of the training epoch."""
        right = policy_of(trainer).monitors_wait
        if right and not self._watch.from_validation and self._save_deferred(trainer, final=self._watch.validated):
            return
        if not self._should_skip_saving_checkpoint(trainer) and self._should_save_on_train_epoch_end(trainer):
            self._epoch_occasion(trainer, wait=right and self._watch.stale(trainer))
        self._watch.epoch_ends()

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the state in which the run ended, if the last occasion was before it."""
        policy, trial = policy_of(trainer), bool(trainer.fast_dev_run)
        if (trial and policy.trial_writes_nothing) or trainer.sanity_checking:
            return
        candidates = self._monitor_candidates(trainer)
        if trial or not policy.last_is_newest:
            if self.save_last and not self._last_checkpoint_saved:
                self._save_occasion(trainer, candidates, topk=False)
        elif self._last_global_step_saved != trainer.global_step:
            known = self.monitor is None or (self.monitor in candidates and not self._watch.stale(trainer))
            self._save_occasion(trainer, candidates, topk=known and not trainer.is_last_batch)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save because the run fails, if `save_on_exception` is set."""
        if not self._should_save_on_exception(trainer):
            return
        candidates = self._monitor_candidates(trainer)
        path = self._get_metric_interpolated_filepath_name(candidates, trainer)
        if self._guarded(trainer, lambda: self._save_checkpoint(trainer, path)):
            rank_zero_info(f"{type(exception).__name__} ({exception}): the state is saved in {path!r}.")
        self._guarded(trainer, lambda: self._save_last_checkpoint(trainer, candidates))

    @override
    def save_last_on_interrupt(self, trainer: Trainer) -> bool:
        """Write ``last.ckpt`` because the run is interrupted, whatever `save_last` says.

        Nothing is written by a callback that is not active: outside of `fit`'s training, in `fast_dev_run` and the
        sanity check, and before the first step.

        Returns:
            Whether the newest state is in ``last.ckpt`` now.
        """
        if not self._active or trainer.fast_dev_run or not is_fitting(trainer) or trainer.global_step == 0:
            return False
        newest = self._last_global_step_saved == trainer.global_step and trainer.accumulate_grad_batches == 1
        if newest and self.last_model_path and self._last_checkpoint_saved == self.last_model_path:
            return True
        candidates = self._monitor_candidates(trainer)
        return self._guarded(trainer, lambda: self._write_last(trainer, candidates, link=False))

    # ------------------------------------------------------------------------------------------------------------ state

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "monitor": self.monitor,
            "best_model_score": self.best_model_score,
            "best_model_path": self.best_model_path,
            "current_score": self.current_score,
            "dirpath": self.dirpath,
            "best_k_models": dict(self.best_k_models),
            "kth_best_model_path": self.kth_best_model_path,
            "kth_value": self.kth_value,
            "last_model_path": self.last_model_path,
            "fulmen": {
                **self._files.state(),
                "last_step": self._last_global_step_saved,
                "last_saved": self._last_checkpoint_saved,
                "deferred": self._defer_save_until_validation,
                **self._watch.state(),
            },
        }

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back; in another folder than before only `best_model_path` is kept, with a warning."""
        former = state_dict.get("dirpath", self.dirpath)
        self._loaded = dict(state_dict.get("fulmen") or {})
        if self.dirpath == former:
            self.best_model_score = state_dict["best_model_score"]
            self.current_score = state_dict.get("current_score", self.current_score)
            self.kth_best_model_path = state_dict.get("kth_best_model_path", self.kth_best_model_path)
            self.kth_value = state_dict.get("kth_value", self.kth_value)
            self.best_k_models = dict(state_dict.get("best_k_models", self.best_k_models))
            self.last_model_path = state_dict.get("last_model_path", self.last_model_path)
        else:
            self._loaded["run_id"] = ""
            warn(
                "W110",
                f"ModelCheckpoint: the folder was {former!r} and is {self.dirpath!r} now. Of the former state only"
                " `best_model_path` is kept; files in the former folder are left alone.",
                key=f"{former} -> {self.dirpath}",
            )
        self.best_model_path = state_dict["best_model_path"]

    def _begin(self, trainer: Trainer) -> None:
        """Training starts: settle which files are this run's, and what of the loaded state still holds."""
        loaded, self._loaded = self._loaded, None
        self._defer_save_until_validation = bool(loaded and loaded.get("deferred"))
        self._watch.take_back(loaded or {})
        if not self._files.begin(str(getattr(trainer, "run_id", "")), loaded):
            if self._last_global_step_saved > trainer.global_step:
                self._last_global_step_saved = 0  # of an earlier run of another Trainer
            return
        assert loaded is not None
        self._last_global_step_saved = loaded["last_step"]
        self._last_checkpoint_saved = loaded["last_saved"]
        gone, leftover = trainer.strategy.broadcast(self._survey(trainer) if trainer.is_global_zero else None)
        self._files.allow_replacing(leftover)
        for path in gone:
            self.best_k_models.pop(path, None)
            if self.best_model_path == path:
                self.best_model_path, self.best_model_score = "", None
        if gone:
            self._rank_models()
        for path in self._files.doomed:
            # The run ended between the file that this one goes on from and this deletion; or the deletion came after
            # that file, and if there is one of the name now it is somebody else's.
            if wrote(path, self._files.run_id):
                self._drop(trainer, path, str(trainer.ckpt_path))
            else:
                self._files.forget(path)

    def _survey(self, trainer: Trainer) -> tuple[list[str], list[str]]:
        """Look at the folder of a resumed run.

        Returns:
            Best files that are gone (deleted after the checkpoint that the run is resumed from), and files that this
            run wrote after it.
        """
        known = {*self.best_k_models, self.best_model_path} - {""}
        # A subclass may keep a folder of that name in place of the file.
        gone = [
            path for path in sorted(known) if not exists(path) and not exists(path.removesuffix(self.FILE_EXTENSION))
        ]
        claimed = {path for callback in trainer.checkpoint_callbacks for path in callback.written_files}
        files = files_of_run(str(self.dirpath), self._files.run_id)
        return gone, [path for path in files if normal(path) not in claimed | self._files.owned]

    # ----------------------------------------------------------------------------------------------------- when to save

    def _should_skip_saving_checkpoint(self, trainer: Trainer) -> bool:
        return (
            bool(trainer.fast_dev_run)
            or not is_fitting(trainer)
            or self._last_global_step_saved == trainer.global_step  # this state is saved
        )

    def _should_save_on_exception(self, trainer: Trainer) -> bool:
        return (
            self.save_on_exception
            and not trainer.fast_dev_run
            and not trainer.sanity_checking
            and self._last_global_step_saved != trainer.global_step
        )

    def _should_save_on_train_epoch_end(self, trainer: Trainer) -> bool:
        if self._save_on_train_epoch_end is not None:
            return self._save_on_train_epoch_end
        if trainer.check_val_every_n_epoch != 1:
            return False  # no telling which epochs have a validation
        return validation_batches(trainer) == 0 or trainer.val_check_interval == 1.0

    def _time_is_up(self, trainer: Trainer, interval: timedelta) -> bool:
        now, before = time.monotonic(), self._last_time_checked
        up = before is not None and now - before >= interval.total_seconds()
        up = trainer.strategy.broadcast(up)  # clocks of ranks differ
        if up:
            self._last_time_checked = now
        return up

    def _must_wait(self, trainer: Trainer, candidates: dict[str, Tensor], batch_idx: int) -> bool:
        """Whether an occasion at this batch must wait for a validation to know its monitored value."""
        missing = self.monitor not in candidates
        if policy_of(trainer).monitors_wait:
            if not can_validate(trainer):
                return False
            return missing or self._watch.from_validation or validation_follows(trainer, batch_idx)
        if missing:
            return True
        every = trainer.check_val_every_n_epoch
        return (
            not self._should_save_on_train_epoch_end(trainer)
            and trainer.is_last_batch
            and can_validate(trainer)
            and (every is None or (trainer.current_epoch + 1) % every == 0)
        )

    def _save_deferred(self, trainer: Trainer, *, final: bool = False) -> bool:
        """Save for the occasions that waited for the monitored value, if it is there; returns whether it did.

        With `final` it must be there: validation and the epoch are over.
        """
        if not self._defer_save_until_validation or trainer.fast_dev_run or not is_fitting(trainer):
            return False
        candidates = self._monitor_candidates(trainer)
        if self.monitor not in candidates and not final:
            return False
        self._defer_save_until_validation = False
        self._save_occasion(trainer, candidates)
        return True

    def _epoch_occasion(self, trainer: Trainer, *, wait: bool = False) -> None:
        """Save at the end of an epoch or of its validation."""
        candidates = self._monitor_candidates(trainer)
        every = self._every_n_epochs
        due = every >= 1 and (trainer.current_epoch + 1) % every == 0
        if due and wait:
            self._defer_save_until_validation = True
        elif due:
            self._save_occasion(trainer, candidates, last=False)
        if policy_of(trainer).last_is_newest:
            last = self._every_n_train_steps == 0 and self._train_time_interval is None
        else:
            linked = self.save_last == "link" and bool(self._last_checkpoint_saved)
            last = linked or self._last_global_step_saved == trainer.global_step
        if last:
            self._save_occasion(trainer, candidates, topk=False)

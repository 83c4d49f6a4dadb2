"""ModelCheckpoint against a model of a few lines, through epochs, crashes, resumes, other runs and others' files."""

from __future__ import annotations

import math
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fulmen.callbacks import ModelCheckpoint
from tests.unit.callbacks.checkpoint_fakes import FakeTrainer, files, step_of

SCORES = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, math.nan, math.inf, -math.inf])


class Machine(RuleBasedStateMachine):
    """The state: what the model says must be on disk, and the callback that put it there."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.runs = 0
        self.others: dict[str, str] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        k=st.integers(-1, 3),
        mode=st.sampled_from(["min", "max"]),
        last=st.sampled_from([None, True, "link"]),
        name=st.sampled_from(["{epoch}", "{step}-{v:.0f}", "same"]),
        monitored=st.booleans(),
    )
    def begin(self, k: int, mode: str, last: Any, name: str, monitored: bool) -> None:
        """The first run."""
        k = k if monitored or k in (-1, 0, 1) else 1
        if k == -1 and not monitored:
            name = "{epoch}"  # with a fixed name each file replaces the one before, as in Lightning
        self.k, self.mode, self.last = k, mode, last
        self.arguments = {
            "monitor": "v" if monitored else None,
            "save_top_k": k,
            "mode": mode,
            "save_last": last,
            "filename": name,
        }
        self.new_run()

    def new_run(self, states: dict[str, Any] | None = None, path: str | None = None) -> None:
        step = step_of(path) if path is not None else 0
        self.callback = ModelCheckpoint(dirpath=self.folder, **self.arguments)
        self.trainer = FakeTrainer(
            self.callback,
            run_id=f"run-{self.runs}",
            manifest=True,
            global_step=step,
            current_epoch=step,
            ckpt_path=path,
        ).start(states)

    # --- the model -----------------------------------------------------------------------------------------------

    def rank(self, score: float) -> float:
        """Smaller is better."""
        if math.isnan(score):
            return math.inf
        return score if self.mode == "min" else -score

    def expect(self, score: float, epoch: int) -> None:
        """What of an epoch's end must be kept."""
        if self.k == 0:
            return
        if self.arguments["monitor"] is None:
            self.kept = [(0.0, epoch)] if self.k == 1 else [*self.kept, (0.0, epoch)]
            return
        value = self.rank(score)
        if self.k == -1 or len(self.kept) < self.k:
            self.kept.append((value, epoch))
        elif not math.isnan(score) and value < max(self.kept)[0]:
            self.kept.remove(max(self.kept))
            self.kept.append((value, epoch))

    kept: list[tuple[float, int]]

    @initialize()
    def nothing_yet(self) -> None:
        self.kept = []
        self.lost: set[str] = set()  # files from after the checkpoint that the run was resumed from
        self.history: list[tuple[str, list[tuple[float, int]]]] = []

    # --- what happens --------------------------------------------------------------------------------------------

    @rule(score=SCORES)
    def an_epoch(self, score: float) -> None:
        """One epoch that saves what it should."""
        before = len(self.trainer.saved)
        epoch = self.trainer.current_epoch
        self.trainer.epoch(v=score)
        self.expect(score, epoch)
        for path in self.trainer.saved[before:]:
            self.history = [item for item in self.history if item[0] != path]
            self.history.append((path, list(self.kept)))
            self.lost.discard(path)

    @rule(score=SCORES)
    def an_epoch_with_a_full_disk(self, score: float) -> None:
        """Nothing is lost, and nothing is remembered of the attempt."""
        self.trainer.full = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.trainer.epoch(v=score)
        self.trainer.full = False

    @precondition(lambda self: any(Path(path).exists() for path, _ in self.history))
    @rule(data=st.data())
    def a_crash_and_a_resume(self, data: st.DataObject) -> None:
        """The same run goes on from one of its files that are there."""
        there = [item for item in self.history if Path(item[0]).exists()]
        path, kept = data.draw(st.sampled_from(there))
        states = self.trainer.states[path]
        written = self.trainer.states
        self.new_run(states, path)
        self.trainer.states.update(written)
        # Files that were deleted after the checkpoint are gone; what is lost is written anew.
        self.kept = [item for item in kept if self.on_disk(item[1])]
        self.history = [item for item in self.history if item[0] == path or step_before(item, path)]
        epochs = {epoch for _, epoch in self.kept}
        self.lost |= {own for own in self.own_files() if step_of(own) - 1 not in epochs}

    def own_files(self) -> set[str]:
        """Files of this run, without the last ones."""
        names = [name for name in files(self.folder) if name not in self.others and not name.startswith("last")]
        return {str(self.folder / name) for name in names}

    def on_disk(self, epoch: int) -> bool:
        return any(step_of(path) == epoch + 1 for path in self.own_files())

    @rule()
    def another_run(self) -> None:
        """A new run in the same folder: what is there belongs to nobody now."""
        for name in files(self.folder):
            path = self.folder / name
            if path.is_symlink():
                continue
            self.others[name] = path.read_text()
        for path in self.folder.glob("*.ckpt"):
            if path.is_symlink():
                path.unlink()
        self.runs += 1
        self.kept, self.history, self.lost = [], [], set()
        self.new_run()

    @rule(name=st.sampled_from(["mine.ckpt", "epoch=1.ckpt", "same.ckpt", "last.ckpt", "notes.txt"]))
    def somebody_puts_a_file(self, name: str) -> None:
        """A file of the user's, with a name that is free."""
        path = self.folder / name
        if not path.exists() and not path.is_symlink():
            path.write_text('{"step": -1, "epoch": -1}')
            self.others[name] = path.read_text()

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def files_of_others_are_untouched(self) -> None:
        for name, text in self.others.items():
            assert (self.folder / name).read_text() == text, name

    @invariant()
    def the_files_are_the_models(self) -> None:
        if not hasattr(self, "callback") or not hasattr(self, "kept"):
            return
        last = self.callback.last_model_path
        expected = sorted(epoch for _, epoch in self.kept)
        assert sorted(step_of(path) - 1 for path in self.own_files() - self.lost) == expected
        if self.kept and self.arguments["monitor"] is not None:
            assert step_of(self.callback.best_model_path) - 1 == min(self.kept)[1]
        if last:
            assert step_of(last) >= 1  # a link to nothing would raise


def step_before(item: tuple[str, Any], path: str) -> bool:
    """Whether a file of the history is from before another one."""
    return Path(item[0]).exists() and Path(path).exists() and step_of(item[0]) <= step_of(path)


TestMachine = pytest.mark.feature("C-01")(Machine.TestCase)
TestMachine.settings = settings(
    max_examples=80, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

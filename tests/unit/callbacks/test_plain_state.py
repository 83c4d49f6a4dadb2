"""Callbacks with helper objects go through pickle, deepcopy and subclassing, and name only themselves."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

from fulmen.callbacks import EarlyStopping, ModelCheckpoint


class Mine(EarlyStopping):
    def __init__(self) -> None:
        super().__init__("val")
        self.extra = {"_watch": 1}


def _named(payload: bytes) -> set[str]:
    names: set[str] = set()

    class Recorder(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            names.add(f"{module}.{name}")
            return super().find_class(module, name)

    Recorder(io.BytesIO(payload)).load()
    return names


@pytest.mark.parametrize("make", [lambda: EarlyStopping("val"), lambda: ModelCheckpoint(monitor="val"), Mine])
def test_pickles_name_nothing_of_the_inner_workings(make: Any) -> None:
    callback = make()
    watch = callback._watch
    watch.from_validation = True
    own = {name for name in _named(pickle.dumps(callback)) if name.startswith("fulmen.")}
    module = "fulmen.callbacks."
    assert own <= {
        f"{module}early_stopping.EarlyStopping",
        f"{module}early_stopping.EarlyStoppingReason",
        f"{module}model_checkpoint.ModelCheckpoint",
    }
    for again in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert type(again._watch) is type(watch)
        assert again._watch is not watch
        assert vars(again._watch) == vars(watch)
        assert again.monitor == "val"
    assert callback._watch is watch, "pickling must leave the callback as it is"


def test_values_of_a_subclass_stay() -> None:
    assert pickle.loads(pickle.dumps(Mine())).extra == {"_watch": 1}


def test_files_of_a_run_are_kept() -> None:
    callback = ModelCheckpoint()
    callback._files.claim("/somewhere/a.ckpt")
    again = pickle.loads(pickle.dumps(callback))
    assert again.written_files == callback.written_files != frozenset()

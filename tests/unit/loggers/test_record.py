"""The run record: lines, timing, damage, copies."""

from __future__ import annotations

import copy
import enum
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fulmen.errors import ArgumentTypeError, ArgumentValueError, FulmenWarning, forget_warnings
from fulmen.loggers import RunRecord, files, read_record
from fulmen.utilities.rank_zero import rank_zero_only

pytestmark = pytest.mark.feature("G-08")


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("fulmen.loggers.record.time.time", lambda: self.now)


class Color(enum.Enum):
    RED = 1


def test_lines_and_reading(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "deep" / "run.jsonl", "id-1")
    assert not (tmp_path / "deep").exists(), "nothing before the first line"
    record.write("start", resumed_from=None)
    record.write("metrics", step=3, metrics={"loss": 0.5, "n": 2})
    record.write("end", status="success")
    record.close()
    lines = (tmp_path / "deep" / "run.jsonl").read_text().splitlines()
    assert len(lines) == 3
    entries = list(read_record(tmp_path / "deep"))
    assert [entry["kind"] for entry in entries] == ["start", "metrics", "end"]
    assert [entry.get("run_id") for entry in entries] == ["id-1", None, None]
    assert entries[1]["metrics"] == {"loss": 0.5, "n": 2}
    assert all(isinstance(entry["time"], float) for entry in entries)
    assert entries == [json.loads(line) for line in lines]


def test_values_of_all_kinds(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run.jsonl", "x")
    metrics = {
        "nan": float("nan"),
        "inf": math.inf,
        "ninf": np.float32("-inf"),
        "t": torch.tensor(float("nan")),
        "i": torch.tensor(3),
        "np": np.float32(0.5),
    }
    record.write(
        "metrics", metrics=metrics, path=Path("a"), color=Color.RED, pair=(1, 2), big=torch.ones(3), what=Clock
    )
    record.write("metrics", metrics={1: 2.0, None: math.nan})
    record.close()
    text = (tmp_path / "run.jsonl").read_text()
    for line in text.splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    first, second = read_record(tmp_path / "run.jsonl")
    assert math.isnan(first["metrics"]["nan"])
    assert math.isnan(first["metrics"]["t"])
    assert (first["metrics"]["inf"], first["metrics"]["ninf"], first["metrics"]["i"]) == (math.inf, -math.inf, 3)
    assert first["metrics"]["np"] == 0.5
    assert (first["path"], first["color"], first["pair"], first["big"]) == ("a", "RED", [1, 2], [1.0, 1.0, 1.0])
    assert first["what"].endswith("Clock")
    assert second["metrics"]["1"] == 2.0


def test_at_most_one_write_per_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    record = RunRecord(tmp_path / "run.jsonl", "x")
    written: list[int] = []
    append = files.AppendFile.append

    def counted(self: files.AppendFile, text: str) -> None:
        written.append(text.count("\n"))
        append(self, text)

    monkeypatch.setattr(files.AppendFile, "append", counted)
    for _ in range(100):
        record.write("metrics", a=1)
        clock.now += 0.05
    assert len(written) == 5
    record.write("error", message="x")
    assert len(written) == 6, "an error is written at once"
    record.close()
    assert sum(written) == 101
    assert len(list(read_record(tmp_path))) == 101


def test_a_line_is_as_it_was_when_written(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run.jsonl", "x")
    metrics = {"a": 1}
    record.write("metrics", metrics=metrics)
    record.write("metrics", metrics=metrics)
    metrics["a"] = 2
    record.close()
    assert [entry["metrics"]["a"] for entry in read_record(tmp_path)] == [1, 1]


def test_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record = RunRecord(path, "one")
    record.write("start")
    record.write("metrics", a=1)
    record.close()
    path.write_bytes(path.read_bytes() + b'{"kind":"metrics","ti')
    assert [entry["kind"] for entry in read_record(path)] == ["start", "metrics"]
    again = RunRecord(path, "one")
    again.write("metrics", a=2)
    again.close()
    assert [entry.get("a") for entry in read_record(path)] == [None, 1, 2]
    assert [entry.get("run_id") for entry in read_record(path)] == ["one", None, "one"], "first line of each process"


@pytest.mark.parametrize("damage", [b"\x00\xff\x00\n", b"[1]\n", b'{"kind"\n'])
def test_damage_elsewhere_warns_and_reading_goes_on(tmp_path: Path, damage: bytes) -> None:
    forget_warnings()
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"kind":"start"}\n' + damage + b"\n" + b'{"kind":"end"}\n')
    with pytest.warns(FulmenWarning, match=r"line 2 is damaged.*FULMEN-W303"):
        assert [entry["kind"] for entry in read_record(path)] == ["start", "end"]


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_share_the_file_and_not_the_lines(tmp_path: Path, copier: Any) -> None:
    record = RunRecord(tmp_path / "run.jsonl", "x")
    record.write("start")
    record.write("metrics", a=1)
    twin = copier(record)
    twin.write("metrics", a=2)
    twin.close()
    record.close()
    record.close()
    assert sorted(entry.get("a", 0) for entry in read_record(tmp_path)) == [0, 1, 2]
    record.write("end")
    record.close()
    assert len(list(read_record(tmp_path))) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_opens_its_own_handle(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run.jsonl", "x")
    record.write("start")
    record.write("metrics", who="parent")
    pid = os.fork()
    if pid == 0:
        try:
            child = copy.deepcopy(record)
            child.write("metrics", who="child")
            child.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    record.close()
    assert sorted(entry.get("who", "") for entry in read_record(tmp_path)) == ["", "child", "parent"]


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    record = RunRecord(tmp_path / "run.jsonl", "x")
    record.write("start")
    record.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    forget_warnings()
    (tmp_path / "file").write_text("")
    record = RunRecord(tmp_path / "file" / "run.jsonl", "x")
    with pytest.warns(FulmenWarning, match=r"cannot be written.*FULMEN-W302"):
        record.write("start")
    record.write("metrics", a=1)
    record.close()


def test_urls() -> None:
    pytest.importorskip("fsspec")
    record = RunRecord("memory://record/run.jsonl", "x")
    record.write("start")
    record.write("metrics", a=1)
    record.close()
    again = RunRecord("memory://record/run.jsonl", "x")
    again.write("end")
    again.close()
    assert [entry["kind"] for entry in read_record("memory://record")] == ["start", "metrics", "end"]


@pytest.mark.parametrize(
    ("args", "words"),
    [((3, "x"), r"RunRecord\(path=3\)"), (("a", 3), r"RunRecord\(run_id=3\)"), (("a", None), r"run_id=None")],
)
def test_bad_arguments(args: Any, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        RunRecord(*args)


@pytest.mark.parametrize("name", ["kind", "time", "run_id"])
def test_taken_field_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentValueError, match=name):
        RunRecord(tmp_path / "run.jsonl", "x").write("metrics", **{name: 1})


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_record(tmp_path / "nothing.jsonl"))

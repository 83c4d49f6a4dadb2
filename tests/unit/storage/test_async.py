"""Saving beside training: what is written is what was there at the call, in order, and nothing is lost at the end."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fulmen as L
from fulmen.engine.storage import CheckpointIO, TorchCheckpointIO
from fulmen.engine.storage.async_io import AsyncCheckpointIO
from fulmen.engine.storage.snapshot import BufferPool
from fulmen.errors import ArgumentTypeError, CheckpointError, FulmenWarning
from tests.integration.toys import Toy, loader

pytestmark = pytest.mark.feature("C-06")


class Gate(TorchCheckpointIO):
    """Writes when it is let; notes what it did, in order."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.done: list[tuple[str, str]] = []
        self.broken: set[str] = set()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        assert self.open.wait(20)
        if Path(path).name in self.broken:
            raise OSError(28, "No space left on device")
        super().save_checkpoint(checkpoint, path, storage_options)
        self.done.append(("save", Path(path).name))

    def remove_checkpoint(self, path: Any) -> None:
        super().remove_checkpoint(path)
        self.done.append(("remove", Path(path).name))


def test_what_changes_after_the_call_is_not_in_the_file(tmp_path: Path) -> None:
    gate, weight, notes = Gate(), torch.arange(6.0), ["a"]
    io = AsyncCheckpointIO(gate)
    io.save_checkpoint({"state_dict": {"w": weight}, "notes": notes}, tmp_path / "a.ckpt")
    weight.zero_()
    notes.append("b")
    gate.open.set()
    found = io.load_checkpoint(tmp_path / "a.ckpt")
    assert found["state_dict"]["w"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["notes"] == ["a"]
    io.teardown()


def test_objects_are_pickled_at_the_call(tmp_path: Path) -> None:
    io, value = AsyncCheckpointIO(), Changing()
    io.save_checkpoint({"state_dict": {}, "callbacks": {"x": value}}, tmp_path / "a.ckpt")
    value.number = 2
    io.wait()
    assert io.load_checkpoint(tmp_path / "a.ckpt")["callbacks"]["x"].number == 1
    io.teardown()


class Changing:
    number = 0

    def __init__(self) -> None:
        self.number = 1


def trees() -> dict[str, Any]:
    base = torch.randn(4, 6)
    return {
        "transposed": base.t(),
        "part": base[1:, ::2],
        "whole": base,
        "half": torch.randn(3).to(torch.bfloat16),
        "numbers": torch.arange(5),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(2.5),
        "parameter": nn.Parameter(torch.ones(2)),
        "sparse": torch.eye(3).to_sparse(),
        "conjugate": torch.randn(2, dtype=torch.complex64).conj(),
        "nested": [{"a": (torch.ones(1), None, "text", 3)}],
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        if one.is_sparse:
            one, other = one.to_dense(), other.to_dense()
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and torch.equal(one.resolve_conj(), other.resolve_conj())
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_snapshot_equals_its_tree_and_shares_nothing_with_it() -> None:
    tree = trees()
    before = copy.deepcopy(tree)
    taken = BufferPool().take(tree).tree
    for value in tree.values():
        if isinstance(value, torch.Tensor) and not value.is_sparse and not value.is_conj():
            value.data.zero_()
    assert same(before, taken)
    assert isinstance(taken["parameter"], nn.Parameter)
    # What shared memory shares it in the copy, so that the file is not larger than the synchronous one.
    assert taken["whole"].untyped_storage().data_ptr() == taken["part"].untyped_storage().data_ptr()
    assert taken["whole"].untyped_storage().data_ptr() != tree["whole"].untyped_storage().data_ptr()


def test_buffers_are_used_again() -> None:
    pool = BufferPool(keep=1)
    tree = {"a": torch.ones(1000), "b": torch.zeros(10)}
    first = pool.take(tree)
    place = first.tree["a"].data_ptr()
    second = pool.take(tree)  # while the first is not yet given back
    assert second.tree["a"].data_ptr() != place
    second.release()
    first.release()
    assert pool.take(tree).tree["a"].data_ptr() == place
    other = pool.take({"a": torch.ones(3)})
    other.release()
    assert pool.take(tree).tree["a"].sum() == 1000


def test_order_is_kept_and_a_file_goes_after_the_one_that_replaces_it(tmp_path: Path) -> None:
    gate = Gate()
    io = AsyncCheckpointIO(gate, pending=3)
    io.save_checkpoint({"state_dict": {}}, tmp_path / "a.ckpt")
    io.save_checkpoint({"state_dict": {}}, tmp_path / "b.ckpt")
    io.remove_checkpoint(tmp_path / "a.ckpt")
    io.save_checkpoint({"state_dict": {}}, tmp_path / "c.ckpt")
    gate.open.set()
    io.teardown()
    assert gate.done == [("save", "a.ckpt"), ("save", "b.ckpt"), ("remove", "a.ckpt"), ("save", "c.ckpt")]
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["b.ckpt", "c.ckpt"]


def test_a_failed_write_keeps_the_old_file_warns_and_is_raised_at_the_end(tmp_path: Path) -> None:
    gate = Gate()
    gate.broken.add("b.ckpt")
    gate.open.set()
    io = AsyncCheckpointIO(gate)
    io.save_checkpoint({"state_dict": {}}, tmp_path / "a.ckpt")
    io.save_checkpoint({"state_dict": {}}, tmp_path / "b.ckpt")
    io.remove_checkpoint(tmp_path / "a.ckpt")
    with pytest.warns(FulmenWarning, match=r"could not write '.*b\.ckpt': OSError.*No space left.*W075"):
        io.wait()
    assert list(io.failures()) == [str(tmp_path / "b.ckpt")]
    assert (tmp_path / "a.ckpt").exists()
    io.save_checkpoint({"state_dict": {}}, tmp_path / "c.ckpt")  # told once
    with pytest.raises(CheckpointError, match=r"AsyncCheckpointIO could not write '.*b\.ckpt'"):
        io.teardown()
    assert (tmp_path / "c.ckpt").exists()
    io.teardown()  # and raised once


def test_no_more_than_the_pending_ones_are_in_memory(tmp_path: Path) -> None:
    gate = Gate()
    io = AsyncCheckpointIO(gate, pending=1)
    io.save_checkpoint({"state_dict": {}}, tmp_path / "a.ckpt")
    second = threading.Thread(target=io.save_checkpoint, args=({"state_dict": {}}, tmp_path / "b.ckpt"))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    gate.open.set()
    second.join(20)
    assert not second.is_alive()
    io.teardown()


def test_a_checkpoint_that_cannot_be_taken_leaves_the_place_free(tmp_path: Path) -> None:
    io = AsyncCheckpointIO(pending=1)
    for _ in range(2):
        with pytest.raises(ArgumentTypeError, match="storage_options"):
            io.save_checkpoint({"state_dict": {}}, tmp_path / "a.ckpt", storage_options={"key": 1})
    io.save_checkpoint({"state_dict": {}}, tmp_path / "a.ckpt")
    io.teardown()
    assert (tmp_path / "a.ckpt").exists()


class Own(CheckpointIO):
    """Another format."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        Path(path).write_bytes(pickle.dumps((checkpoint, storage_options)))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return pickle.loads(Path(path).read_bytes())[0]

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink()


def test_any_checkpoint_io_can_be_wrapped(tmp_path: Path) -> None:
    io = AsyncCheckpointIO(Own())
    io.save_checkpoint(checkpoint={"w": torch.ones(2)}, path=tmp_path / "a", storage_options="mine")
    assert io.load_checkpoint(tmp_path / "a")["w"].tolist() == [1, 1]
    io.teardown()
    assert pickle.loads((tmp_path / "a").read_bytes())[1] == "mine"


def test_it_survives_pickling_and_copying_while_it_writes(tmp_path: Path) -> None:
    io = AsyncCheckpointIO(pending=3)
    io.save_checkpoint({"state_dict": {}}, tmp_path / "a.ckpt")
    for other in (pickle.loads(pickle.dumps(io)), copy.deepcopy(io)):
        assert other.pending == 3
        other.save_checkpoint({"state_dict": {}}, tmp_path / "b.ckpt")
        other.teardown()
    io.teardown()
    assert (tmp_path / "a.ckpt").exists() and (tmp_path / "b.ckpt").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"checkpoint_io": 3}, r"AsyncCheckpointIO\(checkpoint_io=3\): give a CheckpointIO"),
        ({"pending": 0}, r"pending=0\): must be an int of at least 1"),
        ({"pending": True}, r"pending=True"),
        ({"pending": 1.5}, r"pending=1.5"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        AsyncCheckpointIO(**arguments)


LEAVES = """
import sys, torch
from fulmen.plugins.io import AsyncCheckpointIO
io = AsyncCheckpointIO()
io.save_checkpoint({"state_dict": {"w": torch.ones(4_000_000)}}, sys.argv[1])
"""


def test_the_process_ends_after_what_was_asked_for_is_written(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVES, str(tmp_path / "a.ckpt")], check=True, timeout=60)
    assert TorchCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")["state_dict"]["w"].sum() == 4_000_000


FORKS = """
import os, sys, torch
from fulmen.plugins.io import AsyncCheckpointIO
io = AsyncCheckpointIO()
children = []
for number in range(6):
    io.save_checkpoint({"state_dict": {"w": torch.full((2_000_000,), float(number))}}, f"{sys.argv[1]}/{number}.ckpt")
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            sys.exit(0)  # the long way: file objects of the parent are closed and flushed
        children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
io.teardown()
for number in range(6):
    assert io.load_checkpoint(f"{sys.argv[1]}/{number}.ckpt")["state_dict"]["w"].unique().tolist() == [number]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_children_that_are_forked_while_it_writes_harm_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKS, str(tmp_path)], check=True, timeout=120)


@pytest.mark.feature("C-06", "C-01")
def test_a_fit_writes_the_files_that_it_writes_without_it(tmp_path: Path) -> None:
    def files(name: str, **arguments: Any) -> dict[str, float]:
        L.seed_everything(1)
        keeper = L.callbacks.ModelCheckpoint(
            tmp_path / name, monitor="loss", save_top_k=2, save_last=True, every_n_train_steps=1
        )
        model = Logging()
        trainer = L.Trainer(
            max_epochs=2,
            logger=False,
            callbacks=keeper,
            enable_progress_bar=False,
            enable_model_summary=False,
            **arguments,
        )
        trainer.fit(model, loader(4))
        return {
            path.name: TorchCheckpointIO().load_checkpoint(path)["state_dict"]["net.weight"].sum().item()
            for path in (tmp_path / name).glob("*.ckpt")
        }

    one, other = files("sync"), files("async", plugins=[AsyncCheckpointIO()])
    assert one == other
    assert len(one) == 3


class Logging(Toy):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss


@pytest.mark.feature("C-06", "C-05")
@pytest.mark.filterwarnings("ignore:.*W075")
def test_a_file_that_could_not_be_written_is_none_of_the_best_and_an_error_at_the_end(tmp_path: Path) -> None:
    gate, ended = Gate(), []
    gate.open.set()
    gate.broken.add("step=2.ckpt")

    class Model(Logging):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.trainer.strategy.checkpoint_io.wait()
            return super().training_step(batch, batch_idx)

        def on_fit_end(self) -> None:
            ended.append("fit")

        def teardown(self, stage: str) -> None:
            ended.append("teardown")

    keeper = L.callbacks.ModelCheckpoint(
        tmp_path, monitor="loss", save_top_k=3, every_n_train_steps=1, filename="{step}"
    )
    trainer = L.Trainer(
        max_epochs=2,
        logger=False,
        callbacks=keeper,
        plugins=[AsyncCheckpointIO(gate)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with pytest.raises(CheckpointError, match=r"Training has finished, but 1 checkpoint\(s\).*step=2\.ckpt"):
        trainer.fit(Model(), loader(4))
    assert ended == ["fit", "teardown"]
    assert sorted(Path(path).name for path in keeper.best_k_models) == ["step=1.ckpt", "step=3.ckpt", "step=4.ckpt"]
    assert all(Path(path).exists() for path in keeper.best_k_models)


def test_outside_of_a_run_a_checkpoint_is_there_when_the_call_returns(tmp_path: Path) -> None:
    gate = Gate()
    gate.open.set()
    trainer = L.Trainer(
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        plugins=[AsyncCheckpointIO(gate)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Toy(), loader(4))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt").exists()
    gate.broken.add("b.ckpt")
    with pytest.raises(CheckpointError, match=r"could not write '.*b\.ckpt'"):
        trainer.save_checkpoint(tmp_path / "b.ckpt")
    trainer.save_checkpoint(tmp_path / "c.ckpt")  # told once

from __future__ import annotations

import errno
import io
import json
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fulmen.engine.storage import (
    CheckpointIO,
    TorchCheckpointIO,
    get_filesystem,
    is_local,
    manifest,
    newest_good,
    read_verified,
    write_atomic,
    writer,
)
from fulmen.errors import ArgumentTypeError, CheckpointError, CorruptCheckpointError, FulmenWarning

NAME = manifest.MANIFEST_NAME


def state(value: float = 1.0, size: int = 1000, **more: Any) -> dict[str, Any]:
    return {"state_dict": {"w": torch.full((size,), value)}, "epoch": 1, "global_step": 7, **more}


def names(folder: pathlib.Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def fork(function: Callable[[], object]) -> int:
    """Run a function in a forked process, which imports nothing anew; return its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    return pid


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_fork(function: Callable[[], object]) -> int:
    return wait(fork(function))


@pytest.fixture
def store() -> TorchCheckpointIO:
    return TorchCheckpointIO()


@pytest.fixture(params=["{folder}/a.ckpt", "file://{folder}/a.ckpt", "memory://{folder}/a.ckpt"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    return request.param.format(folder=tmp_path / "deep" / "er")


def content(place: str) -> bytes:
    with get_filesystem(place).open(place, "rb") as file:
        return file.read()


def replace(place: str, data: bytes) -> None:
    with get_filesystem(place).open(place, "wb") as file:
        file.write(data)


@pytest.mark.feature("C-05", "C-08", "C-09")
class TestWholeFiles:
    def test_save_load_remove(self, store: TorchCheckpointIO, place: str) -> None:
        store.save_checkpoint(state(fulmen={"run_id": "r1"}, p=pathlib.Path("p")), place)
        back = store.load_checkpoint(place)
        assert torch.equal(back["state_dict"]["w"], torch.ones(1000))
        assert back["p"] == pathlib.Path("p")
        plain = torch.load(io.BytesIO(content(place)), weights_only=True)
        assert torch.equal(plain["state_dict"]["w"], torch.ones(1000))
        folder, _, _ = place.rpartition("/")
        entry = manifest.read_manifest(folder)["a.ckpt"]
        assert (entry["run_id"], entry["step"], entry["epoch"]) == ("r1", 7, 1)
        assert entry["size"] == len(content(place))
        assert entry["digest"].startswith("zip:")
        store.remove_checkpoint(place)
        store.remove_checkpoint(place)
        assert manifest.read_manifest(folder) == {}
        with pytest.raises(FileNotFoundError, match="Checkpoint file not found"):
            store.load_checkpoint(place)

    def test_nothing_temporary_is_left(self, store: TorchCheckpointIO, place: str) -> None:
        for value in (1.0, 2.0):
            store.save_checkpoint(state(value), place)
        folder, _, _ = place.rpartition("/")
        listed = {str(name).rpartition("/")[2] for name in get_filesystem(place).ls(folder, detail=False)}
        assert listed == {"a.ckpt", NAME}
        assert store.load_checkpoint(place)["state_dict"]["w"][0] == 2.0

    def test_empty(self, store: TorchCheckpointIO, place: str) -> None:
        store.save_checkpoint(state(), place)
        replace(place, b"")
        with pytest.raises(CorruptCheckpointError, match="it is empty"):
            store.load_checkpoint(place)

    @pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
    @pytest.mark.parametrize("known", [True, False])
    def test_truncated(self, store: TorchCheckpointIO, place: str, share: float, known: bool) -> None:
        store.save_checkpoint(state(), place)
        data = content(place)
        if not known:
            get_filesystem(place).rm(place.replace("a.ckpt", NAME))
        replace(place, data[: int(len(data) * share)])
        with pytest.raises(CorruptCheckpointError, match="is damaged"):
            store.load_checkpoint(place)

    def test_torn_tail_of_zeros(self, store: TorchCheckpointIO, place: str) -> None:
        store.save_checkpoint(state(), place)
        data = content(place)
        replace(place, data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        with pytest.raises(CorruptCheckpointError, match="is damaged"):
            store.load_checkpoint(place)

    def test_garbage(self, store: TorchCheckpointIO, place: str) -> None:
        replace_folder = place.rpartition("/")[0]
        get_filesystem(place).makedirs(replace_folder, exist_ok=True)
        replace(place, b"not a checkpoint at all")
        with pytest.raises(CorruptCheckpointError, match="no torch file"):
            store.load_checkpoint(place)


@pytest.mark.feature("C-05")
@pytest.mark.parametrize("known", [True, False])
def test_every_flipped_byte_is_noticed_or_harmless(
    store: TorchCheckpointIO, tmp_path: pathlib.Path, known: bool
) -> None:
    path = tmp_path / "a.ckpt"
    store.save_checkpoint(state(size=100), path)
    data = path.read_bytes()
    if not known:
        (tmp_path / NAME).unlink()
    noticed = 0
    spots = {*range(0, len(data), 29), data.index(torch.ones(100).numpy().tobytes()) + 2, len(data) - 1, 0}
    for spot in sorted(spots):
        broken = bytearray(data)
        broken[spot] ^= 0x55
        path.write_bytes(broken)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("fulmen.engine.storage.reader.warn", lambda *args, **kwargs: None)
                back = store.load_checkpoint(path)
        except CheckpointError:
            noticed += 1
        else:  # padding or a header field that nobody reads
            assert torch.equal(back["state_dict"]["w"], torch.ones(100))
    assert noticed > len(spots) / 3


@pytest.mark.feature("C-05")
def test_a_flipped_byte_in_a_weight(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.ckpt"
    store.save_checkpoint(state(), path)
    data = bytearray(path.read_bytes())
    data[data.index(torch.ones(100).numpy().tobytes()) + 200] ^= 1
    path.write_bytes(data)
    torch.load(path, weights_only=True)  # torch itself takes it
    with pytest.raises(CorruptCheckpointError, match=re.escape(str(path))):
        store.load_checkpoint(path)


@pytest.mark.feature("C-05")
def test_file_replaced_by_another_whole_one_is_taken_with_a_warning(
    store: TorchCheckpointIO, tmp_path: pathlib.Path
) -> None:
    store.save_checkpoint(state(1.0), tmp_path / "a.ckpt")
    store.save_checkpoint(state(2.0), tmp_path / "b.ckpt")
    os.replace(tmp_path / "b.ckpt", tmp_path / "a.ckpt")
    with pytest.warns(FulmenWarning, match="W074"):
        assert store.load_checkpoint(tmp_path / "a.ckpt")["state_dict"]["w"][0] == 2.0


@pytest.mark.feature("C-05")
class TestFailingWrites:
    @pytest.fixture
    def path(self, store: TorchCheckpointIO, tmp_path: pathlib.Path) -> pathlib.Path:
        store.save_checkpoint(state(1.0), tmp_path / "a.ckpt")
        return tmp_path / "a.ckpt"

    def check_intact(self, store: TorchCheckpointIO, path: pathlib.Path) -> None:
        assert names(path.parent) == {"a.ckpt", NAME}
        assert store.load_checkpoint(path)["state_dict"]["w"][0] == 1.0

    @pytest.mark.parametrize("after", [0, 1000, 3_000_000])
    def test_disk_full(
        self, store: TorchCheckpointIO, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        room = after

        class Full(io.FileIO):
            def write(self, data: Any, /) -> int:
                nonlocal room
                if room < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                room -= len(data)
                return super().write(data) or 0

        class RawFile(writer._RawFile, Full):
            pass

        monkeypatch.setattr(writer, "_RawFile", RawFile)
        with pytest.raises(CheckpointError, match=r"No space left on device.*untouched") as caught:
            store.save_checkpoint(state(2.0, 1_000_000), path)
        assert isinstance(caught.value.__cause__, OSError)
        monkeypatch.undo()
        self.check_intact(store, path)

    def test_the_systems_own_limit(self, store: TorchCheckpointIO, path: pathlib.Path) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            with pytest.raises(CheckpointError, match="File too large"):
                store.save_checkpoint(state(2.0, 1_000_000), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        self.check_intact(store, path)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
    def test_interrupted(self, store: TorchCheckpointIO, path: pathlib.Path, error: type[BaseException]) -> None:
        def content(file: Any) -> None:
            file.write(b"half")
            raise error

        with pytest.raises(error):
            write_atomic(content, path)
        self.check_intact(store, path)

    @pytest.mark.parametrize("call", ["os.replace", "os.fsync"])
    def test_rename_or_sync_fails(
        self, store: TorchCheckpointIO, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        def fail(*args: Any) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(call, fail)
        with pytest.raises(CheckpointError, match="Input/output error"):
            store.save_checkpoint(state(2.0), path)
        monkeypatch.undo()
        self.check_intact(store, path)

    @pytest.mark.parametrize("moment", ["manifest", "file"])
    def test_killed_between_the_two_renames(self, store: TorchCheckpointIO, path: pathlib.Path, moment: str) -> None:
        rename = os.replace

        def replace(source: str, target: str) -> None:
            if target.endswith(NAME) == (moment == "manifest"):
                os._exit(9)
            rename(source, target)

        def child() -> None:
            os.replace = replace  # type: ignore[assignment]  # in a process that ends by it
            store.save_checkpoint(state(2.0), path)

        for _ in range(2):  # twice, so that the manifest's former digests are needed
            assert in_fork(child) == 9
            assert store.load_checkpoint(path)["state_dict"]["w"][0] == 1.0
        store.save_checkpoint(state(3.0), path)
        assert store.load_checkpoint(path)["state_dict"]["w"][0] == 3.0

    def test_temporary_files_of_killed_processes_go_after_an_hour(
        self, store: TorchCheckpointIO, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = subprocess.Popen([sys.executable, "-c", ""])
        done.wait()
        old, young, others, alive = (
            path.parent / f".a.ckpt.{host}-{pid}-0123abcd.tmp"
            for host, pid in (
                (writer._HOST, done.pid),
                (writer._HOST, 4_000_000),
                ("other", 1),
                (writer._HOST, os.getpid()),
            )
        )
        for file in (old, young, others, alive):
            file.touch()
        for file in (old, others, alive):
            os.utime(file, (0, 0))
        monkeypatch.setattr(writer, "_swept", set())
        store.save_checkpoint(state(), path)
        assert names(path.parent) == {"a.ckpt", NAME, young.name, others.name, alive.name}

    def test_folder_of_that_name(self, store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
        (tmp_path / "dir.ckpt").mkdir()
        with pytest.raises(CheckpointError, match="is a folder"):
            store.save_checkpoint(state(), tmp_path / "dir.ckpt")
        with pytest.raises(CheckpointError, match="Name a file in it"):
            store.load_checkpoint(tmp_path / "dir.ckpt")

    @pytest.mark.parametrize("name", ["", NAME])
    def test_no_name(self, tmp_path: pathlib.Path, name: str) -> None:
        with pytest.raises(CheckpointError, match="no name"):
            write_atomic(b"", f"{tmp_path}/{name}")

    def test_failed_upload(
        self, store: TorchCheckpointIO, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
    ) -> None:
        url = f"memory://{tmp_path}/a.ckpt"
        store.save_checkpoint(state(1.0), url)
        fs = get_filesystem(url)

        def fail(self: Any, source: str, target: str, **kwargs: Any) -> None:
            raise OSError(errno.ECONNRESET, "Connection reset")

        real = type(fs).mv
        monkeypatch.setattr(
            type(fs), "mv", lambda s, a, b, **k: real(s, a, b) if b.endswith(".json") else fail(s, a, b)
        )
        with pytest.raises(CheckpointError, match="Connection reset"):
            store.save_checkpoint(state(2.0), url)
        monkeypatch.undo()
        assert store.load_checkpoint(url)["state_dict"]["w"][0] == 1.0
        assert not [name for name in fs.ls(url.rpartition("/")[0], detail=False) if name.endswith(".tmp")]


@pytest.mark.feature("C-05")
def test_platforms_without_folder_sync(
    store: TorchCheckpointIO, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_DIRECTORY")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    store.save_checkpoint(state(), tmp_path / "a.ckpt")
    assert store.load_checkpoint(tmp_path / "a.ckpt")["epoch"] == 1


@pytest.mark.feature("C-05")
def test_folder_is_synced_after_the_rename(
    store: TorchCheckpointIO, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, os.replace

    def note(handle: int) -> None:
        target = os.readlink(f"/proc/self/fd/{handle}")
        events.append("sync " + ("folder" if os.path.isdir(target) else os.path.basename(target).split(".")[1]))
        fsync(handle)

    def move(source: str, target: str) -> None:
        events.append("move " + os.path.basename(target).strip(".").split(".")[0])
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", move)
    store.save_checkpoint(state(), tmp_path / "a.ckpt")
    assert events == ["sync a", "sync fulmen-manifest", "move fulmen-manifest", "move a", "sync folder"]


@pytest.mark.feature("C-05")
def test_many_writers_in_one_folder(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for turn in range(5):
                store.save_checkpoint(state(float(turn)), tmp_path / f"{index}.ckpt")
                store.save_checkpoint(state(float(index)), tmp_path / "last.ckpt")
            if index == 0:
                store.remove_checkpoint(tmp_path / "0.ckpt")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    expected = {"last.ckpt", *(f"{index}.ckpt" for index in range(1, 6))}
    assert set(manifest.read_manifest(str(tmp_path))) == expected
    for name in expected:
        store.load_checkpoint(tmp_path / name)


@pytest.mark.feature("C-05")
def test_two_processes_in_one_folder(tmp_path: pathlib.Path) -> None:
    def work(name: str) -> None:
        for turn in range(15):
            write_atomic(b"x" * 100, tmp_path / f"{name}-{turn}.bin")

    children = [fork(lambda name=name: work(name)) for name in "ab"]
    assert [wait(child) for child in children] == [0, 0]
    assert len(manifest.read_manifest(str(tmp_path))) == 30


@pytest.mark.feature("C-05")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"a.ckpt": 3}}'])
def test_broken_manifest(store: TorchCheckpointIO, tmp_path: pathlib.Path, text: str) -> None:
    store.save_checkpoint(state(), tmp_path / "a.ckpt")
    (tmp_path / NAME).write_text(text)
    if "a.ckpt" in text:
        store.load_checkpoint(tmp_path / "a.ckpt")
    else:
        with pytest.warns(FulmenWarning, match="W073"):
            store.load_checkpoint(tmp_path / "a.ckpt")
        store.save_checkpoint(state(), tmp_path / "b.ckpt")
        assert set(json.loads((tmp_path / NAME).read_text())["files"]) == {"b.ckpt"}


@pytest.mark.feature("C-05")
class TestNewestGood:
    def fill(self, store: TorchCheckpointIO, folder: str, runs: str = "aaa") -> None:
        for index, run in enumerate(runs):
            store.save_checkpoint(state(float(index), fulmen={"run_id": run}), f"{folder}/{index}.ckpt")

    @pytest.mark.parametrize("scheme", ["", "memory://"])
    def test_the_previous_one(self, store: TorchCheckpointIO, tmp_path: pathlib.Path, scheme: str) -> None:
        folder = f"{scheme}{tmp_path}"
        self.fill(store, folder)
        replace(f"{folder}/2.ckpt", content(f"{folder}/2.ckpt")[:-1])
        assert newest_good(f"{folder}/2.ckpt") == f"{folder}/1.ckpt"
        replace(f"{folder}/1.ckpt", b"")
        assert newest_good(f"{folder}/2.ckpt") == f"{folder}/0.ckpt"
        replace(f"{folder}/0.ckpt", b"PK\x03\x04")
        assert newest_good(f"{folder}/2.ckpt") is None

    def test_of_the_same_run(self, store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
        self.fill(store, str(tmp_path), "aba")
        assert newest_good(tmp_path / "2.ckpt") == str(tmp_path / "0.ckpt")

    def test_of_a_folder_and_without_manifest(self, store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
        self.fill(store, str(tmp_path))
        (tmp_path / NAME).unlink()
        (tmp_path / "notes.txt").write_text("no")
        for index in range(3):
            os.utime(tmp_path / f"{index}.ckpt", (index, index))
        assert newest_good(tmp_path) == str(tmp_path / "2.ckpt")
        assert newest_good(tmp_path / "missing" / "x.ckpt") is None


@pytest.mark.parametrize(
    ("name", "words"),
    [("a.ckptt", "Did you mean 'a.ckpt'"), ("zzz", "The folder has: a.ckpt"), ("no/a.ckpt", "Nor is its folder")],
)
def test_missing_file(store: TorchCheckpointIO, tmp_path: pathlib.Path, name: str, words: str) -> None:
    store.save_checkpoint(state(), tmp_path / "a.ckpt")
    with pytest.raises(FileNotFoundError, match=re.escape(words)):
        store.load_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "path", "words"),
    [
        ({"key": 1}, "a.ckpt", "is a plain path"),
        (3, "memory://a.ckpt", "as a mapping for fsspec, got int"),
        (object(), "a.ckpt", "write your own CheckpointIO"),
    ],
)
def test_wrong_storage_options(store: TorchCheckpointIO, options: Any, path: str, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        store.save_checkpoint(state(), path, storage_options=options)


def test_links_are_replaced_not_followed(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    store.save_checkpoint(state(1.0), tmp_path / "a.ckpt")
    (tmp_path / "last.ckpt").symlink_to("a.ckpt")
    assert store.load_checkpoint(tmp_path / "last.ckpt")["epoch"] == 1
    store.save_checkpoint(state(2.0), tmp_path / "last.ckpt")
    assert not (tmp_path / "last.ckpt").is_symlink()
    assert store.load_checkpoint(tmp_path / "a.ckpt")["state_dict"]["w"][0] == 1.0


def test_rights_follow_the_umask(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    (tmp_path / "plain").touch()
    store.save_checkpoint(state(), tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_long_names_and_bytes_and_functions(tmp_path: pathlib.Path) -> None:
    path = tmp_path / ("ä" * 120 + ".ckpt")
    for given in (b"abc", lambda file: file.write(b"abc")):
        assert write_atomic(given, path).startswith("sha256:")
        assert path.read_bytes() == b"abc"


def test_weights_on_another_device(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    store.save_checkpoint(state(), tmp_path / "a.ckpt")
    assert store.load_checkpoint(tmp_path / "a.ckpt", map_location="meta")["state_dict"]["w"].is_meta


def test_files_with_torchs_crc_switched_off_are_verified_too(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        store.save_checkpoint(state(), tmp_path / "a.ckpt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert manifest.read_manifest(str(tmp_path))["a.ckpt"]["digest"].startswith("sha256:")
    store.load_checkpoint(tmp_path / "a.ckpt")
    data = bytearray((tmp_path / "a.ckpt").read_bytes())
    data[data.index(torch.ones(100).numpy().tobytes()) + 200] ^= 1
    (tmp_path / "a.ckpt").write_bytes(data)
    with pytest.raises(CorruptCheckpointError):
        store.load_checkpoint(tmp_path / "a.ckpt")


def test_old_torch_format(tmp_path: pathlib.Path) -> None:
    torch.save(state(), tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    assert read_verified(tmp_path / "a.pt")["epoch"] == 1


def test_web_addresses(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    import functools
    import http.server

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    store.save_checkpoint(state(), tmp_path / "a.ckpt")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            assert store.load_checkpoint(f"{base}/a.ckpt")["epoch"] == 1
            with pytest.raises((CheckpointError, FileNotFoundError), match=r"b\.ckpt"):
                store.load_checkpoint(f"{base}/b.ckpt")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("path", "local"), [("a/b", True), ("file:///a", True), ("s3://a", False), ("memory://a", False), ("/a:b", True)]
)
def test_is_local(path: str, local: bool) -> None:
    assert is_local(path) is local


def test_checkpoint_io_is_a_base_for_others() -> None:
    with pytest.raises(TypeError, match="abstract"):
        CheckpointIO()  # type: ignore[abstract]  # that is the point

    class Mine(CheckpointIO):
        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None: ...

        def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: Any = None) -> dict[str, Any]:
            return {}

        def remove_checkpoint(self, path: Any) -> None: ...

    Mine().teardown()


@pytest.mark.slow
@pytest.mark.feature("C-09")
class TestLightningsFiles:
    @pytest.fixture
    def path(self, tmp_path: pathlib.Path) -> pathlib.Path:
        lightning = pytest.importorskip("lightning.pytorch")
        boring = pytest.importorskip("lightning.pytorch.demos.boring_classes")

        class Module(boring.BoringModel):
            def __init__(self, width: int = 3, root: pathlib.Path = pathlib.Path("r"), more: Any = None) -> None:
                super().__init__()
                self.save_hyperparameters()

        checkpoint = lightning.callbacks.ModelCheckpoint(dirpath=tmp_path, filename="a")
        trainer = lightning.Trainer(
            max_steps=2,
            limit_val_batches=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            callbacks=[
                checkpoint,
                lightning.callbacks.EarlyStopping("x", check_on_train_epoch_end=False, strict=False),
            ],
            num_sanity_val_steps=0,
        )
        trainer.fit(Module(more={"a": 1}))
        return tmp_path / "a.ckpt"

    @pytest.mark.filterwarnings("ignore")
    def test_are_read_without_lightning(self, store: TorchCheckpointIO, path: pathlib.Path) -> None:
        code = f"""
import sys
from fulmen.engine.storage import TorchCheckpointIO
back = TorchCheckpointIO().load_checkpoint({str(path)!r})
assert back["hyper_parameters"]["width"] == 3, back["hyper_parameters"]
assert str(back["hyper_parameters"]["root"]) == "r"
assert back["global_step"] == 2 and back["optimizer_states"] and back["lr_schedulers"] and back["callbacks"]
assert not [name for name in sys.modules if name.partition(".")[0] in ("lightning", "pytorch_lightning")]
print(sorted(back["state_dict"]))
"""
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.stdout.strip() == "['layer.bias', 'layer.weight']", run.stderr


@pytest.mark.slow
@pytest.mark.feature("C-09")
def test_lightnings_attribute_dict_becomes_a_dict(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    data = pytest.importorskip("lightning.fabric.utilities.data")
    torch.save({"hyper_parameters": data.AttributeDict(a=1, b={"c": 2})}, tmp_path / "a.ckpt")
    back = store.load_checkpoint(tmp_path / "a.ckpt")
    assert type(back["hyper_parameters"]) is dict
    assert back["hyper_parameters"] == {"a": 1, "b": {"c": 2}}


@pytest.mark.slow
@pytest.mark.feature("C-05")
def test_saving_costs_no_more_than_torch_save_and_fsync(store: TorchCheckpointIO, tmp_path: pathlib.Path) -> None:
    checkpoint = {"state_dict": {f"w{i}": torch.randn(1024, 1024) for i in range(50)}}  # 200 MB

    def bare() -> None:
        with open(tmp_path / "bare", "wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        os.unlink(tmp_path / "bare")

    def ours() -> None:
        store.save_checkpoint(checkpoint, tmp_path / "ours.ckpt")
        store.remove_checkpoint(tmp_path / "ours.ckpt")

    def seconds(function: Callable[[], None]) -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    def ratio() -> float:
        pairs = [(seconds(bare), seconds(ours)) for _ in range(9)]
        return statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs)

    first = ratio()
    assert first <= 1.10 or ratio() <= 1.10  # one repeat, as for all gates

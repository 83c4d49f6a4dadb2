"""A cluster ends the job: the state is saved at the next batch boundary, Slurm runs it again, and it goes on."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fulmen.engine.storage import TorchCheckpointIO
from fulmen.errors import FulmenWarning, MisconfigurationException
from fulmen.trainer.requeue import newest_hpc_checkpoint, requeue_job, slurm_job
from tests.integration.toys import Toy, loader, quiet

pytestmark = [pytest.mark.feature("S-02"), pytest.mark.skipif(os.name == "nt", reason="no such signals")]

SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader
import fulmen as L

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        if self.trainer.global_step == 3 and "slow" in sys.argv:
            print("ready", flush=True)
        if "slow" in sys.argv:
            time.sleep(0.2)
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

L.seed_everything(1, verbose=False)
net = Net()
trainer = L.Trainer(max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(net, DataLoader(torch.randn(40, 4), batch_size=4, shuffle=True))
print("steps", trainer.global_step, "from", trainer.ckpt_path)
torch.save(net.state_dict(), "end.pt")
"""


def run(folder: Path, *arguments: str, number: int | None = None, **variables: str) -> tuple[int, str, float]:
    """Run the script, send it a signal in its fourth batch; exit code, what it said, seconds from signal to end."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    child = subprocess.Popen(
        [sys.executable, "-u", "train.py", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    began, said = 0.0, ""
    assert child.stdout is not None
    if number is not None:
        while "ready" not in (line := child.stdout.readline()):
            assert line, said
            said += line
        began = time.monotonic()
        child.send_signal(number)
    rest, _ = child.communicate(timeout=60)
    return child.returncode, said + rest, time.monotonic() - began


def fake_scontrol(folder: Path, code: int = 0) -> str:
    """A folder for PATH with an `scontrol` that notes its arguments."""
    folder.mkdir()
    tool = folder / "scontrol"
    tool.write_text(f'#!/bin/sh\necho "$@" >> "{folder}/calls"\necho "no such job" >&2\nexit {code}\n')
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_the_state_is_saved_at_the_next_boundary_and_the_exit_code_tells(
    number: int, code: int, tmp_path: Path
) -> None:
    returned, said, seconds = run(tmp_path / "run", "slow", number=number)
    assert returned == code, said
    assert f"{signal.Signals(number).name}: saving and cleaning up." in said
    file = TorchCheckpointIO().load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert file["global_step"] == 4  # the batch in which it came was finished, and no other begun
    assert seconds < 10
    assert not list((tmp_path / "run").glob("hpc*"))


SLURM = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "1", "SLURM_JOB_NAME": "train"}


def test_slurm_runs_the_job_again_and_it_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole, folder, path = tmp_path / "whole", tmp_path / "run", fake_scontrol(tmp_path / "tools")
    assert run(whole)[0] == 0
    code, said, _ = run(folder, "slow", number=signal.SIGUSR1, PATH=path, **SLURM)
    assert code == 138
    assert (tmp_path / "tools" / "calls").read_text() == "requeue 77\n"
    assert "Job 77 is requeued and will go on where it was." in said
    assert newest_hpc_checkpoint(str(folder)) == str(folder / "hpc_ckpt_1.ckpt")
    # The same command, without a word about checkpoints.
    code, said, _ = run(folder, PATH=path, SLURM_RESTART_COUNT="1", **SLURM)
    assert code == 0, said
    assert "This Slurm job was requeued: going on from" in said
    one, other = torch.load(whole / "end.pt"), torch.load(folder / "end.pt")
    assert all(torch.equal(value, other[key]) for key, value in one.items())


def test_another_job_in_the_folder_does_not_go_on(tmp_path: Path) -> None:
    path = fake_scontrol(tmp_path / "tools")
    run(tmp_path / "run", "slow", number=signal.SIGUSR1, PATH=path, **SLURM)
    code, said, _ = run(tmp_path / "run", PATH=path, **SLURM)
    assert code == 0
    assert "from None" in said


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({}, None),
        (SLURM, "77"),
        ({**SLURM, "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}, "70_3"),
        ({**SLURM, "SLURM_JOB_NAME": "bash"}, None),
        ({**SLURM, "SLURM_JOB_NAME": "interactive"}, None),
        ({"SLURM_JOB_ID": "77"}, None),
    ],
)
def test_the_job(variables: dict[str, str], job: str | None) -> None:
    assert slurm_job(variables) == job


@pytest.mark.parametrize(
    ("tool", "words"),
    [(True, r"`scontrol requeue 77` failed \(exit code 3: no such job\)"), (False, "FileNotFoundError")],
)
def test_a_requeue_that_fails_is_a_warning(
    tool: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake_scontrol(tmp_path / "tools", 3) if tool else str(tmp_path))
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    with pytest.warns(FulmenWarning, match=words):
        assert not requeue_job()


@pytest.mark.feature("T-02")
def test_hpc_names_the_newest_of_these_files(tmp_path: Path) -> None:
    trainer = quiet()
    trainer.fit(Toy(), loader(4))
    for number in (2, 10, 9):
        trainer.save_checkpoint(f"hpc_ckpt_{number}.ckpt")
    again = quiet(max_epochs=2)
    again.fit(Toy(), loader(4), ckpt_path="hpc")
    assert str(again.ckpt_path).endswith("hpc_ckpt_10.ckpt")


@pytest.mark.feature("T-02")
def test_hpc_without_such_a_file_is_an_error() -> None:
    with pytest.raises(MisconfigurationException, match=r"ckpt_path='hpc'\): there is no hpc_ckpt_<n>\.ckpt in"):
        quiet().fit(Toy(), loader(4), ckpt_path="hpc")

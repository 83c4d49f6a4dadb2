"""Progress where people see it: in a file, on a terminal, in a notebook; each run is a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.terminal import Terminal, plain

pytestmark = pytest.mark.feature("T-08")
SCRIPT = str(Path(__file__).parent / "scripts" / "shown_run.py")


def to_file(*arguments: str, **environment: str) -> tuple[list[str], list[int]]:
    """Run the script with its output in a file; returns the lines, and how many there were each time one looked."""
    path, seen = Path("out.txt"), []
    with path.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, SCRIPT, *arguments], stdout=file, stderr=file, env={**os.environ, **environment}
        )
        while process.poll() is None:
            seen.append(path.read_text().count("Epoch"))
            time.sleep(0.05)
    text = path.read_text()
    assert process.returncode == 0, text
    assert "\r" not in text and "\x1b" not in text
    return [line for line in text.splitlines() if re.match(r"Epoch|Validation|Testing|Predicting", line)], seen


def test_a_file_gets_lines_with_rate_and_time_left_while_the_run_goes_on() -> None:
    lines, seen = to_file("bar=plain", "interval=0.4", "sleep=0.02", "rows=60", "epochs=3")
    assert any(0 < count < len(lines) for count in seen)  # `tail -f` shows them as they come
    assert 3 <= len(lines) <= 20  # 90 batches, 2 to 5 seconds
    assert re.match(r"Epoch 0/2 \| batch \d+/30 \(\d+%\) \| [\d.]+ it/s \| ETA 0:00:0\d \| run \d+%", lines[0])
    assert any("run ETA 0:00:0" in line and "loss=" in line for line in lines)
    assert lines[-1].startswith("Epoch 2/2 | batch 30/30 (100%)") and "val_loss=" in lines[-1]


@pytest.mark.feature("T-12")
def test_a_batch_job_with_the_default_bar_ends_with_a_line_wherever_it_stops() -> None:
    lines, _ = to_file("steps=13", "epochs=500", "calls=fit,validate,test,predict", SLURM_JOB_ID="7", TERM="xterm")
    assert [line.split(" |")[0] for line in lines] == ["Epoch 1/499", "Validation", "Testing", "Predicting"]
    assert "batch 3/3 (100%)" in lines[0] and "run 100%" in lines[0] and "loss=" in lines[0]
    assert all("batch 10/10 (100%)" in line for line in lines[1:])


@pytest.mark.feature("T-12")
def test_a_terminal_gets_the_epoch_its_validation_and_the_whole_run() -> None:
    with Terminal(SCRIPT, "sleep=0.03", "val_sleep=0.03", "rows=40", "epochs=3") as terminal:
        assert "Sanity Checking" in plain(terminal.expect(r"Run .*Epoch|Epoch .*Run"))
        terminal.finish()
        raw = terminal.raw.decode()
    text = plain(raw)
    assert re.search(r"Epoch \d/2 +\S+ +\d+/20 +0:00:0\d • \S+ [\d.]+it/s +loss: \d", text)
    assert re.search(r"Run +\S+ +\d+/60 +0:00:0\d • 0:00:0\d", text)
    # The epoch's last batch is seen before it is validated.
    assert set(re.findall(r"Epoch \d/2 +\S+ +(\d+)/20.*\s+Validation +\S+ +\d+/20", text)) == {"20"}
    last = text.replace("\r", "\n").rsplit("Epoch", 1)[1]
    assert "20/20" in last and "val_loss" in last and "60/60" in text
    assert raw.count("Epoch ") <= 120  # frames: ten a second, in 4 seconds, or more on a busy machine


NOTEBOOK = """
import time, torch, fulmen as L
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.layer(x)
    def training_step(self, batch, batch_idx):
        time.sleep(0.05)
        loss = self.layer(batch).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=2)
trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_model_summary=False)
model = Net()
"""


@pytest.mark.feature("T-12")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own parts
def test_a_notebook_gets_one_display_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    cells = [NOTEBOOK, "trainer.fit(model, data)", "outputs = trainer.predict(model, data)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    shown = [[o.data["text/html"] for o in cell.outputs if o.output_type == "display_data"] for cell in book.cells]
    assert [len(displays) for displays in shown] == [0, 1, 1]
    fitted, predicted = shown[1][0], shown[2][0]
    assert "Run <progress value='60' max='60'></progress> 60/60" in fitted
    assert "Epoch 2 <progress value='20' max='20'></progress> 20/20" in fitted
    assert re.search(r"<code>loss=\d", fitted)
    assert "Predicting <progress value='20' max='20'>" in predicted
    printed = "".join(o.text for cell in book.cells for o in cell.outputs if o.output_type == "stream")
    assert "\r" not in printed and "\x1b" not in printed and len(printed.splitlines()) <= 10

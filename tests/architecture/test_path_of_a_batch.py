"""How far it is from `fit` to the user's step: own frames, and own Python calls per batch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import fulmen as L

PACKAGE = str(Path(L.__file__).resolve().parent)
MAX_FRAMES = 8
MAX_CALLS = 60
BATCHES = 120


def is_own(frame: FrameType, package: str = PACKAGE) -> bool:
    return frame.f_code.co_filename.startswith(package)


def own_frames(package: str = PACKAGE) -> list[str]:
    """Names of the own functions that are running now, innermost first."""
    names = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_own(frame, package):
            names.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}")
        frame = frame.f_back
    return names


class CountOwnCalls:
    """Counts Python calls of functions whose file is in a package, by function."""

    def __init__(self, package: str = PACKAGE) -> None:
        self.package = package
        self.calls: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and is_own(frame, self.package):
            name = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"
            self.calls[name] = self.calls.get(name, 0) + 1

    def start(self) -> None:
        sys.setprofile(self)

    def stop(self) -> None:
        sys.setprofile(None)


class Plain(L.LightningModule):
    """Two layers; runs a probe inside each training step."""

    def __init__(self, probe: Callable[[int], None]) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        self.probe = probe

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.probe(batch_idx)
        return self.net(batch).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Manual(Plain):
    def __init__(self, probe: Callable[[int], None]) -> None:
        super().__init__(probe)
        self.automatic_optimization = False

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.probe(batch_idx)
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.net(batch).mean())
        optimizer.step()


def fit(module: L.LightningModule) -> None:
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(torch.randn(BATCHES, 2, 4), batch_size=None))


@pytest.mark.filterwarnings("ignore::fulmen.errors.FulmenWarning")  # advice about workers is not the subject here
@pytest.mark.parametrize("kind", [Plain, Manual])
def test_few_frames_from_fit_to_the_step(kind: type[Plain]) -> None:
    seen: list[list[str]] = []
    fit(kind(lambda batch_idx: seen.append(own_frames())))
    assert len(seen) == BATCHES
    for names in seen:
        assert names[-1].endswith(":fit")
        assert len(names) <= MAX_FRAMES, f"{len(names)} frames: {' < '.join(names)}"


@pytest.mark.filterwarnings("ignore::fulmen.errors.FulmenWarning")
@pytest.mark.parametrize("kind", [Plain, Manual])
def test_few_own_calls_per_batch(kind: type[Plain]) -> None:
    first, last = 10, 110
    counter = CountOwnCalls()

    def probe(batch_idx: int) -> None:
        if batch_idx == first:
            counter.start()
        elif batch_idx == last:
            counter.stop()

    try:
        fit(kind(probe))
    finally:
        counter.stop()
    per_batch = {name: number / (last - first) for name, number in counter.calls.items()}
    total = sum(per_batch.values())
    table = "\n".join(f"{number:8.2f} {name}" for name, number in sorted(per_batch.items(), key=lambda i: -i[1]))
    print(f"{kind.__name__}: {total:.1f} own calls per batch\n{table}")
    assert 0 < total <= MAX_CALLS, f"{total:.1f} own calls per batch\n{table}"


def test_frames_and_calls_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "probe_of_calls"
    package.mkdir()
    (package / "__init__.py").write_text(
        "def outer(f):\n    return inner(f)\n\ndef inner(f):\n    list(map(leaf, range(3)))\n    return f()\n\n"
        "def leaf(i):\n    return i\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import probe_of_calls

    assert probe_of_calls.outer(lambda: own_frames(str(package))) == ["__init__.py:inner", "__init__.py:outer"]
    counter = CountOwnCalls(str(package))
    counter.start()
    probe_of_calls.outer(int)
    counter.stop()
    assert counter.calls == {"__init__.py:outer": 1, "__init__.py:inner": 1, "__init__.py:leaf": 3}

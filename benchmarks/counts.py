"""What does not need a stop watch in a loop: calls, frames, imports, the start of a second Trainer."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.nn import functional as F

import fulmen as L
from benchmarks.contenders import bare_trainer, make_loader, make_net, make_optimizer, settled

PACKAGE = str(Path(L.__file__).resolve().parent)


class Probed(L.LightningModule):
    """Runs a probe inside each training step."""

    def __init__(self, probe: Callable[[int], None]) -> None:
        super().__init__()
        self.net = make_net()
        self.probe = probe

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.probe(batch_idx)
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> Any:
        return make_optimizer(self.net)


def _fit(probe: Callable[[int], None], steps: int) -> None:
    _, loader = make_loader(steps)
    with tempfile.TemporaryDirectory() as folder, settled():
        bare_trainer(L, Path(folder)).fit(Probed(probe), loader)


def own_calls(steps: int = 100) -> dict[str, float]:
    """Own Python functions called per batch: file:function → calls."""
    first, calls = 10, dict[str, int]()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            name = f"{Path(code.co_filename).name}:{code.co_qualname}"
            calls[name] = calls.get(name, 0) + 1

    def probe(batch_idx: int) -> None:
        if batch_idx == first:
            sys.setprofile(count)
        elif batch_idx == first + steps:
            sys.setprofile(None)

    try:
        _fit(probe, first + steps + 10)
    finally:
        sys.setprofile(None)
    return {name: number / steps for name, number in calls.items()}


def calls_per_batch() -> float:
    """Own Python calls per batch, nothing switched on."""
    return sum(own_calls().values())


def frames_to_step() -> int:
    """Own frames between the call of `fit` and the user's `training_step`."""
    seen: list[int] = []

    def probe(batch_idx: int) -> None:
        number, frame = 0, sys._getframe(1)
        walk: FrameType | None = frame
        while walk is not None:
            number += walk.f_code.co_filename.startswith(PACKAGE)
            walk = walk.f_back
        seen.append(number)

    _fit(probe, 10)
    return max(seen)


def _cpu_seconds(statement: str) -> float:
    # Where byte code may not be written, the source would be compiled anew each time, and that be measured.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_ratio(runs: int) -> float:
    """CPU seconds of `import fulmen` with its first names over those of `import torch`, interleaved."""
    torch_only = "import torch"
    with_fulmen = "import torch; import fulmen as L; L.Trainer; L.LightningModule; L.Callback; L.seed_everything"
    for statement in (torch_only, with_fulmen):  # byte code is written, files are in memory
        _cpu_seconds(statement)
    return statistics.median(_cpu_seconds(with_fulmen) / _cpu_seconds(torch_only) for _ in range(runs))


def second_start(runs: int) -> float:
    """Milliseconds from the call of `fit` to the first step, with a Trainer that is not the process's first."""
    spent = []
    for _ in range(runs + 1):
        began: list[float] = []
        _, loader = make_loader(2)
        module = Probed(lambda batch_idx, began=began: began.append(time.perf_counter()))  # type: ignore[misc]  # lambda
        with tempfile.TemporaryDirectory() as folder, settled():
            trainer = bare_trainer(L, Path(folder))
            called = time.perf_counter()
            trainer.fit(module, loader)
        spent.append((began[0] - called) * 1e3)
    return statistics.median(spent[1:])

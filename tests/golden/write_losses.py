"""Losses of the parity scenarios as they are today, for `test_losses.py`.

    python -m tests.golden.write_losses      renew tests/golden/losses.json

A refactor must leave the file as it is; renew it only for a change that is meant to change numbers, and say why.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.parity.frameworks import RIGHT, Framework
from tests.parity.scenarios import SCENARIOS, train

PATH = Path(__file__).resolve().parent / "losses.json"
LEFT_OUT = ("two workers",)  # workers are slow to start, and their numbers are the peer's (tests/parity)


def machine() -> dict[str, str]:
    """What decides whether losses can be equal to the last bit."""
    return {"torch": torch.__version__.split("+")[0], "cpu": torch.backends.cpu.get_cpu_capability()}


def losses_of(name: str, root: Path) -> list[str]:
    """Every step's loss, exactly (hexadecimal), and the sum of the weights at the end."""
    kept = train(Framework(RIGHT), SCENARIOS[name], root)
    total = sum(float(value.double().abs().sum()) for value in kept.weights.values())
    return [float(loss).hex() for loss in kept.losses] + [total.hex()]


def main() -> None:
    torch.set_num_threads(1)
    losses: dict[str, Any] = {}
    for name in SCENARIOS:
        if name not in LEFT_OUT:
            with tempfile.TemporaryDirectory() as root:
                losses[name] = losses_of(name, Path(root))
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in losses.items())
    PATH.write_text(f'{{"machine": {json.dumps(machine())}, "losses": {{\n{lines}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main()

"""Losses that a refactor must keep bit for bit (see `write_losses.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.write_losses import LEFT_OUT, PATH, losses_of, machine
from tests.parity.scenarios import SCENARIOS

GOLDEN = json.loads(PATH.read_text("utf-8"))


def test_every_scenario_is_kept() -> None:
    assert sorted(GOLDEN["losses"]) == sorted(set(SCENARIOS) - set(LEFT_OUT))


@pytest.mark.feature("M-05", "O-01")
@pytest.mark.parametrize("name", GOLDEN["losses"])
def test_losses_are_what_they_were(name: str, tmp_path: Path) -> None:
    losses, golden = losses_of(name, tmp_path), GOLDEN["losses"][name]
    if machine() == GOLDEN["machine"]:
        assert losses == golden
    else:  # another torch or processor sums in another order
        assert [float.fromhex(v) for v in losses] == pytest.approx([float.fromhex(v) for v in golden], rel=2e-2)

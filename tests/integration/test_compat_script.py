"""An unmodified script of Lightning's kind gives the same numbers on Fulmen as on Lightning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.compat.processes import python

SCRIPT = Path(__file__).parent / "scripts" / "lightning_script.py"

# Sums are kept in float64 here and in float32 there, so means over an epoch differ in the last digit.
MEANS = {"rel": 1e-6, "abs": 1e-7}


def _run(folder: Path, *before: str, script: Path = SCRIPT) -> dict[str, Any]:
    folder.mkdir()
    python("-W", "ignore", *before, script, folder)
    return json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("lightning")
    return _run(tmp_path_factory.mktemp("peer") / "out")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _run(tmp_path_factory.mktemp("ours") / "out", "-m", "fulmen.compat")


@pytest.mark.feature("P-01", "P-04")
@pytest.mark.parametrize(
    "what",
    ["losses", "predicted", "weights", "files", "progress", "hparams", "keys", "callbacks", "version", "where"],
)
def test_equal(peer: dict[str, Any], ours: dict[str, Any], what: str) -> None:
    assert ours[what] == peer[what]


@pytest.mark.feature("P-01", "P-04")
def test_epoch_means_and_decisions(peer: dict[str, Any], ours: dict[str, Any]) -> None:
    assert ours["stopped"] == pytest.approx(peer["stopped"], **MEANS)
    assert 0 < peer["progress"][0] < 12, "the script should be stopped early"
    assert ours["best"] == [peer["best"][0], pytest.approx(peer["best"][1], **MEANS)]
    assert ours["tested"] == [pytest.approx(row, **MEANS) for row in peer["tested"]]


@pytest.mark.feature("P-01", "P-04")
def test_metrics_file(peer: dict[str, Any], ours: dict[str, Any]) -> None:
    assert len(ours["rows"]) == len(peer["rows"]) > 10
    for own, other in zip(ours["rows"], peer["rows"], strict=True):
        assert own.keys() == other.keys()
        for name in own:
            if own[name] == "" or other[name] == "" or name in ("epoch", "step", "train_loss_step", "lr-SGD"):
                assert own[name] == other[name], name
            else:
                assert float(own[name]) == pytest.approx(float(other[name]), **MEANS), name


@pytest.mark.feature("P-01")
def test_the_other_spelling(ours: dict[str, Any], tmp_path: Path) -> None:
    text = SCRIPT.read_text().replace("lightning.pytorch.", "pytorch_lightning.")
    text = text.replace("import lightning as L", "import pytorch_lightning as L")
    text = text.replace('getLogger("lightning.pytorch")', 'getLogger("pytorch_lightning")')
    script = tmp_path / "script.py"
    # As a program that switches the aliases on by itself.
    script.write_text(f"from fulmen.compat import install_aliases\ninstall_aliases()\n{text}")
    said = _run(tmp_path / "out", script=script)
    del said["argv"]
    assert said == {name: value for name, value in ours.items() if name != "argv"}

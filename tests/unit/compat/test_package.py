"""The built package has the alias files, and the metadata among them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

from tests.unit.compat.processes import ROOT


@pytest.mark.slow
@pytest.mark.feature("P-01")
def test_wheel_has_all_alias_files(tmp_path: Path) -> None:
    setuptools = pytest.importorskip("setuptools")
    if Version(setuptools.__version__) < Version("77"):
        pytest.skip("building without isolation needs the setuptools of pyproject.toml here")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("fulmen-*.whl")
    path = source / "src" / "fulmen" / "compat" / "path"
    wanted = {f"fulmen/compat/path/{p.relative_to(path).as_posix()}" for p in path.rglob("*") if p.is_file()}
    assert any("dist-info/METADATA" in name for name in wanted)
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()

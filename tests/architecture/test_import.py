"""`import fulmen` is cheap beside `import torch`, brings nothing heavy, and offers exactly the listed names."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tools import public_names

ROOT = Path(__file__).resolve().parents[2]
GATE = 1.10
ROUNDS = 3
HEAVY = (
    "torchmetrics",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "tensorboard",
    "torch.utils.tensorboard",
    "rich",
    "jsonargparse",
    "lightning",
)
# The lazy façade alone would cost nothing, so the names that every script uses are touched as well.
USUAL = "import fulmen; fulmen.Trainer, fulmen.LightningModule, fulmen.LightningDataModule, fulmen.Callback"
CLOCK = "\nimport time; print(time.process_time())"


# With compiled files, as an installed package has them; torch's are there always.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def heavier(base: str, more: str, rounds: int = ROUNDS) -> float:
    """Median ratio of CPU seconds of two imports, in fresh processes, interleaved."""
    python(more)  # the first import of all compiles and fills the file cache
    return statistics.median(float(python(more + CLOCK)) / float(python(base + CLOCK)) for _ in range(rounds))


def modules_of(code: str) -> set[str]:
    return set(json.loads(python(f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))")))


def test_import_time() -> None:
    ratio = heavier("import torch", f"import torch; {USUAL}")
    if ratio > GATE:  # once more and longer: the machine may have been busy
        ratio = heavier("import torch", f"import torch; {USUAL}", rounds=9)
    assert ratio <= GATE, f"importing fulmen takes {ratio:.2f} times the CPU seconds of importing torch"


def test_import_time_is_measured() -> None:
    assert heavier("import json", "import json, decimal, email.message, http.client, asyncio", rounds=3) > GATE


@pytest.mark.parametrize("code", ["import fulmen", USUAL])
def test_import_brings_nothing_heavy(code: str) -> None:
    brought = modules_of(f"import torch; {code}") - modules_of("import torch")
    heavy = sorted(m for m in brought for h in HEAVY if m == h or m.startswith(h + "."))
    assert not heavy, f"{code} imports {heavy[:10]}"


def test_facade_alone_does_not_import_torch() -> None:
    assert "torch" not in modules_of("import fulmen")


def test_public_names_are_the_listed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert public_names.main(["--check"]) == 0, (
        "public names changed; if that is meant: python -m tools.public_names\n" + capsys.readouterr().err
    )


def test_public_names_find_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "probe_of_names"
    (package / "engine").mkdir(parents=True)
    (package / "__init__.py").write_text("__all__ = ['there', 'missing']\nthere = 1\nunlisted = 2\n")
    (package / "_private.py").write_text("__all__ = ['x']\nx = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    modules = public_names.public_modules(package, "probe_of_names")
    assert modules == ["probe_of_names"]
    assert public_names.collect(modules) == (
        ["probe_of_names.missing", "probe_of_names.there"],
        ["probe_of_names.missing"],
    )


def test_public_modules_leave_the_engine_out() -> None:
    modules = public_names.public_modules(ROOT / "src" / "fulmen")
    assert "fulmen.errors" in modules
    assert not [m for m in modules if m.startswith("fulmen.engine")]


def test_version_is_one() -> None:
    import fulmen
    from fulmen.version import __version__

    assert fulmen.__version__ == __version__

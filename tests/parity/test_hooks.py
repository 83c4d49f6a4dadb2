"""Hook order: Lightning's line for line under `Policy.lightning`, and known differences under `Policy.right`.

`hooks/lightning/` holds what Lightning 2.6.6 calls; `hooks/right/` unified diffs from it, renewed by
`python -m tests.parity.write_traces --write`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.parity.frameworks import LIGHTNING, PEER_VERSION, RIGHT, STRICT, Framework, peer, quiet
from tests.parity.recorder import record_all
from tests.parity.write_traces import HERE, diff_of

SCENARIOS = sorted(path.stem for path in (HERE / "lightning").glob("*.txt"))
REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "hooks"

pytestmark = pytest.mark.feature("M-01", "O-01")


def recorded(name: str) -> list[str]:
    return (HERE / "lightning" / f"{name}.txt").read_text("utf-8").splitlines()


Traces = Callable[[str], dict[str, list[str]]]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    """Traces of a framework, recorded once."""

    @cache
    def recorded_by(name: str) -> dict[str, list[str]]:
        with quiet():
            return record_all(Framework(name), tmp_path_factory.mktemp(name))

    return recorded_by


def test_there_are_eight_scenarios() -> None:
    assert len(SCENARIOS) == 8


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference folder is not part of the repository")
def test_the_kept_traces_are_the_reference() -> None:
    for path in sorted(REFERENCE.glob("*.txt")):
        assert path.read_text("utf-8") == (HERE / "lightning" / path.name).read_text("utf-8"), path.name


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_peer_calls_what_was_recorded(name: str, traces: Traces) -> None:
    if peer().__version__ != PEER_VERSION:
        pytest.skip(f"recorded with {PEER_VERSION}")
    assert traces(LIGHTNING)[name] == recorded(name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_strict_order_is_the_peers(name: str, traces: Traces) -> None:
    assert traces(STRICT)[name] == recorded(name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_right_order_differs_as_written_down(name: str, traces: Traces) -> None:
    assert diff_of(name, traces(RIGHT)[name]) == (HERE / "right" / f"{name}.diff").read_text("utf-8")

"""Run the slow tests within a time budget, the least recently passed first, and say what was left.

When each test last passed, and how long it took, is kept in .cache/slow-tests.json; a clean clone starts from
docs/evidence/slow-tests.json. ``--record`` writes that file. The budget is FULMEN_SLOW_BUDGET seconds (3000): a test
whose last duration does not fit into what is left is not started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".cache" / "slow-tests.json"
EVIDENCE = ROOT / "docs" / "evidence" / "slow-tests.json"
DEFAULT_BUDGET = 3000.0
NO_TESTS = 5

State = dict[str, dict[str, float]]


def read_state(state: Path, evidence: Path) -> State:
    """Last passes: the committed ones, overwritten by those of this checkout."""
    merged: State = {}
    for path in (evidence, state):
        if path.exists():
            merged.update(json.loads(path.read_text("utf-8")))
    return merged


def order(nodeids: list[str], state: State) -> list[str]:
    """Least recently passed first; those that never passed keep their order at the front."""
    return sorted(nodeids, key=lambda nodeid: state.get(nodeid, {}).get("passed_at", 0.0))


class Budget:
    """Pytest plugin: sorts the tests, starts none that does not fit, and keeps when each passed."""

    def __init__(self, seconds: float, state: State) -> None:
        self.seconds = seconds
        self.state = state
        self.started = time.monotonic()
        self.left: list[str] = []
        self.failed: set[str] = set()
        self.durations: dict[str, float] = {}

    # trylast: after -m has taken the other tests away.
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[nodeid] for nodeid in order(list(by_id), self.state)]

    def fits(self, nodeid: str, elapsed: float) -> bool:
        return elapsed + self.state.get(nodeid, {}).get("seconds", 0.0) <= self.seconds

    def pytest_runtest_setup(self, item: Any) -> None:
        if not self.fits(item.nodeid, time.monotonic() - self.started):
            import pytest

            self.left.append(item.nodeid)
            pytest.skip("left for the next run: the time budget is used up")

    def pytest_runtest_logreport(self, report: Any) -> None:
        nodeid = report.nodeid
        self.durations[nodeid] = self.durations.get(nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.add(nodeid)
            self.state.pop(nodeid, None)
        elif report.when == "teardown" and nodeid not in self.failed and nodeid not in self.left:
            self.state[nodeid] = {"passed_at": round(time.time()), "seconds": round(self.durations[nodeid], 1)}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.left:
            terminalreporter.section("slow tests left for the next run")
            for nodeid in self.left:
                terminalreporter.line(nodeid)


def collect(arguments: list[str]) -> list[str] | None:
    """Ids of the slow tests; `None` if collecting failed (pytest then tells why)."""
    command = [sys.executable, "-m", "pytest", "-m", "slow", "--collect-only", "-q", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == NO_TESTS:
        return []
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
        return None
    return [line for line in done.stdout.splitlines() if "::" in line]


def main(arguments: list[str] | None = None) -> int:
    """Run; returns pytest's exit code, 0 if there are no slow tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", type=float, default=float(os.environ.get("FULMEN_SLOW_BUDGET", DEFAULT_BUDGET)))
    parser.add_argument("--record", action="store_true", help="write docs/evidence/slow-tests.json")
    options, for_pytest = parser.parse_known_args(arguments)
    started = time.monotonic()
    nodeids = collect(for_pytest)
    if nodeids is None:
        return 1
    if not nodeids:
        print("There are no slow tests.")
        return 0
    import pytest

    budget = Budget(options.budget - (time.monotonic() - started), read_state(STATE, EVIDENCE))
    code = pytest.main(["-m", "slow", "--timeout=1800", *for_pytest], plugins=[budget])
    known = {nodeid: entry for nodeid, entry in budget.state.items() if (ROOT / nodeid.split("::")[0]).exists()}
    for path in (STATE, *([EVIDENCE] if options.record else [])):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"Slow tests: {len(nodeids)} in all, {len(budget.left)} left for the next run.")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())

"""Which features are proven, by which tests.

A test names the features it proves with ``@pytest.mark.feature("M-01", ...)``. The plugin below (loaded by
tests/conftest.py) keeps the last outcome of every such test in .cache/feature-results.json; the program writes
docs/feature_matrix.md from it. A feature is proven when tests name it, at least one
passed and none failed in its last run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.features import ROOT, Feature, load

RESULTS = ROOT / ".cache" / "feature-results.json"
MATRIX = ROOT / "docs" / "feature_matrix.md"

Results = dict[str, dict[str, Any]]


class FeaturePlugin:
    """Collects outcomes of tests marked with `feature` and refuses ids that the list does not have."""

    def __init__(self, results: Path = RESULTS) -> None:
        self.path = results
        self.known = set(load())
        self.results: Results = {}
        self.collected: set[str] = set()
        self.whole_files: set[str] = set()

    def pytest_configure(self, config: Any) -> None:
        config.addinivalue_line("markers", "feature(*ids): rows of docs/features.md that this test proves")

    # tryfirst: before -m and -k take tests away, so that a file is known whole.
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        wrong = []
        for item in items:
            ids = [id_ for marker in item.iter_markers("feature") for id_ in marker.args]
            wrong += [f"{item.nodeid}: {id_}" for id_ in ids if id_ not in self.known]
            if ids:
                item.user_properties.append(("feature", ids))
                self.collected.add(item.nodeid)
            self.whole_files.add(item.nodeid.split("::")[0])
        if wrong:
            import pytest

            raise pytest.UsageError("Features that docs/features.md does not have: " + "; ".join(wrong))
        if any("::" in str(argument) for argument in config.args):
            self.whole_files.clear()

    def pytest_runtest_logreport(self, report: Any) -> None:
        ids = [id_ for name, value in report.user_properties if name == "feature" for id_ in value]
        if not ids:
            return
        entry = self.results.setdefault(report.nodeid, {"features": sorted(set(ids)), "outcome": "passed"})
        if report.failed:
            entry["outcome"] = "failed"
        elif report.skipped and entry["outcome"] == "passed":
            entry["outcome"] = "skipped"

    def pytest_sessionfinish(self, session: Any) -> None:
        if hasattr(session.config, "workerinput") or session.config.option.collectonly:
            return
        stored = read(self.path)
        for nodeid in list(stored):
            file = nodeid.split("::")[0]
            if file in self.whole_files and nodeid not in self.collected:
                del stored[nodeid]
        stored.update(self.results)
        write(self.path, stored)


def read(path: Path) -> Results:
    """Read stored results; nothing stored is an empty mapping."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def write(path: Path, results: Results) -> None:
    """Store results; a reader sees the old or the new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(results, indent=1, sort_keys=True), "utf-8")
    temporary.replace(path)


def status(entries: Iterable[dict[str, Any]]) -> str:
    """One word for a feature: proven, failing, skipped, or not yet proven."""
    outcomes = {entry["outcome"] for entry in entries}
    if not outcomes:
        return "not yet proven"
    if "failed" in outcomes:
        return "failing"
    return "proven" if "passed" in outcomes else "skipped"


def render(features: dict[str, Feature], results: Results) -> str:
    """The matrix as Markdown."""
    by_id: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for nodeid, entry in results.items():
        for id_ in entry["features"]:
            by_id[id_][nodeid] = entry
    states = {id_: status(by_id[id_].values()) for id_ in features}
    counts = {s: list(states.values()).count(s) for s in ("proven", "failing", "skipped", "not yet proven")}
    lines = [
        "# Feature matrix",
        "",
        "Written by `make matrix` from the last run of each test; the rows are those of [features.md](features.md).",
        "A row is *proven* when tests name it and none failed: it says that there is a test, not that nothing is left.",
        "",
        ", ".join(f"{number} {name}" for name, number in counts.items()) + f", of {len(features)}.",
    ]
    section = None
    for id_, feature in features.items():
        if feature.section != section:
            section = feature.section
            lines += ["", f"## {section}", "", "| id | state | tests |", "|---|---|---|"]
        lines.append(f"| {id_} | {states[id_]} | {_tests(by_id[id_])} |")
    return "\n".join(lines) + "\n"


def _tests(entries: dict[str, dict[str, Any]]) -> str:
    if not entries:
        return "–"
    files: dict[str, int] = defaultdict(int)
    for nodeid in entries:
        files[nodeid.split("::")[0].removeprefix("tests/")] += 1
    cells = [f"{file} ({number})" for file, number in sorted(files.items())]
    bad = sorted(n.removeprefix("tests/") for n, e in entries.items() if e["outcome"] == "failed")
    return "; ".join(cells) + ("<br>failing: " + "; ".join(bad[:5]) if bad else "")


def main(arguments: list[str] | None = None) -> int:
    """Write the matrix; with --strict fail unless every row is proven."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=MATRIX)
    parser.add_argument("--strict", action="store_true", help="exit 1 unless every feature is proven")
    options = parser.parse_args(arguments)
    features = load()
    results = {n: e for n, e in read(options.results).items() if (ROOT / n.split("::")[0]).exists()}
    text = render(features, results)
    options.output.write_text(text, "utf-8")
    print(text.splitlines()[5])
    missing = text.count("| not yet proven |") + text.count("| failing |") + text.count("| skipped |")
    return 1 if options.strict and missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""How hook order differs under `Policy.right`: shows the diffs, `--write` renews the checked-in ones.

python -m tests.parity.write_traces [--write]
"""

from __future__ import annotations

import argparse
import difflib
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent / "hooks"


def diff_of(name: str, trace: list[str]) -> str:
    """Unified diff from Lightning's recorded order to `trace`; empty if they are equal."""
    peer = (HERE / "lightning" / f"{name}.txt").read_text("utf-8").splitlines()
    lines = difflib.unified_diff(peer, trace, f"lightning/{name}.txt", f"right/{name}.txt", lineterm="", n=2)
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write tests/parity/hooks/right/*.diff")
    write = parser.parse_args().write
    from tests.parity.frameworks import RIGHT, Framework, quiet
    from tests.parity.recorder import record_all

    with tempfile.TemporaryDirectory() as root, quiet():
        traces = record_all(Framework(RIGHT), Path(root))
    for name, trace in traces.items():
        text = diff_of(name, trace)
        print(text or f"{name}: equal")
        if write:
            (HERE / "right" / f"{name}.diff").write_text(text, "utf-8")


if __name__ == "__main__":
    main()

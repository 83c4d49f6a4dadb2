"""Run the Python examples of README.md and docs/*.md.

Blocks fenced as ```python are run in the order of the page, in one namespace per page, in an empty folder, with user
warnings as errors. A block fenced as ```python no-run is not run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")


def blocks(text: str) -> list[tuple[int, str]]:
    """Runnable blocks: number of the line before the first one of code, and the code."""
    found: list[tuple[int, str]] = []
    start, indent, runnable = 0, 0, False
    lines: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if lines is None and match:
            words = match["info"].split()
            runnable = bool(words) and words[0] == "python" and "no-run" not in words[1:]
            start, indent, lines = number, len(match["indent"]), []
        elif lines is not None and match and not match["info"].strip():
            if runnable:
                found.append((start, "\n".join(lines)))
            lines = None
        elif lines is not None:
            lines.append(line[indent:])
    if lines is not None:
        raise ValueError(f"The block that begins in line {start} has no end.")
    return found


def pages(root: Path = ROOT) -> list[Path]:
    """README and the pages of docs that have runnable blocks."""
    candidates = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in candidates if page.exists() and blocks(page.read_text("utf-8"))]


def execute(page: Path) -> None:
    """Run a page's blocks in this process; tracebacks name the lines of the page."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for start, code in blocks(page.read_text("utf-8")):
        exec(compile("\n" * start + code, str(page), "exec"), namespace)


def check(page: Path) -> str | None:
    """Run a page in a fresh process; returns what went wrong."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    command = [sys.executable, "-W", "error::UserWarning", "-m", "tools.check_docs", "--execute", str(page.resolve())]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    return None if done.returncode == 0 else done.stderr[-4000:] or f"exit code {done.returncode}"


def main(arguments: list[str] | None = None) -> int:
    """Check the pages given, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--execute", action="store_true", help="run in this process (used by the check itself)")
    parser.add_argument("pages", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    if options.execute:
        for page in options.pages:
            execute(page)
        return 0
    failed = 0
    for page in options.pages or pages():
        problem = check(page)
        print(f"{page.name}: {'ok' if problem is None else 'FAILED'}", flush=True)
        if problem is not None:
            failed += 1
            print(problem, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

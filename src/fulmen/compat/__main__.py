"""``python -m fulmen.compat script.py [arguments]`` (or ``-m module``): run a program with the aliases on."""

from __future__ import annotations

import os
import runpy
import sys

from fulmen.compat.install import install_aliases

USAGE = """\
usage: python -m fulmen.compat script.py [arguments]
       python -m fulmen.compat -m module [arguments]

Runs a program that was written for Lightning on Fulmen, unchanged.
"""


def main() -> int:
    """Run the script or module that the command line names, as `python` itself would."""
    rest = sys.argv[1:]
    if not rest or rest[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if rest else sys.stderr)
        return 0 if rest else 2
    by_module = rest[0] == "-m"
    if by_module and len(rest) < 2:
        print(f"python -m fulmen.compat: -m needs the name of a module\n{USAGE}", end="", file=sys.stderr)
        return 2
    if not by_module and not os.path.exists(rest[0]):
        print(f"python -m fulmen.compat: there is no file {rest[0]!r}", file=sys.stderr)
        return 2
    if by_module:
        install_aliases()
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
        return 0
    sys.argv = rest
    # `-m` has put the current folder first; Python puts the script's there.
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
    install_aliases()
    runpy.run_path(rest[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

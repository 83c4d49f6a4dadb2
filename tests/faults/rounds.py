"""Play rounds of kills: `python -m tests.faults.rounds FIRST NUMBER FOLDER`; a line of JSON for each, and a sum."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.faults.crashes import play


def main(first: int, number: int, folder: Path) -> int:
    kills: Counter[str] = Counter()
    different = 0
    for seed in range(first, first + number):
        done = play(seed, folder)
        kills.update(done.kills)
        different += bool(done.differences)
        print(json.dumps(asdict(done)), flush=True)
    print(f"{number} rounds, {sum(kills.values())} kills ({dict(kills)}), {different} with differences", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))

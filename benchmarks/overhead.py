"""What the frameworks cost over the loop you would write by hand.

MLP 32→64→10, batch 32, SGD, CPU, one thread, prebuilt batches through the same `DataLoader(batch_size=None)` for all
(one row reads a `TensorDataset`). Each round runs every contender once, in an order that changes from round to round,
and its loop by hand twice; a contender's ratio is the median over rounds of its time per step to the mean of the two.
How the time of a step is taken is told in `benchmarks/contenders.py`. Gates are judged by CPU time, since a shared
machine's wall clock mostly measures its other guests; both ratios are shown. The rows "by hand, again" are what the
measurement itself scatters.

    python -m benchmarks.overhead            the table
    python -m benchmarks.overhead --quick    fewer and shorter rounds, without peers
    python -m benchmarks.overhead --gates    exit 1 if a gate fails, and fails again when repeated
    python -m benchmarks.overhead --json P   also write figures to P
"""

from __future__ import annotations

import os

# Before torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks import counts
from benchmarks.contenders import Contender, Timing, by_hand, own, peers, settled, validation_by_hand
from benchmarks.variants import BY_HAND

TRAIN = "by hand"
LOOPS: dict[str, tuple[str, Contender]] = {"validate": ("validation by hand", validation_by_hand), **BY_HAND}
"""Kind of contender → its loop by hand; all others are compared with `TRAIN`."""

GOALS: dict[str, tuple[float, float]] = {
    "Fulmen, plain": (1.05, 1.08),
    "Fulmen, log": (1.15, 1.18),
    "Fulmen, everything": (1.20, 1.25),
    "Fulmen, validate": (1.10, 1.13),
    "Fulmen, accumulation": (1.10, 1.15),
    "Fulmen, manual": (1.10, 1.15),
    "Fulmen, combined": (1.10, 1.15),
    "Fulmen, rows": (0.70, 0.75),
}
"""Goal and gate of the ratio to the loop by hand."""

WORDS = {
    "plain": "fit, nothing else",
    "log": "+ self.log of 3 values",
    "everything": "+ progress bar, CSV logger, checkpoint, LR monitor",
    "validate": "validate with 2 logged values",
    "accumulation": "accumulate_grad_batches=4",
    "manual": "two optimizers, manual",
    "combined": "CombinedLoader of two",
    "rows": "TensorDataset, shuffled",
}


@dataclass
class Row:
    """One line of the table; `unit` is empty for ratios."""

    name: str
    value: float
    unit: str = ""
    goal: float | None = None
    gate: float | None = None
    wall_ratio: float | None = None
    micros: float | None = None

    @property
    def failed(self) -> bool:
        return self.gate is not None and self.value > self.gate


def one_run(contender: Contender, steps: int) -> Timing:
    with tempfile.TemporaryDirectory() as folder, settled():
        return contender(steps, Path(folder))


def measure(contenders: dict[str, Contender], rounds: int, steps: int) -> dict[str, list[Timing]]:
    """Times of all contenders, round by round."""
    order = list(contenders)
    times: dict[str, list[Timing]] = {name: [] for name in order}
    for index in range(rounds):
        turn = index * 5 % len(order)
        for name in order[turn:] + order[:turn]:
            times[name].append(one_run(contenders[name], steps))
            show(f"round {index + 1} of {rounds}: {name}")
    show("")
    return times


def show(text: str) -> None:
    """A line on the terminal that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def loop_of(name: str) -> str:
    """Name of the loop by hand that a contender is compared with."""
    head, _, kind = name.rpartition(", ")
    if kind == "again":
        return head
    return LOOPS[kind][0] if kind in LOOPS else name if name.endswith("by hand") else TRAIN


def ratio(times: dict[str, list[Timing]], name: str, clock: str) -> float:
    """Median over rounds of the time to that of the loop by hand in the same round."""
    base = loop_of(name)
    pairs = zip(times[name], times[base], times[f"{base}, again"], strict=True)
    return statistics.median(2 * getattr(t, clock) / (getattr(a, clock) + getattr(b, clock)) for t, a, b in pairs)


def overhead(rounds: int, steps: int, *, with_peers: bool, only: set[str] | None = None) -> list[Row]:
    """Rows of the contenders."""
    found = {f"Fulmen, {name}": run for name, run in own().items()} | (peers() if with_peers else {})
    found = {name: run for name, run in found.items() if only is None or name in only}
    loops = {TRAIN: by_hand, **dict(LOOPS.values())}
    needed = {loop_of(name) for name in found}
    loops = {name: run for name, run in loops.items() if name in needed}
    contenders = loops | found | {f"{name}, again": run for name, run in loops.items()}
    for contender in contenders.values():  # imports, caches and one-time warnings are not the subject
        one_run(contender, 20)
    times = measure(contenders, rounds, steps)
    rows = []
    for name in contenders:
        goal, gate = GOALS.get(name, (None, None))
        micros = statistics.median(t.cpu for t in times[name])
        rows.append(Row(name, ratio(times, name, "cpu"), "", goal, gate, ratio(times, name, "wall"), micros))
    return rows


def count_rows(quick: bool) -> list[Row]:
    """Rows that are counted, and those of start-up."""
    runs = 3 if quick else 9
    return [
        Row("own Python calls per batch", counts.calls_per_batch(), "calls", 60, 60),
        Row("own frames from fit to training_step", counts.frames_to_step(), "frames", 8, 8),
        Row("import fulmen over import torch", counts.import_ratio(runs), "", 1.05, 1.10),
        Row("fit to first step, second Trainer", counts.second_start(runs), "ms", 100, 100),
    ]


def table(rows: list[Row]) -> str:
    lines = [f"{'':52}{'ratio':>8}{'(wall)':>8}{'µs/step':>9}{'goal':>8}{'gate':>8}"]
    for row in rows:
        kind = row.name.rpartition(", ")[2]
        name = f"{row.name} ({WORDS[kind]})" if kind in WORDS and row.name.startswith("Fulmen") else row.name
        value = f"{row.value:8.3f}" if not row.unit else f"{row.value:8.1f}"
        wall = f"{row.wall_ratio:8.2f}" if row.wall_ratio is not None else f"{row.unit:>8}"
        micros = f"{row.micros:9.1f}" if row.micros is not None else " " * 9
        limits = "".join(f"{limit:8.2f}" if limit is not None else " " * 8 for limit in (row.goal, row.gate))
        met = "" if row.goal is None else "  FAILS" if row.failed else "" if row.value <= row.goal else "  over goal"
        lines.append(f"{name:52.52}{value}{wall}{micros}{limits}{met}")
    return "\n".join(lines)


def about(rounds: int, steps: int) -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "steps": steps,
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="rounds (9; 3 with --quick)")
    parser.add_argument("--steps", type=int, help="steps of a round (2000; 500 with --quick)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, without peers")
    parser.add_argument("--no-peers", action="store_true", help="Fulmen and the loop by hand only")
    parser.add_argument("--gates", action="store_true", help="exit 1 if a gate fails twice")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    args = parser.parse_args()
    rounds, steps = args.rounds or (3 if args.quick else 9), args.steps or (500 if args.quick else 2000)
    torch.set_num_threads(1)

    counted = count_rows(args.quick)  # before the peers are imported
    rows = [*overhead(rounds, steps, with_peers=not (args.quick or args.no_peers)), *counted]
    failed = {row.name for row in rows if row.failed}
    if args.gates and failed:
        print(table(rows), f"\nrepeating: {', '.join(sorted(failed))}", sep="\n")
        again = [*overhead(rounds, steps, with_peers=False, only=failed), *count_rows(args.quick)]
        repeated = {row.name: row for row in again if row.name in failed}
        rows = [repeated.get(row.name, row) for row in rows]
    print(table(rows))
    if args.json is not None:
        figures = {"about": about(rounds, steps), "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    still = [row.name for row in rows if row.failed]
    if args.gates and still:
        print(f"gates failed: {', '.join(still)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

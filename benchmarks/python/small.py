"""Many small tensors: the cost per tensor beside safetensors and torch.

Each round runs both sides, in turns as to which is first. What counts is the median of the rounds' ratios, theirs / ours.
Both run in one process: a start of Python would hide what is measured here. Nothing is synced to the disk.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.python import limits
from benchmarks.python.small_tasks import TASKS, Pair, Setting

LEAST_ROUNDS = 7


@dataclass(frozen=True)
class Measured:
    ours: float  # medians, in seconds
    theirs: float
    ratio: float  # the median of the rounds' ratios
    lowest: float
    highest: float


def _seconds(work: Callable[[], object], clean: Callable[[], None]) -> float:
    clean()
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    gc.enable()
    del result
    return seconds


def measure(pair: Pair, rounds: int) -> Measured:
    pair.check()  # also warms both sides up
    ours, theirs = [], []
    for number in range(rounds):
        if number % 2:
            ours.append(_seconds(pair.ours, pair.clean))
            theirs.append(_seconds(pair.theirs, pair.clean))
        else:
            theirs.append(_seconds(pair.theirs, pair.clean))
            ours.append(_seconds(pair.ours, pair.clean))
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    return Measured(
        statistics.median(ours), statistics.median(theirs), statistics.median(ratios), min(ratios), max(ratios)
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2 * LEAST_ROUNDS - 1, help="of each task (13)")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), help="only these")
    parser.add_argument("--dir", type=Path, help="where to put files, about 2 GB")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    if arguments.rounds < LEAST_ROUNDS:
        print(f"fewer than {LEAST_ROUNDS} rounds: to see that everything runs, not to compare", file=sys.stderr)
    print(f"{'task':<52} {'ours':>10} {'theirs':>10} {'us/tensor':>10} {'ratio':>7}  {'from':>5} {'to':>6}  goal")
    for name in arguments.tasks or TASKS:
        with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as directory:
            path = Path(directory)
            pair = TASKS[name](Setting(path, limits.Limits(limits.compile_library(path))))
            found = measure(pair, arguments.rounds)
        goal = f"{pair.goal:g}: {'reached' if found.ratio >= pair.goal else 'MISSED'}" if pair.goal else ""
        print(
            f"{name + ': ' + pair.title:<52} {found.ours * 1e3:7.2f} ms {found.theirs * 1e3:7.2f} ms "
            f"{found.ours / pair.count * 1e6:10.2f} {found.ratio:7.2f}  {found.lowest:5.2f} {found.highest:6.2f}  {goal}",
            flush=True,
        )
        del pair
        gc.collect()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

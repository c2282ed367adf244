"""Many small tensors: the cost per tensor beside safetensors and torch.

Each round runs both sides, in turns as to which is first. What counts is the median of the rounds' ratios, theirs / ours.
Both run in one process: a start of Python would hide what is measured here. Nothing is synced to the disk. The last ratio is that of
processor time, of all threads: it says more than the first where other programs keep the machine busy, but nothing about work
that is done on several cores at once.
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
from typing import NamedTuple

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.python import limits
from benchmarks.python.small_tasks import TASKS, Pair, Setting

LEAST_ROUNDS = 7


class Sample(NamedTuple):
    seconds: float
    processor: float  # seconds of all threads


@dataclass(frozen=True)
class Measured:
    ours: float  # medians, in seconds
    theirs: float
    ratios: list[float]  # of the rounds
    processor: float  # the median of the rounds' ratios


def _sample(work: Callable[[], object], clean: Callable[[], None]) -> Sample:
    clean()
    gc.collect()
    gc.disable()
    processor = time.process_time()
    start = time.perf_counter()
    result = work()
    sample = Sample(time.perf_counter() - start, time.process_time() - processor)
    gc.enable()
    del result
    return sample


def measure(pair: Pair, rounds: int) -> Measured:
    pair.check()  # also warms both sides up
    ours: list[Sample] = []
    theirs: list[Sample] = []
    for number in range(rounds):
        sides = ((theirs, pair.theirs), (ours, pair.ours))
        for samples, work in sides if number % 2 else reversed(sides):
            samples.append(_sample(work, pair.clean))
    rounds_of = list(zip(theirs, ours, strict=True))
    return Measured(
        statistics.median(sample.seconds for sample in ours),
        statistics.median(sample.seconds for sample in theirs),
        [their.seconds / our.seconds for their, our in rounds_of],
        statistics.median(their.processor / max(our.processor, 1e-6) for their, our in rounds_of),
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
    print(
        f"{'task':<52} {'ours':>10} {'theirs':>10} {'us/tensor':>10} {'ratio':>6} {'from':>6} {'to':>6} {'cpu':>6}  goal"
    )
    for name in arguments.tasks or TASKS:
        with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as directory:
            path = Path(directory)
            pair = TASKS[name](Setting(path, limits.Limits(limits.compile_library(path))))
            found = measure(pair, arguments.rounds)
        ratio = statistics.median(found.ratios)
        goal = f"{pair.goal:g}: {'reached' if ratio >= pair.goal else 'MISSED'}" if pair.goal else ""
        print(
            f"{name + ': ' + pair.title:<52} {found.ours * 1e3:7.2f} ms {found.theirs * 1e3:7.2f} ms "
            f"{found.ours / pair.count * 1e6:10.2f} {ratio:6.2f} {min(found.ratios):6.2f} {max(found.ratios):6.2f} "
            f"{found.processor:6.2f}  {goal}",
            flush=True,
        )
        del pair
        gc.collect()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

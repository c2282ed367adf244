"""The sharded saver and its tables beside torch's checkpoint writers and what the machine can do: one table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.python import runner
from benchmarks.python.saver_sample import ROW_BYTES, WORK

Samples = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Goal:
    text: str
    value: Callable[[Samples], float]
    at_least: float | None = None
    at_most: float | None = None

    def verdict(self, samples: Samples) -> str:
        value = self.value(samples)
        if self.at_least is not None:
            reached, bound = value >= self.at_least, f"at least {self.at_least:g}"
        else:
            assert self.at_most is not None
            reached, bound = value <= self.at_most, f"at most {self.at_most:.3g}"
        return f"{'reached' if reached else 'NOT REACHED':<12} {value:.3g} {self.text} ({bound})"


def seconds(samples: Samples, prefix: str) -> float:
    return min(each["seconds"] for who, each in samples.items() if who.startswith(prefix))


def speedup(over: str) -> Callable[[Samples], float]:
    return lambda samples: seconds(samples, over) / seconds(samples, "weightstore")


def memory_beyond_rows(samples: Samples) -> float:
    ours = samples["weightstore"]
    return (ours["extra_bytes"] - 8 * ours["amount"] / ROW_BYTES) / 1e6


_MEMORY = Goal("MB beside 8 bytes a row", memory_beyond_rows, at_most=64)

TASKS: dict[str, tuple[str, tuple[Goal, ...]]] = {
    "dense-save": (
        "save 16 tensors of 64 MiB, durable",
        (
            Goal("x DCP's best", speedup("DCP, "), at_least=1.5),
            Goal("x DCP's Hugging Face writer", speedup("DCP Hugging Face"), at_least=4),
        ),
    ),
    "sparse-save": (
        "save a table of 16 F32 and two slots, page cache",
        (Goal("of a parallel pwrite", speedup("parallel pwrite"), at_least=0.6), _MEMORY),
    ),
    "sparse-load": (
        "load it into an empty table, warm",
        (Goal("of inserting and copying", speedup("insert and copy"), at_least=0.5), _MEMORY),
    ),
    "insert": ("fill a table in batches of 64k", ()),  # nothing to compare with in the same run
    "insert-calls": (
        "1000 calls that insert 4096 rows, and 1000 that insert none",
        (
            Goal(
                "of the time of a call with 4096 rows is the call itself",
                lambda s: s["no rows"]["seconds"] / s["4096 rows"]["seconds"],
                at_most=0.1,
            ),
        ),
    ),
    "lookup": (
        "look up batches of 64k into a reused output",
        (Goal("of torch.index_select", speedup("torch.index_select"), at_least=0.5),),
    ),
    "one-of-eight": (
        "load one of 8 shards from a checkpoint of one",
        (
            Goal(
                "of the bytes were read",
                lambda s: s["weightstore"]["amount"] / s["weightstore"]["extra_bytes"],
                at_most=1.15 / 8,
            ),
        ),
    ),
    "async-dense": (
        "save_async, second call, dense: until it returns",
        (Goal("x a memcpy's time", lambda s: 1 / speedup("memcpy")(s), at_most=1.5),),
    ),
    "async-table": (
        "save_async, second call, table: until it returns",
        (Goal("of a blocking save's time", lambda s: 1 / speedup("blocking save")(s), at_most=0.02),),
    ),
}


def one_sample(task: str, who: str, directory: Path, rows: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.python.saver_sample", task, who, str(directory / "sample"), str(rows)]
    done = subprocess.run(command, cwd=runner.ROOT, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(task: str, directory: Path, rows: int, repeats: int, patience: float) -> Samples:
    """The best time and the highest memory of each; rounds are interleaved."""
    best: Samples = {}
    for _ in range(repeats):
        for who in WORK[task]:
            runner.settle(patience)
            found = one_sample(task, who, directory, rows)
            known = best.setdefault(who, found)
            known["seconds"] = min(known["seconds"], found["seconds"])
            known["extra_bytes"] = max(known["extra_bytes"], found["extra_bytes"])
    return best


def show(task: str, samples: Samples) -> None:
    title, goals = TASKS[task]
    print(f"\n{task}: {title}")
    units = {"insert": "M rows/s", "lookup": "M rows/s", "insert-calls": "M calls/s"}
    unit = units.get(task, "GB/s")
    scale = 1e9 if unit == "GB/s" else 1e6
    for who, each in sorted(samples.items(), key=lambda item: item[1]["seconds"]):
        speed = each["amount"] / each["seconds"] / scale
        print(
            f"  {who:<30} {each['seconds'] * 1e3:9.1f} ms {speed:8.2f} {unit:<9} {each['extra_bytes'] / 1e6:8.0f} MB extra"
        )
    for goal in goals:
        print(f"  {goal.verdict(samples)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mrows", type=float, default=8, help="million rows of the table (8)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--patience", type=float, default=3, help="seconds to wait for a quiet machine (3)")
    parser.add_argument("--dir", type=Path, help="where to put files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as directory:
        for task in arguments.tasks:
            rows = int(arguments.mrows * 1e6)
            show(task, measure(task, Path(directory), rows, arguments.repeats, arguments.patience))
    return 0


if __name__ == "__main__":
    sys.exit(main())

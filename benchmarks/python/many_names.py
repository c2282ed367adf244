"""A million names: how long it takes to open a file that is nothing but header and to list its tensors, beside stock safetensors,
and how much memory that takes besides the list of names itself.

Each sample is a process of its own. The two take turns; what counts is the median of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.python.memory import PeakMemory, resident_bytes

NAMES = 1_000_000
CONTESTANTS = ("safetensors", "weightstore")
SPEED_GOAL = 15  # times as fast as safetensors
PEAK_GOAL = 1.2  # times the header
AFTERWARDS_GOAL = 80e6  # bytes
ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, count: int) -> int:
    """A file of empty tensors, whose names have 45 characters. Returns the bytes of the header."""
    names = (f"model.layers.{i // 1000:04d}.experts.{i % 1000:04d}.w1.weight.data" for i in range(count))
    value = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    header = ("{" + ",".join(f'"{name}":{value}' for name in names) + "}").encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return len(header)


def open_and_list(who: str, path: str) -> dict[str, float]:
    """One sample, in this process."""
    module = importlib.import_module(who)
    open_file = getattr(module, "open" if who == "weightstore" else "safe_open")  # imports what opening needs
    before = resident_bytes()
    peak = PeakMemory()
    start, used = time.perf_counter(), time.process_time()
    file = open_file(path) if who == "weightstore" else open_file(path, framework="np")
    opened = peak.extra_bytes()
    names = list(file.keys())
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - used
    # What Python takes for the list: its objects in blocks of 16 bytes.
    listed = sys.getsizeof(names) + sum((sys.getsizeof(name) + 15) // 16 * 16 for name in names)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "names": len(names),
        "peak": max(opened, peak.extra_bytes() - listed),
        "afterwards": resident_bytes() - before - listed,
    }


def sample(who: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.python.many_names", "--sample", who, str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def word(reached: bool) -> str:
    return "reached" if reached else "NOT REACHED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--names", type=int, default=NAMES)
    parser.add_argument("--sample", nargs=2, metavar=("WHO", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sample:
        print(json.dumps(open_and_list(*arguments.sample)))
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "names.safetensors"
        header = write(path, arguments.names)
        samples: dict[str, list[dict[str, float]]] = {who: [] for who in CONTESTANTS}
        for number in range(arguments.rounds):
            for who in CONTESTANTS if number % 2 == 0 else reversed(CONTESTANTS):
                samples[who].append(sample(who, path))
    print(f"{arguments.names:,} names of 45 characters, header {header / 1e6:.0f} MB, {arguments.rounds} rounds")
    for who, runs in samples.items():
        assert {run["names"] for run in runs} == {arguments.names}
        print(
            f"  {who:<12} {statistics.median(run['seconds'] for run in runs):7.3f} s "
            f"({statistics.median(run['cpu_seconds'] for run in runs):7.3f} s of processor time), memory besides the list: "
            f"peak {max(run['peak'] for run in runs) / 1e6:5.0f} MB, afterwards "
            f"{max(run['afterwards'] for run in runs) / 1e6:5.0f} MB"
        )
    for what, key in (("times as fast", "seconds"), ("times as fast in processor time", "cpu_seconds")):
        pairs = zip(samples["safetensors"], samples["weightstore"], strict=True)
        ratios = [theirs[key] / ours[key] for theirs, ours in pairs]
        ratio = statistics.median(ratios)
        print(
            f"  {ratio:.1f} {what} ({min(ratios):.1f} to {max(ratios):.1f}), goal {SPEED_GOAL}: {word(ratio >= SPEED_GOAL)}"
        )
    peak = max(run["peak"] for run in samples["weightstore"])
    afterwards = max(run["afterwards"] for run in samples["weightstore"])
    print(f"  peak {peak / header:.2f} times the header, goal {PEAK_GOAL}: {word(peak <= PEAK_GOAL * header)}")
    print(
        f"  afterwards {afterwards / 1e6:.0f} MB, goal {AFTERWARDS_GOAL / 1e6:.0f}: {word(afterwards <= AFTERWARDS_GOAL)}"
    )


if __name__ == "__main__":
    main()

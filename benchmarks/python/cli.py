"""cli.py [--gb G] [--rounds N] [--dir DIR]: how fast the command answers.

Every round takes one sample of everything, so that a slow minute of the machine hits all sides; ratios are medians of the rounds'
ratios. Commands run in processes of their own, and their whole time counts.

- start: `inspect` and `list` of a file of 291 tensors, over `python -c pass`.
- million: the same of a file of a million tensors.
- show, diff: rates of `show` and `diff --values` over a file of F32 in the page cache, beside the rate at which numpy sums the same
  bytes in memory with one thread a processor. For `diff` the bytes of both files count.
- convert: to the same format and to another one, beside the slower of reading the file and of writing it durably, without a format.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

import weightstore.numpy

SCRIPT = os.path.join(sysconfig.get_path("scripts"), "weightstore")
CHUNK = 8 << 20


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def command(*arguments: object) -> Callable[[], None]:
    def run() -> None:
        done = subprocess.run([SCRIPT, *map(str, arguments)], stdout=subprocess.DEVNULL)
        assert done.returncode in (0, 1), arguments

    return run


def python_pass() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def interleaved(rounds: int, works: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    for work in works.values():
        work()  # files into the page cache, bytecode to disk
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            samples[name].append(seconds(work))
    return samples


def report(what: str, value: str, goal: str) -> None:
    print(f"| {what} | {value} | {goal} |", flush=True)


def small_file(path: Path, count: int, width: int) -> Path:
    tensors = {f"model.layers.{i:0{width}}.weight": np.zeros(4, np.float32) for i in range(count)}
    weightstore.numpy.save_file(tensors, path, durable=False)
    return path


def measure_start(folder: Path, rounds: int) -> None:
    path = small_file(folder / "small.safetensors", 291, 3)
    works = {"pass": python_pass, "inspect": command("inspect", path), "list": command("list", path)}
    samples = interleaved(max(rounds, 15), works)
    base = median(samples["pass"])
    for verb in ("inspect", "list"):
        over = median(a - b for a, b in zip(samples[verb], samples["pass"], strict=True))
        report(f"`{verb}` of 291 tensors, over `python -c pass` ({base * 1e3:.0f} ms)", f"{over * 1e3:.1f} ms", "25 ms")


def measure_million(folder: Path, rounds: int) -> None:
    path = small_file(folder / "million.safetensors", 1_000_000, 28)
    samples = interleaved(rounds, {verb: command(verb, path) for verb in ("inspect", "list")})
    for verb, times in samples.items():
        report(f"`{verb}` of a million tensors", f"{median(times):.2f} s", "2 s")
    path.unlink()


def sum_in_threads(array: np.ndarray) -> None:
    parts = np.array_split(array, os.cpu_count() or 1)
    threads = [threading.Thread(target=part.sum) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure_numbers(folder: Path, rounds: int, nbytes: int) -> None:
    array = np.random.default_rng(0).standard_normal(nbytes // 4, np.float32)
    a, same, other = (folder / f"{name}.safetensors" for name in ("a", "same", "other"))
    names = [f"layers.{i}.weight" for i in range(64)]
    tensors = dict(zip(names, np.array_split(array, 64), strict=True))
    weightstore.numpy.save_file(tensors, a, durable=False)
    weightstore.numpy.save_file(tensors, same, durable=False)
    weightstore.numpy.save_file({name: part + np.float32(1e-3) for name, part in tensors.items()}, other, durable=False)
    works: dict[str, Callable[[], object]] = {
        "numpy": lambda: sum_in_threads(array),
        "show without histograms": command("show", a, "--no-histogram"),
        "show with histograms": command("show", a),
        "diff --values, equal": command("diff", "--values", a, same),
        "diff --values, all different": command("diff", "--values", a, other),
    }
    samples = interleaved(rounds, works)
    rate = array.nbytes / median(samples["numpy"]) / 1e9
    goals = {"show without histograms": "60 %", "show with histograms": "30 %"}
    for name, times in samples.items():
        if name == "numpy":
            continue
        files = 2 if name.startswith("diff") else 1
        share = median(files * base / sample for base, sample in zip(samples["numpy"], times, strict=True))
        what = f"`{name}`, {files * array.nbytes / median(times) / 1e9:.1f} GB/s beside numpy's {rate:.1f}"
        report(what, f"{share:.0%}", goals.get(name, "50 %"))
    for path in (a, same, other):
        path.unlink()


def read_raw(path: Path) -> None:
    buffer = bytearray(CHUNK)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def write_raw(path: Path, data: memoryview) -> None:
    with open(path, "wb", buffering=0) as file:
        for begin in range(0, len(data), CHUNK):
            file.write(data[begin : begin + CHUNK])
        os.fsync(file.fileno())


def measure_convert(folder: Path, rounds: int, nbytes: int) -> None:
    array = np.random.default_rng(0).integers(0, 2**31, nbytes // 4, np.int32)
    source = folder / "source.safetensors"
    tensors = {f"layers.{i}.weight": part for i, part in enumerate(np.array_split(array, 64))}
    weightstore.numpy.save_file(tensors, source)
    works = {
        "read": lambda: read_raw(source),
        "write": lambda: write_raw(folder / "raw", memoryview(array).cast("B")),
        "to Burnpack": command("convert", source, folder / "target.bpk", "--overwrite"),
        "to SafeTensors": command("convert", source, folder / "target.safetensors", "--overwrite"),
    }
    samples = interleaved(rounds, works)
    slower = [max(pair) for pair in zip(samples["read"], samples["write"], strict=True)]
    for name in ("to Burnpack", "to SafeTensors"):
        share = median(base / sample for base, sample in zip(slower, samples[name], strict=True))
        rates = (
            f"{array.nbytes / median(samples[name]) / 1e9:.2f} GB/s beside {array.nbytes / median(slower) / 1e9:.2f}"
        )
        report(f"`convert` {name}, {rates}", f"{share:.0%}", "80 %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=1.0, help="size of the file of numbers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where files go; about four times the size")
    parser.add_argument("--tasks", nargs="*", default=["start", "million", "numbers", "convert"])
    options = parser.parse_args()
    nbytes = int(options.gb * 1e9) // 256 * 256
    print("| what | found | goal |\n|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        if "start" in options.tasks:
            measure_start(folder, options.rounds)
        if "million" in options.tasks:
            measure_million(folder, options.rounds)
        if "numbers" in options.tasks:
            measure_numbers(folder, options.rounds, nbytes)
        if "convert" in options.tasks:
            measure_convert(folder, options.rounds, nbytes)


if __name__ == "__main__":
    main()

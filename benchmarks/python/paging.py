"""Models larger than memory: how near a pass over all layers comes to the physical limit, and how others do.

M is the size of the model, B the budget, W the window that the pager reads through. A pass must read M - B bytes, and the bars
are about M - B + W. The rate of the disk is measured in every round, by plain direct reads of the same file with 1 to 4 threads.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import torch

import weightstore
from weightstore.torch import save_file

MIB = 1 << 20
WINDOW = 64 * MIB
GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def word(reached: bool) -> str:
    return "reached" if reached else "NOT REACHED"


# ---- the machine -------------------------------------------------------------------------------------------------------


@contextmanager
def memory_limit(limit: int) -> Iterator[str]:
    """Runs in a control group with so much memory, if this process may make one. Says what it did."""
    for root, name in zip(GROUPS, ("memory.limit_in_bytes", "memory.max"), strict=True):
        group = root / f"weightstore-bench-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield f"in a control group of {limit / 1e6:.0f} MB ({name})"
        finally:
            (root / "cgroup.procs").write_text(str(os.getpid()))
            with suppress(OSError):
                group.rmdir()
        return
    yield "without a control group (not permitted here)"


def write_model(path: Path, layers: int, megabytes: int) -> int:
    width = int((megabytes * MIB / layers / 4) ** 0.5) // 64 * 64
    torch.manual_seed(0)
    save_file({f"layers.{i}.weight": torch.randn(width, width) / width**0.5 for i in range(layers)}, path)
    return width


def drop_cache(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def read_rate(path: Path, most: int = 1 << 30) -> float:
    """Bytes per second by the best of several numbers of threads, without the page cache."""
    size = min(path.stat().st_size // (4 * MIB) * 4 * MIB, most)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        fd = os.open(path, os.O_RDONLY)
    best = 0.0
    for threads in (1, 2, 3, 4):
        buffers = [mmap.mmap(-1, 4 * MIB) for _ in range(threads)]

        def work(number: int, threads: int = threads, buffers: list[mmap.mmap] = buffers) -> None:
            for at in range(number * 4 * MIB, size, threads * 4 * MIB):
                if os.preadv(fd, [buffers[number]], at) != 4 * MIB:
                    raise OSError("a read was short")

        start = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        best = max(best, size / (time.perf_counter() - start))
    os.close(fd)
    return best


class Compute:
    """Work for one thread, by the second."""

    def __init__(self) -> None:
        self._a = torch.randn(128, 128)
        self.calibrate()

    def _spin(self, count: int) -> None:
        for _ in range(count):
            self._a @ self._a

    def calibrate(self) -> None:
        self._spin(200)
        start = time.perf_counter()
        self._spin(2000)
        self._each = (time.perf_counter() - start) / 2000

    def __call__(self, seconds: float) -> None:
        self._spin(round(seconds / self._each))


# ---- passes ------------------------------------------------------------------------------------------------------------


def pager_of(path: Path, budget: int, policy: Any = "cyclic") -> weightstore.Pager:
    return weightstore.Pager(path, budget, policy=policy, strict=True, direct=True, readers=4)


def one_pass(pager: weightstore.Pager, order: list[int], work: Callable[[], None]) -> float:
    start = time.perf_counter()
    for slot in order:
        with pager.acquire(slot):
            work()
    return time.perf_counter() - start


def cyclic_table(path: Path, layers: int, rounds: int) -> None:
    size, compute = path.stat().st_size, Compute()
    order = list(range(layers))
    print("\ncyclic passes: time / max(compute, (M - B + W) / rate), and bytes read / (M - B + W); goals 1.15 and 1.05")
    for share in (0.25, 0.5, 0.75, 0.9):
        budget = int(size * share)
        must = size - budget + min(WINDOW, budget)
        for ratio in (0, 0.5, 1, 2):
            times, reads, rates = [], [], []
            with pager_of(path, budget) as pager:
                for _ in range(3):
                    one_pass(pager, order, lambda: None)
                for _ in range(rounds):
                    rate = read_rate(path)
                    compute.calibrate()
                    seconds = ratio * must / rate
                    before = pager.stats()["bytes_read"]
                    taken = one_pass(pager, order, lambda s=seconds / layers: compute(s) if s else None)
                    reads.append((pager.stats()["bytes_read"] - before) / must)
                    times.append(taken / max(seconds, must / rate))
                    rates.append(rate)
            took, read = statistics.median(times), statistics.median(reads)
            print(
                f"  budget {share:4.0%}, compute {ratio:3} x reading: {took:5.2f} x the bound {word(took <= 1.15)}; "
                f"{read:5.3f} x the bytes {word(read <= 1.05)}; {statistics.median(rates) / 1e9:.2f} GB/s",
                flush=True,
            )


class Stack(torch.nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def empty_stack(layers: int, width: int) -> Stack:
    with weightstore.empty_weights():
        return Stack(layers, width).eval()


def bytes_read() -> int:
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


def contestants(path: Path, layers: int, width: int, budget: int, offload: Path) -> dict[str, Callable[[], Any]]:
    """Modules that run the same model, each with the means of one system."""
    made: dict[str, Callable[[], Any]] = {}

    def ours(policy: Any) -> Callable[[], Any]:
        model = empty_stack(layers, width)
        handle = weightstore.offload_module(model, pager_of(path, budget, policy))
        return lambda x: (model(x), handle)[0]  # type: ignore[misc]

    made["weightstore, cyclic"] = lambda: ours("cyclic")
    made["weightstore, lru"] = lambda: ours("lru")

    def mapped() -> Callable[[Any], Any]:
        model = empty_stack(layers, width)
        weightstore.load_from(model, weightstore.SafetensorsStore.from_file(path).zero_copy(True))
        return model

    made["mmap"] = mapped
    try:
        import accelerate
    except ImportError:
        return made

    def accelerated() -> Callable[[Any], Any]:
        model = empty_stack(layers, width)
        kept = int(layers * budget / path.stat().st_size) - 4
        device_map = {f"layers.{i}": "cpu" if i < kept else "disk" for i in range(layers)}
        return accelerate.load_checkpoint_and_dispatch(  # type: ignore[no-any-return]
            model, str(path), device_map=device_map, offload_folder=str(offload), force_hooks=True
        )

    made["accelerate, disk"] = accelerated
    return made


def peer_table(path: Path, layers: int, width: int, rounds: int) -> None:
    size = path.stat().st_size
    budget = size // 2
    goals = {"accelerate, disk": 4.0, "mmap": 2.0, "weightstore, lru": 1.5}
    x = torch.randn(1, width)
    times: dict[str, list[float]] = {}
    reads: dict[str, list[int]] = {}
    rates = []
    with tempfile.TemporaryDirectory(dir=path.parent) as offload, torch.no_grad():
        models = {}
        for name, make in contestants(path, layers, width, budget, Path(offload)).items():
            try:
                models[name] = make()
                expected = models["weightstore, cyclic"](x)
                for _ in range(2):
                    assert torch.equal(models[name](x), expected), name
            except Exception as error:
                models.pop(name, None)
                print(f"  {name} does not run: {type(error).__name__}: {error}")
        for _ in range(rounds):
            rates.append(read_rate(path))
            for name, model in models.items():
                before, start = bytes_read(), time.perf_counter()
                model(x)
                times.setdefault(name, []).append(time.perf_counter() - start)
                reads.setdefault(name, []).append(bytes_read() - before)
    rate = statistics.median(rates)
    print(f"\nat a budget of 50 %, batch 1, {rate / 1e9:.2f} GB/s:")
    ours = times["weightstore, cyclic"]
    for name in times:
        ratio = statistics.median(t / o for t, o in zip(times[name], ours, strict=True))
        more = statistics.median(r / max(o, 1) for r, o in zip(reads[name], reads["weightstore, cyclic"], strict=True))
        text = (
            f"  {name:<22} {1e3 * statistics.median(times[name]):7.0f} ms, {ratio:5.2f} x ours; {more:5.2f} x our bytes"
        )
        if name in goals:
            goal = goals[name] if rate >= 6e9 else 0.8 * more
            text += f"; goal {goal:.2f} x: {word(ratio >= goal)}"
        print(text)


def zigzag(path: Path, layers: int) -> None:
    order = list(range(layers))
    trace = order + order[::-1]
    read = {}
    for policy in ("lru", "cyclic"):
        with pager_of(path, path.stat().st_size // 2, policy) as pager:
            for _ in range(2):
                one_pass(pager, trace, lambda: None)
            before = pager.stats()["bytes_read"]
            one_pass(pager, trace, lambda: None)
            read[policy] = pager.stats()["bytes_read"] - before
    ratio = read["cyclic"] / max(read["lru"], 1)
    print(f"\nzig-zag: {read['cyclic'] / 1e6:.0f} MB, {ratio:.3f} x LRU's; goal 1.02: {word(ratio <= 1.02)}")


# ---- memory ------------------------------------------------------------------------------------------------------------


def resident_memory(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def memory_sample(path: Path, layers: int, width: int) -> None:
    model = empty_stack(layers, width)
    x = torch.randn(1, width)
    torch.nn.functional.linear(x, torch.randn(width, width))  # what torch itself takes
    start = resident_memory("VmRSS")
    with weightstore.offload_module(model, path, budget="400MB"), torch.no_grad():
        for _ in range(4):
            model(x)
    print(json.dumps({"start": start, "peak": resident_memory("VmHWM")}))


def memory_table(path: Path, layers: int, width: int) -> None:
    command = [sys.executable, __file__, "--memory-sample", str(path), str(layers), str(width)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    over = found["peak"] - found["start"]
    print(
        f'\nbudget="400MB", model {path.stat().st_size / 1e6:.0f} MB: peak {over / 1e6:.0f} MB over the start; '
        f"goal 400 MB + 64 MiB: {word(over <= 400e6 + 64 * MIB)}"
    )


def main() -> int:
    if sys.argv[1:2] == ["--memory-sample"]:
        torch.set_num_threads(1)
        memory_sample(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1536, help="size of the model (1536)")
    parser.add_argument("--layers", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where to write the model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as directory:
        path = Path(directory) / "model.safetensors"
        width = write_model(path, arguments.layers, arguments.mb)
        size = path.stat().st_size
        with memory_limit(size + (512 << 20)) as where:
            print(f"{arguments.layers} layers, {size / 1e6:.0f} MB, {where}; torch with one thread", flush=True)
            drop_cache(path)
            memory_table(path, arguments.layers, width)
            zigzag(path, arguments.layers)
            peer_table(path, arguments.layers, width, arguments.rounds)
            cyclic_table(path, arguments.layers, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

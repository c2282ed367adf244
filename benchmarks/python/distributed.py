"""Saves and loads of several ranks beside torch's own storage and what the machine can do.

All ranks run the same schedule: in every round each contestant once, beginning with another one each time. A time ends when the last
rank is done. The tables show medians over rounds; a ratio is the median of the ratios of the rounds. Saves are durable.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import (
    FileSystemReader,
    FileSystemWriter,
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files_on_every_rank
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from weightstore.dcp import StorageReader, StorageWriter

COLUMNS = 4096
TENSORS = 16
CHUNK = 4 << 20


@dataclass
class Samples:
    """Seconds and extra bytes of each contestant, by round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    extra: dict[str, int] = field(default_factory=dict)

    def ratio(self, slow: str, fast: str) -> float:
        return statistics.median(a / b for a, b in zip(self.seconds[slow], self.seconds[fast], strict=True))


@dataclass(frozen=True)
class Goal:
    text: str
    slow: str
    fast: str
    at_least: float = 0.0
    at_most: float = float("inf")

    def verdict(self, samples: Samples) -> str:
        value = samples.ratio(self.slow, self.fast)
        bound = f"at least {self.at_least:g}" if self.at_least else f"at most {self.at_most:g}"
        reached = self.at_least <= value <= self.at_most
        return f"  {'reached' if reached else 'NOT REACHED':<12} {value:.2f} {self.text} ({bound})"


def make_state(total: int, axis: int) -> dict[str, DTensor]:
    """Matrices of `total` bytes together, sharded by rows (0) or columns (1)."""
    world = dist.get_world_size()
    mesh: DeviceMesh = init_device_mesh("cpu", (world,))
    rows = total // TENSORS // (4 * COLUMNS) // world * world
    shape = [rows, COLUMNS]
    local = [size // world if number == axis else size for number, size in enumerate(shape)]
    state = {}
    for number in range(TENSORS):
        values = torch.empty(local).fill_(number + dist.get_rank() / world)
        state[f"layer.{number:02d}.weight"] = DTensor.from_local(
            values, mesh, [Shard(axis)], run_check=False, shape=torch.Size(shape), stride=(COLUMNS, 1)
        )
    return state


def local_bytes(state: dict[str, DTensor]) -> int:
    return sum(tensor.to_local().nbytes for tensor in state.values())


# ---- contestants -----------------------------------------------------------------------------------------------------


def ours(state: Any, path: str, layout: str, files: int) -> None:
    size = sum(tensor.numel() * 4 for tensor in state.values()) // files + 1
    writer = StorageWriter(path, layout=layout, max_shard_size=size)
    dcp.save(state, storage_writer=writer)


def file_system(state: Any, path: str) -> None:
    dcp.save(state, storage_writer=FileSystemWriter(path, thread_count=2))


def file_of(state: Any, files: int) -> dict[str, int]:
    return {name: number * files // len(state) + 1 for number, name in enumerate(state)}


def hugging_face(state: Any, path: str) -> None:
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(path, save_distributed=True, thread_count=2))


def consolidated(state: Any, path: str, files: int) -> None:
    """torch's Hugging Face writer, then its consolidation on every rank."""
    mapping = file_of(state, files)
    sharded = os.path.join(path, "sharded")
    writer = HuggingFaceStorageWriter(
        sharded, fqn_to_index_mapping=mapping, save_distributed=True, thread_count=min(2, files)
    )
    dcp.save(state, storage_writer=writer)
    consolidate_safetensors_files_on_every_rank(sharded, path, mapping, num_threads=2)
    for number, name in enumerate(sorted(os.listdir(path))):
        if name.endswith(".safetensors") and number % dist.get_world_size() == dist.get_rank():
            sync(os.path.join(path, name))


def sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def disk(state: Any, path: str) -> None:
    """What the disk takes: each rank writes its bytes around the page cache, on two threads, and syncs."""
    os.makedirs(path, exist_ok=True)
    name = os.path.join(path, f"raw-{dist.get_rank()}")
    total = local_bytes(state)
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
    os.posix_fallocate(descriptor, 0, total)
    with mmap.mmap(-1, CHUNK) as memory:
        memory.write(os.urandom(CHUNK))
        view = memoryview(memory)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda offset: os.pwrite(descriptor, view, offset), range(0, total - CHUNK + 1, CHUNK)))
        view.release()
    os.fsync(descriptor)
    os.close(descriptor)


def load(state: Any, reader: Any) -> None:
    dcp.load(state, storage_reader=reader)


def preads(state: Any, path: str) -> None:
    """A parallel pread of each rank's own file into the same memory."""
    name = next(each for each in os.listdir(path) if each.startswith(f"shard-{dist.get_rank() + 1:05d}-"))
    descriptor = os.open(os.path.join(path, name), os.O_RDONLY)
    size = os.fstat(descriptor).st_size
    work = []
    at = size - local_bytes(state)
    for tensor in state.values():
        memory = memoryview(tensor.to_local().reshape(-1).view(torch.uint8).numpy())
        for offset in range(0, len(memory), CHUNK):
            part = memory[offset : offset + CHUNK]
            work.append((part, at))
            at += len(part)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda each: os.preadv(descriptor, [each[0]], each[1]), work))
    os.close(descriptor)


# ---- measuring -------------------------------------------------------------------------------------------------------


def extra_memory(call: Callable[[], None]) -> int:
    """The peak of anonymous memory over what the process held before, in bytes."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    call()
    return max(0, status("VmHWM") - before)


def status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True)
class Rounds:
    """How often to measure: `count` rounds, or fewer if a task has taken `seconds` and has three."""

    count: int
    seconds: float

    def are_over(self, done: int, begin: float) -> bool:
        late = torch.tensor(float(time.perf_counter() - begin > self.seconds))
        dist.broadcast(late, 0)
        return done >= self.count or (done >= 3 and bool(late))


def say(text: str) -> None:
    """Progress, on stderr."""
    if dist.get_rank() == 0:
        print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def compare(contestants: dict[str, Callable[[str], None]], rounds: Rounds, folder: str, keep: bool = False) -> Samples:
    """Runs each contestant once a round with a directory of its own. The first round does not count: it warms up."""
    samples = Samples()
    names = list(contestants)
    started = time.perf_counter()
    for number in range(rounds.count + 1):
        if rounds.are_over(number - 1, started):
            break
        for name in names[number % len(names) :] + names[: number % len(names)]:
            path = os.path.join(folder, name.replace(" ", "-").replace(",", ""))
            if dist.get_rank() == 0 and not keep:
                shutil.rmtree(path, ignore_errors=True)
                os.sync()
            dist.barrier()
            begin = time.perf_counter()
            extra = torch.tensor(float(extra_memory(functools.partial(contestants[name], path))))
            dist.barrier()
            seconds = time.perf_counter() - begin
            dist.all_reduce(extra, dist.ReduceOp.MAX)
            say(f"round {number} of {rounds.count}: {name}, {seconds:.2f} s")
            if number > 0:
                samples.seconds.setdefault(name, []).append(seconds)
                samples.extra[name] = max(samples.extra.get(name, 0), int(extra))
    if dist.get_rank() == 0 and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()
    return samples


def show(title: str, total: int, samples: Samples, goals: list[Goal]) -> None:
    if dist.get_rank() != 0:
        return
    print(f"\n{title}")
    for name, seconds in samples.seconds.items():
        middle = statistics.median(seconds)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        extra = samples.extra[name] / 2**20
        print(
            f"  {name:<34} {middle:7.2f} s  ({spread})  {total / middle / 1e9:6.2f} GB/s  {extra:7.0f} MiB extra a rank"
        )
    for goal in goals:
        print(goal.verdict(samples))
    sys.stdout.flush()


def bench_whole(axis: int, total: int, rounds: Rounds, folder: str) -> None:
    files = 4
    for name, times, whole in (("rows", 3, 1.25), ("columns", 5, 2))[axis : axis + 1]:
        state = make_state(total, axis)
        samples = compare(
            {
                "whole": lambda path, state=state: ours(state, path, "whole", files),
                "per-rank": lambda path, state=state: ours(state, path, "per-rank", files),
                "torch, consolidated": lambda path, state=state: consolidated(state, path, files),
                "disk": lambda path, state=state: disk(state, path),
            },
            rounds,
            folder,
        )
        goals = [
            Goal("x torch's consolidation", "torch, consolidated", "whole", at_least=times),
            Goal("x our layout per-rank", "whole", "per-rank", at_most=whole),
            Goal("of the disk's rate", "disk", "whole", at_least=0.75),
        ]
        show(f"{dist.get_world_size()} ranks save a Hugging Face model, sharded by {name}", total, samples, goals)


def bench_save(total: int, rounds: Rounds, folder: str) -> None:
    state = make_state(total, 0)
    samples = compare(
        {
            "weightstore": lambda path: ours(state, path, "per-rank", 4),
            "FileSystemWriter": lambda path: file_system(state, path),
            "HuggingFaceStorageWriter": lambda path: hugging_face(state, path),
        },
        rounds,
        folder,
    )
    goals = [
        Goal("x FileSystemWriter", "FileSystemWriter", "weightstore", at_least=1.3),
        Goal("x HuggingFaceStorageWriter", "HuggingFaceStorageWriter", "weightstore", at_least=2),
    ]
    show(f"{dist.get_world_size()} ranks save", total, samples, goals)
    memory = samples.extra["weightstore"] / 2**20
    if dist.get_rank() == 0:
        print(
            f"  {'reached' if memory <= 64 else 'NOT REACHED':<12} {memory:.0f} MiB of extra memory a rank (at most 64)"
        )


def bench_load(total: int, rounds: Rounds, folder: str) -> None:
    state = make_state(total, 0)
    ours(state, os.path.join(folder, "ours"), "per-rank", 4)
    file_system(state, os.path.join(folder, "fs"))
    hugging_face(state, os.path.join(folder, "hf"))
    samples = compare(
        {
            "weightstore": lambda _: load(state, StorageReader(os.path.join(folder, "ours"))),
            "FileSystemReader": lambda _: load(state, FileSystemReader(os.path.join(folder, "fs"))),
            "HuggingFaceStorageReader": lambda _: load(state, HuggingFaceStorageReader(os.path.join(folder, "hf"), 2)),
            "pread": lambda _: preads(state, os.path.join(folder, "ours")),
        },
        rounds,
        folder,
        keep=True,
    )
    goals = [
        Goal("x FileSystemReader", "FileSystemReader", "weightstore", at_least=1.5),
        Goal("x HuggingFaceStorageReader", "HuggingFaceStorageReader", "weightstore", at_least=1),
        Goal("of a parallel pread's rate", "pread", "weightstore", at_least=0.8),
    ]
    show(f"{dist.get_world_size()} ranks load", total, samples, goals)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)


def bench_async(total: int, rounds: Rounds, folder: str) -> None:
    """How long a training step waits for async_save(), and for a copy of the same bytes."""
    state = make_state(total, 0)
    writers: dict[str, Callable[[str], Any]] = {
        "weightstore": lambda path: StorageWriter(path),
        # Its cache is pinned memory, which needs a device.
        "FileSystemWriter": lambda path: FileSystemWriter(
            path, thread_count=2, cache_staged_state_dict=torch.cuda.is_available()
        ),
        "HuggingFaceStorageWriter": lambda path: HuggingFaceStorageWriter(path, save_distributed=True),
    }
    made = {name: make(os.path.join(folder, name)) for name, make in writers.items()}
    touched = {name: tensor.to_local().clone() for name, tensor in state.items()}
    stalls: dict[str, list[float]] = {}
    for number in range(rounds.count + 1):
        say(f"round {number} of {rounds.count}")
        for name, writer in made.items():
            dist.barrier()
            begin = time.perf_counter()
            future = dcp.async_save(state, storage_writer=writer)
            stalls.setdefault(name, []).append(time.perf_counter() - begin)
            getattr(future, "upload_completion", future).result()
            dist.barrier()
        begin = time.perf_counter()
        for name, tensor in state.items():
            touched[name].copy_(tensor.to_local())
        stalls.setdefault("memcpy", []).append(time.perf_counter() - begin)
        dist.barrier()
        begin = time.perf_counter()
        fresh = [tensor.to_local().clone() for tensor in state.values()]
        stalls.setdefault("memcpy, fresh", []).append(time.perf_counter() - begin)
        del fresh
    first = {name: seconds.pop(0) for name, seconds in stalls.items()}
    if dist.get_rank() == 0:
        print(f"\n{dist.get_world_size()} ranks: how long async_save() takes to return")
        for name, seconds in stalls.items():
            print(f"  {name:<34} {statistics.median(seconds) * 1e3:7.0f} ms, the first {first[name] * 1e3:.0f} ms")
        samples = Samples(stalls)
        print(Goal("x memcpy", "weightstore", "memcpy", at_most=1.2).verdict(samples))
        first_ratio = first["weightstore"] / statistics.median(stalls["memcpy, fresh"])
        print(
            f"  {'reached' if first_ratio <= 1.2 else 'NOT REACHED':<12} {first_ratio:.2f} x memcpy into fresh memory, the first (at most 1.2)"
        )
        for peer in ("FileSystemWriter", "HuggingFaceStorageWriter"):
            print(Goal(f"x {peer}", "weightstore", peer, at_most=1).verdict(samples))
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()


BENCHES: dict[str, Callable[[int, Rounds, str], None]] = {
    "rows": functools.partial(bench_whole, 0),
    "columns": functools.partial(bench_whole, 1),
    "save": bench_save,
    "load": bench_load,
    "async": bench_async,
}


def run_rank(rank: int, world: int, meeting: str, options: argparse.Namespace) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = dist.FileStore(meeting, world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(minutes=10))
    for name in options.tasks:
        if name in ("rows", "columns") and world != 4:
            continue
        folder = os.path.join(options.folder, f"{name}-{world}")
        BENCHES[name](int(options.gb * 1e9), Rounds(options.rounds, options.seconds), folder)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=4.0, help="bytes of all ranks together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=300.0, help="a task that took longer ends after three rounds")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--tasks", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--folder", help="on the file system to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        options.folder = folder
        print(json.dumps({"gb": options.gb, "rounds": options.rounds, "processors": os.cpu_count()}))
        for world in options.ranks:
            mp.spawn(run_rank, (world, os.path.join(folder, f"meeting-{world}"), options), nprocs=world)


if __name__ == "__main__":
    main()

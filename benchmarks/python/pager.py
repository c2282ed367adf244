"""A pager from Python: what an acquire costs when the tensor is there, and how near a miss is to a plain read."""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.python.cache import chill, warm

import weightstore

MIB = 1 << 20
FEW_AND_MANY = (723, 46_000)
MISS_GOAL = 0.9  # of what plain reads into ready memory reach
HIT_GOAL = 500  # ns, by slot
GROWTH_GOAL = 3  # at most so many times as long with 46,000 tensors as with 723


def word(reached: bool) -> str:
    return "reached" if reached else "NOT REACHED"


def best_ns(work: Callable[[int], object], count: int, repeats: int) -> float:
    """Nanoseconds of one of `count` steps, in the best repeat; `work` does all of them."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter_ns()
        work(count)
        best = min(best, time.perf_counter_ns() - start)
    return best / count


def hits(repeats: int) -> list[tuple[str, float]]:
    rows = []
    for tensors in FEW_AND_MANY:
        names = [f"model.layers.{i // 9}.part.{i % 9}.weight" for i in range(tensors)]
        pager = weightstore.LayerPager(bytes(64), dict.fromkeys(names, (0, 64)))
        for name in names:
            pager.acquire(name)
        slots = [pager.slot(name) for name in names]
        table = OrderedDict((name, b"") for name in names)

        # In an order that visits all, and no neighbours.
        order = [i * 7_919 % tensors for i in range(2_000)]
        some_slots = [slots[i] for i in order]
        some_names = [names[i] for i in order]

        def with_slot(_: int, acquire=pager.acquire, ids=some_slots) -> None:
            for slot in ids:
                with acquire(slot):
                    pass

        def bare(_: int, acquire=pager.acquire, ids=some_slots) -> None:
            for slot in ids:
                acquire(slot)

        def by_name(_: int, acquire=pager.acquire, ids=some_names) -> None:
            for name in ids:
                acquire(name)

        def ordered_dict(count: int, table=table, ids=some_names) -> None:
            move = table.move_to_end
            for name in ids:
                table[name]
                move(name)

        # Short rounds and many of them: the best one was not interrupted.
        count, rounds = len(order), 100 * repeats
        rows += [
            (f"acquire(slot), {tensors:,} tensors", best_ns(bare, count, rounds)),
            (f"with acquire(slot), {tensors:,} tensors", best_ns(with_slot, count, rounds)),
            (f"acquire(name), {tensors:,} tensors", best_ns(by_name, count, rounds)),
            (f"  an OrderedDict as a cache, {tensors:,} names", best_ns(ordered_dict, count, rounds)),
        ]
    return rows


class Plain:
    """The same reads by pread(2), in parts taken by some threads, into memory that is ready: as many buffers as the
    pager goes through, on huge pages like its own."""

    def __init__(self, path: Path, size: int, *, direct: bool, threads: int) -> None:
        self._fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        self._buffers = []
        for _ in range(2):
            memory = mmap.mmap(-1, size + 2 * MIB)
            memory.madvise(mmap.MADV_HUGEPAGE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            start = -address % (2 * MIB)
            memory[start : start + size] = bytes(size)
            self._buffers.append(memoryview(memory)[start : start + size])
        part = size if threads == 1 else MIB if direct else 4 * MIB
        self._parts = [(at, min(at + part, size)) for at in range(0, size, part)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._turn = 0

    def read(self, offset: int) -> None:
        self._turn ^= 1
        buffer = self._buffers[self._turn]

        def read_part(part: tuple[int, int]) -> None:
            begin, end = part
            if os.preadv(self._fd, [buffer[begin:end]], offset + begin) != end - begin:
                raise OSError("a read was short")

        for _ in map(read_part, self._parts) if self._pool is None else self._pool.map(read_part, self._parts):
            pass

    def close(self) -> None:
        os.close(self._fd)
        if self._pool is not None:
            self._pool.shutdown()


def misses(path: Path, size: int, repeats: int, *, cold: bool) -> tuple[float, dict[str, float]]:
    """GB/s of a loop over a file of which one tensor fits, by the pager and by plain reads; rounds are interleaved."""
    length = path.stat().st_size
    entries = {str(at): (at, size) for at in range(0, length - size + 1, size)}
    pager = weightstore.LayerPager(path, entries, size, direct=cold)

    def paged() -> None:
        for slot in range(len(pager)):
            pager.acquire(slot)

    rounds: dict[str, Callable[[], None]] = {"pager": paged}
    plains = {f"{n} thread{'s' if n > 1 else ''}": Plain(path, size, direct=cold, threads=n) for n in (1, 2, 3)}
    for who, plain in plains.items():

        def loop(plain: Plain = plain) -> None:
            for offset, _ in entries.values():
                plain.read(offset)

        rounds[who] = loop
    rates = dict.fromkeys(rounds, 0.0)
    for _ in range(repeats):
        for who, work in rounds.items():
            (chill if cold else warm)(path)
            start = time.perf_counter_ns()
            work()
            rates[who] = max(rates[who], len(entries) * size / (time.perf_counter_ns() - start))
    for plain in plains.values():
        plain.close()
    return rates.pop("pager"), rates


def report_misses(directory: Path, megabytes: int, repeats: int) -> None:
    path = directory / "raw"
    block = os.urandom(MIB)
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(block)
    for cold in (False, True):
        for size in (4 * MIB, 16 * MIB, 64 * MIB):
            rate, plain = misses(path, size, repeats, cold=cold)
            share = rate / max(plain.values())
            title = f"miss, {size // MIB} MiB, {'cold, O_DIRECT' if cold else 'warm'}"
            beside = ", ".join(f"{value:.2f} by {who}" for who, value in plain.items())
            print(f"{title:<50} {rate:8.2f} GB/s, {share:.0%} of plain reads ({beside})", end="; ")
            print(f"goal {MISS_GOAL:.0%}: {word(share >= MISS_GOAL)}")


def report_hits(repeats: int) -> None:
    rows = hits(repeats)
    for title, nanoseconds in rows:
        print(f"{title:<50} {nanoseconds:8.0f} ns")
    few, many = (dict(rows)[f"acquire(slot), {tensors:,} tensors"] for tensors in FEW_AND_MANY)
    print(f"goal {HIT_GOAL} ns by slot: {word(max(few, many) <= HIT_GOAL)}", end="; ")
    print(f"goal {GROWTH_GOAL} x from few to many: {many / few:.1f} x, {word(many <= GROWTH_GOAL * few)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512, help="size of the file for misses (512)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where to put the file")
    arguments = parser.parse_args()
    report_hits(arguments.repeats)
    with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as directory:
        report_misses(Path(directory), arguments.mb, arguments.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())

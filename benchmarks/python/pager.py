"""A pager from Python: what an acquire costs when the tensor is there, and how near a miss is to a plain read."""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import weightstore

MIB = 1 << 20


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
    for tensors in (723, 46_000):
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


def drop_from_cache(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def misses(directory: Path, megabytes: int, repeats: int) -> list[tuple[str, float]]:
    """GB/s of a loop over a file that fits nowhere, by the pager and by pread(2) into memory that is ready."""
    path = directory / "raw"
    block = os.urandom(MIB)
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(block)
    rows = []
    for direct in (False, True):
        for size in (4 * MIB, 16 * MIB, 64 * MIB):
            entries = {str(at): (at, size) for at in range(0, megabytes * MIB - size + 1, size)}
            pager = weightstore.LayerPager(path, entries, size, direct=direct)
            flags = os.O_RDONLY | (os.O_DIRECT if direct else 0)
            fd = os.open(path, flags)
            ready = mmap.mmap(-1, size)
            ready.write(bytes(size))

            def paged(_: int, pager=pager) -> None:
                for slot in range(len(pager)):
                    pager.acquire(slot)

            def plain(_: int, fd=fd, ready=ready, entries=entries) -> None:
                for offset, _ in entries.values():
                    os.preadv(fd, [ready], offset)

            read = len(entries) * size
            what = f"{size // MIB} MiB, {'O_DIRECT' if direct else 'page cache'}"
            for who, work in (("miss", paged), ("  one pread into ready memory", plain)):
                best = 0.0
                for _ in range(repeats):
                    if direct:
                        drop_from_cache(path)
                    best = max(best, read / best_ns(work, 1, 1))
                rows.append((f"{who}, {what}", best))
            os.close(fd)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512, help="size of the file for misses (512)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where to put the file")
    arguments = parser.parse_args()
    for title, nanoseconds in hits(arguments.repeats):
        print(f"{title:<50} {nanoseconds:8.0f} ns")
    with tempfile.TemporaryDirectory(prefix="weightstore-bench-", dir=arguments.dir) as directory:
        for title, rate in misses(Path(directory), arguments.mb, arguments.repeats):
            print(f"{title:<50} {rate:8.2f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

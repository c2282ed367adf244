"""One sample of the pager in a process of its own: python -m benchmarks.python.pager_sample TASK FILE

Prints one line of JSON with the seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.python.cache import chill, warm

import weightstore

TENSOR_BYTES = 16 << 20
TENSORS = 723  # of a model with some eighty layers
VISITS = 400_000


def elapsed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def resident(_: Path) -> tuple[weightstore.LayerPager, list[str]]:
    """A pager of small tensors that are all in memory, and their names in an order that visits no neighbours."""
    names = [f"model.layers.{i // 9}.part.{i % 9}.weight" for i in range(TENSORS)]
    pager = weightstore.LayerPager(bytes(64), dict.fromkeys(names, (0, 64)))
    for name in names:
        pager.acquire(name)
    return pager, [names[i * 7_919 % TENSORS] for i in range(VISITS)]


def hit_by_slot(path: Path) -> float:
    pager, names = resident(path)
    slots = [pager.slot(name) for name in names]

    def visit() -> None:
        acquire = pager.acquire
        for slot in slots:
            acquire(slot)

    return elapsed(visit)


def hit_by_name(path: Path) -> float:
    pager, names = resident(path)

    def visit() -> None:
        acquire = pager.acquire
        for name in names:
            acquire(name)

    return elapsed(visit)


def paging(path: Path, tensors: int, *, direct: bool) -> weightstore.LayerPager:
    """A pager over the file in tensors of equal size, of which so many fit."""
    length = path.stat().st_size
    entries = {str(at): (at, TENSOR_BYTES) for at in range(0, length - TENSOR_BYTES + 1, TENSOR_BYTES)}
    return weightstore.LayerPager(path, entries, tensors * TENSOR_BYTES, direct=direct)


def miss(path: Path, *, cold: bool) -> float:
    """A loop over a file of which one tensor fits: every acquire reads."""
    pager = paging(path, 1, direct=cold)

    def visit() -> None:
        for slot in range(len(pager)):
            pager.acquire(slot)

    visit()  # takes the memory
    (chill if cold else warm)(path)
    return elapsed(visit)


def prefetched(path: Path) -> float:
    """The same with the next tensor prefetched, and four that fit."""
    pager = paging(path, 4, direct=False)

    def visit() -> None:
        for slot in range(len(pager)):
            pager.prefetch([(slot + 1) % len(pager)])
            pager.acquire(slot)

    visit()
    warm(path)
    return elapsed(visit)


WORK: dict[str, Callable[[Path], float]] = {
    "pager-hit": hit_by_slot,
    "pager-hit-name": hit_by_name,
    "pager-miss": lambda path: miss(path, cold=False),
    "pager-miss-cold": lambda path: miss(path, cold=True),
    "pager-prefetch": prefetched,
}


if __name__ == "__main__":
    print(json.dumps({"seconds": WORK[sys.argv[1]](Path(sys.argv[2]))}))

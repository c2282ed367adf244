"""One sample of the sharded saver in a process of its own: python -m benchmarks.python.saver_sample TASK WHO DIR MROWS

Prints one line of JSON: seconds, bytes (or rows), extra memory.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.python import cache, memory
from benchmarks.python.sample import measure

import weightstore
import weightstore.torch  # registers torch.classes.store

THREADS = max(2, os.cpu_count() or 2)
BATCH = 64 << 10
CALLS = 1000
DIM = 16
SLOTS = ("exp_avg", "exp_avg_sq")
ROW_BYTES = 8 + 4 * DIM * (1 + len(SLOTS))
BLOCK = 4 << 20

Sample = dict[str, float]


def sample(seconds: float, amount: int, extra: int = 0) -> Sample:
    return {"seconds": seconds, "amount": amount, "extra_bytes": extra}


def dense_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {f"layer.{i}.weight": torch.randn(4096, 4096, generator=generator) for i in range(16)}


def total_bytes(tensors: dict[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def table_ids(rows: int) -> torch.Tensor:
    """Ids that share nothing but being different."""
    return (torch.arange(rows) * -0x61C8864680B583EB) >> 2


def empty_table(begin: int = 0, end: int = 65536) -> Any:
    table = torch.classes.store.HashTable("user", [DIM], torch.float32, begin, end, 65536, 4096, [])
    for slot in SLOTS:
        table.add_slot(slot, [DIM], torch.float32, 0.0)
    return table


def filled_table(rows: int) -> Any:
    table = empty_table()
    ids = table_ids(rows)
    values = torch.randn(BATCH, DIM)
    for begin in range(0, rows, BATCH):
        batch = ids[begin : begin + BATCH]
        table.insert(batch, values[: len(batch)])
        for slot in SLOTS:
            table.write_slot(slot, batch, values[: len(batch)])
    return table


# ---- dense ----------------------------------------------------------------------------------------------------------


def dense_ours(directory: Path, _: int) -> Sample:
    tensors = dense_tensors()
    saver = weightstore.Saver(0, 1, THREADS, directory, None, tensors)
    _, seconds, extra = measure(saver.save)
    return sample(seconds, total_bytes(tensors), extra)


def dense_dcp(writer: str, threads: int) -> Callable[[Path, int], Sample]:
    def run(directory: Path, _: int) -> Sample:
        import torch.distributed.checkpoint as dcp

        tensors = dense_tensors()
        storage = getattr(dcp, writer)(str(directory), thread_count=threads)
        _, seconds, extra = measure(lambda: dcp.save(tensors, storage_writer=storage, no_dist=True))
        return sample(seconds, total_bytes(tensors), extra)

    return run


# ---- tables on disk -------------------------------------------------------------------------------------------------


def sparse_save(directory: Path, rows: int) -> Sample:
    table = filled_table(rows)
    saver = weightstore.Saver(0, 1, THREADS, directory, {"user": table}, durable=False)
    _, seconds, extra = measure(saver.save)
    return sample(seconds, rows * ROW_BYTES, extra)


def parallel_pwrite(directory: Path, rows: int) -> Sample:
    """The same bytes from ready memory into preallocated files, one a thread."""
    size = rows * ROW_BYTES // THREADS
    data = torch.randint(0, 255, (size,), dtype=torch.uint8).numpy()

    def write(path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            for begin in range(0, size, BLOCK):
                os.pwrite(file.fileno(), data[begin : begin + BLOCK], begin)

    def run() -> None:
        threads = [threading.Thread(target=write, args=(directory / str(i),)) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _, seconds, extra = measure(run)
    return sample(seconds, size * THREADS, extra)


def saved_table(directory: Path, rows: int) -> None:
    weightstore.Saver(0, 1, THREADS, directory, {"user": filled_table(rows)}, durable=False).save()


def sparse_load(directory: Path, rows: int) -> Sample:
    saved_table(directory, rows)
    cache.warm(directory)
    table = empty_table()
    loader = weightstore.Loader(directory, {"user": table}, parallel=THREADS)
    before = memory.resident_bytes()
    _, seconds, extra = measure(loader.load)
    assert table.size() == rows
    in_table = memory.resident_bytes() - before
    return sample(seconds, rows * ROW_BYTES, extra - in_table)


def insert_and_copy(directory: Path, rows: int) -> Sample:
    """The same ids and embeddings inserted in batches, and the other slots copied to fresh memory."""
    ids, values = table_ids(rows), torch.randn(rows, DIM)
    table = torch.classes.store.HashTable("user", [DIM], torch.float32)

    def run() -> list[torch.Tensor]:
        table.reserve(rows)
        for begin in range(0, rows, BATCH):
            table.insert(ids[begin : begin + BATCH], values[begin : begin + BATCH])
        return [values.clone() for _ in SLOTS]

    _, seconds, extra = measure(run)
    return sample(seconds, rows * ROW_BYTES, extra)


def one_of_eight(directory: Path, rows: int) -> Sample:
    """`amount` is what was read, `extra_bytes` what all of the checkpoint has."""
    saved_table(directory, rows)

    def read_so_far() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    table = empty_table(3 * 8192, 4 * 8192)
    before, start = read_so_far(), time.perf_counter()
    weightstore.Loader(directory, {"user": table}, parallel=THREADS).load()
    seconds = time.perf_counter() - start
    whole = sum(file.stat().st_size for file in cache.files(directory))
    return sample(seconds, read_so_far() - before, whole)


# ---- tables in memory -----------------------------------------------------------------------------------------------


def table_insert(_: Path, rows: int) -> Sample:
    ids, values = table_ids(rows), torch.randn(BATCH, DIM)
    table = torch.classes.store.HashTable("user", [DIM], torch.float32)

    def run() -> None:
        for begin in range(0, rows, BATCH):
            batch = ids[begin : begin + BATCH]
            table.insert(batch, values[: len(batch)])

    _, seconds, extra = measure(run)
    return sample(seconds, rows, extra)


def best_pass(rows: int, step: Callable[[int], None]) -> Sample:
    """The best of several passes over all rows, in batches."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for begin in range(0, rows - BATCH + 1, BATCH):
            step(begin)
        best = min(best, time.perf_counter() - start)
    return sample(best, rows // BATCH * BATCH)


def insert_calls(kind: Callable[..., Any], batch: int) -> Callable[[Path, int], Sample]:
    """Seconds of CALLS inserts of `batch` rows that the table has already, in the best of several passes."""

    def run(_: Path, rows: int) -> Sample:
        table = kind("user", [DIM], torch.float32)
        ids, values = table_ids(batch), torch.randn(batch, DIM)
        best = float("inf")
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(CALLS):
                table.insert(ids, values)
            best = min(best, time.perf_counter() - start)
        return sample(best, CALLS)

    return run


def scripted_table(*arguments: Any) -> Any:
    return torch.classes.store.HashTable(*arguments)


def table_lookup(_: Path, rows: int) -> Sample:
    table = torch.classes.store.HashTable("user", [DIM], torch.float32)
    ids = table_ids(rows)
    table.insert(ids, torch.randn(rows, DIM))
    ids = ids[torch.randperm(rows)]
    out = torch.empty(BATCH, DIM)
    return best_pass(rows, lambda begin: table.lookup_out(ids[begin : begin + BATCH], False, out))


def index_select(_: Path, rows: int) -> Sample:
    values, order, out = torch.randn(rows, DIM), torch.randperm(rows), torch.empty(BATCH, DIM)
    return best_pass(rows, lambda begin: torch.index_select(values, 0, order[begin : begin + BATCH], out=out))


# ---- save_async -----------------------------------------------------------------------------------------------------


def second_async(saver: weightstore.Saver) -> float:
    saver.save_async().result()
    start = time.perf_counter()
    future = saver.save_async()
    seconds = time.perf_counter() - start
    future.result()
    return seconds


def async_dense(directory: Path, _: int) -> Sample:
    tensors = dense_tensors()
    return sample(second_async(weightstore.Saver(0, 1, THREADS, directory, None, tensors)), total_bytes(tensors))


def copy_dense(_: Path, __: int) -> Sample:
    tensors = dense_tensors()
    copies = {name: tensor.clone() for name, tensor in tensors.items()}

    def run() -> None:
        for name, tensor in tensors.items():
            copies[name].copy_(tensor)

    return sample(min(measure(run)[1] for _ in range(2)), total_bytes(tensors))


def async_table(directory: Path, rows: int) -> Sample:
    saver = weightstore.Saver(0, 1, THREADS, directory, {"user": filled_table(rows)})
    return sample(second_async(saver), rows * ROW_BYTES)


def blocking_table(directory: Path, rows: int) -> Sample:
    saver = weightstore.Saver(0, 1, THREADS, directory, {"user": filled_table(rows)})
    _, seconds, extra = measure(saver.save)
    return sample(seconds, rows * ROW_BYTES, extra)


WORK: dict[str, dict[str, Callable[[Path, int], Sample]]] = {
    "dense-save": {
        "weightstore": dense_ours,
        **{f"DCP, {n} threads": dense_dcp("FileSystemWriter", n) for n in (1, 2, 4)},
        **{f"DCP Hugging Face, {n} threads": dense_dcp("HuggingFaceStorageWriter", n) for n in (1, 4)},
    },
    "sparse-save": {"weightstore": sparse_save, "parallel pwrite": parallel_pwrite},
    "sparse-load": {"weightstore": sparse_load, "insert and copy": insert_and_copy},
    "insert": {"weightstore": table_insert},
    "insert-calls": {
        "4096 rows": insert_calls(weightstore.HashTable, 4096),
        "no rows": insert_calls(weightstore.HashTable, 0),
        "torch.classes.store, 4096 rows": insert_calls(scripted_table, 4096),
        "torch.classes.store, no rows": insert_calls(scripted_table, 0),
    },
    "lookup": {"weightstore": table_lookup, "torch.index_select": index_select},
    "one-of-eight": {"weightstore": one_of_eight},
    "async-dense": {"weightstore": async_dense, "memcpy": copy_dense},
    "async-table": {"weightstore": async_table, "blocking save": blocking_table},
}


def main(task: str, who: str, directory: Path, rows: int) -> Sample:
    directory.mkdir()
    try:
        return WORK[task][who](directory, rows)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))))

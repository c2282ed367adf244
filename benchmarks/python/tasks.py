"""What is measured, who takes part, and what has to come out."""

from __future__ import annotations

from benchmarks.python.goals import (
    Either,
    FasterThan,
    FasterThanBestPeer,
    MemoryBelow,
    MemoryPerHeaderByte,
    ShareOfLimit,
)
from benchmarks.python.model import many
from benchmarks.python.store_tasks import STORE_TASKS
from benchmarks.python.task import Operation, Task

_COPYING_PEERS = (
    "safetensors.torch pread",
    "safetensors.numpy",
    "torch.save/load",
    "fastsafetensors",
    "runai-streamer 16T",
    "runai-streamer 2T",
    "tensorizer",
    "tensorizer 2 readers",
    "tensorstore zarr3",
)

_SAVING_PEERS = (
    "safetensors.torch",
    "safetensors.numpy",
    "torch.save/load",
    "fastsafetensors",
    "tensorizer",
    "tensorstore zarr3",
)

_MEMCPY = ("machine: memcpy 1T", "machine: memcpy 2T")
_CAST_GOALS = {"weightstore": (Either(FasterThan("torch", 1), ShareOfLimit(0.6, "machine: memcpy 2T")),)}

TASKS = (
    Task(
        "list",
        "open and list the names of 100,000 tensors",
        Operation.LIST,
        ("weightstore", "weightstore .bpk", "safetensors.torch"),
        {
            "weightstore": (FasterThan("safetensors.torch", 5), MemoryPerHeaderByte(8)),
            "weightstore .bpk": (FasterThan("weightstore", 1 / 1.5), MemoryPerHeaderByte(8)),
        },
        model=many(100_000),
    ),
    Task(
        "one",
        "read one tensor of 50,000",
        Operation.READ_ONE,
        ("weightstore", "weightstore .bpk", "safetensors.torch"),
        {"weightstore": (FasterThan("safetensors.torch", 5),)},
        model=many(50_000),
    ),
    Task(
        "save",
        "save into the page cache, durable=False",
        Operation.SAVE,
        ("weightstore", "weightstore .bpk", *_SAVING_PEERS, "limit: fallocate + pwrite 4M 1T"),
        {
            "weightstore": (
                FasterThanBestPeer(1.15),
                FasterThan("safetensors.torch", 1.5),
                ShareOfLimit(0.90),
                MemoryBelow(64),
            ),
        },
    ),
    Task(
        "save-durable",
        "save, file and directory synced",
        Operation.SAVE_DURABLE,
        (
            "weightstore",
            "weightstore .bpk",
            *_SAVING_PEERS,
            "limit: fallocate + pwrite 4M 1T + fsync",
            "limit: O_DIRECT 4M 2T",
            "limit: O_DIRECT 16M 2T",
        ),
        {"weightstore": (FasterThanBestPeer(1.6), ShareOfLimit(0.85), MemoryBelow(64))},
    ),
    Task(
        "save-transposed",
        "save tensors none of which is contiguous",
        Operation.SAVE,
        ("weightstore, transposed tensors",),
        {"weightstore, transposed tensors": (MemoryBelow(64),)},
    ),
    Task(
        "load",
        "load a warm file into memory of its own, every page touched",
        Operation.LOAD,
        ("weightstore copying", "weightstore .bpk copying", *_COPYING_PEERS, "limit: pread 4M 2T into fresh 2M pages"),
        {"weightstore copying": (FasterThanBestPeer(2),)},
    ),
    Task(
        "load-into",
        "read a warm file into tensors that exist",
        Operation.LOAD_INTO,
        (
            "weightstore",
            "safetensors.torch",
            "safetensors.torch pread",
            "torch.load mmap",
            "torch.save/load",
            "fastsafetensors",
            "runai-streamer 16T",
            "limit: pread 4M 2T into ready memory",
            "machine: memcpy 1T",
            "machine: memcpy 2T",
        ),
        {"weightstore": (FasterThanBestPeer(1), ShareOfLimit(0.80, "limit: pread 4M 2T into ready memory"))},
    ),
    Task(
        "load-cold",
        "load a cold file, every page touched",
        Operation.LOAD_COLD,
        (
            "weightstore copying",
            "weightstore",
            "safetensors.torch",
            *_COPYING_PEERS,
            "torch.load mmap",
            "limit: O_DIRECT ring 4M 3T + memcpy",
            "limit: pread 4M 2T into fresh 2M pages",
        ),
        {
            "weightstore copying": (
                FasterThanBestPeer(1.3),
                ShareOfLimit(0.85, "limit: O_DIRECT ring 4M 3T + memcpy"),
            ),
        },
    ),
    Task(
        "zero-copy",
        "open a warm file without copying it, every page touched",
        Operation.LOAD,
        (
            "weightstore",
            "weightstore .bpk",
            "safetensors.torch",
            "torch.load mmap",
            "limit: bare mmap",
            "limit: mmap, populated",
        ),
        {"weightstore": (ShareOfLimit(1 / 1.1, "limit: bare mmap"),)},
    ),
    Task(
        "transpose",
        "transpose an F32 matrix of half the model's size into new memory",
        Operation.TRANSPOSE,
        ("weightstore", "numpy", "torch", *_MEMCPY),
        {"weightstore": (FasterThan("numpy", 3),)},
    ),
    Task(
        "cast-f16",
        "convert that matrix to F16",
        Operation.CAST_F16,
        ("weightstore", "numpy", "torch", *_MEMCPY),
        _CAST_GOALS,
    ),
    Task(
        "cast-bf16",
        "convert that matrix to BF16",
        Operation.CAST_BF16,
        ("weightstore", "torch", *_MEMCPY),
        _CAST_GOALS,
    ),
    *STORE_TASKS,
)

"""The machine's limits as contestants: the same memory and the same file, and no format."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.python import model
from benchmarks.python.contestants.base import Contestant, Kind, Loads, LoadsInto, Saves, Transforms, address
from benchmarks.python.limits import MIB, Extent, Limits, extents

if TYPE_CHECKING:
    import torch

Memory = ctypes.Array[Extent]


class Limit(Contestant):
    kind = Kind.LIMIT
    limits: Limits  # set by the process that measures

    def accept(self, tensors: dict[str, torch.Tensor]) -> Memory:
        self._tensors = tensors  # extents do not keep memory alive
        return extents(address(tensor) for tensor in tensors.values())


class Save(Limit, Saves):
    suffix = ".raw"

    def __init__(self, name: str, run: Callable[[Limits, Memory, Path], None]) -> None:
        self.name = f"limit: {name}"
        self.run = run

    def saved(self, path: Path, names: list[str]) -> dict[str, Any]:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        ends = np.cumsum([tensor.nbytes for tensor in self._tensors.values()])
        return dict(zip(self._tensors, np.split(data, ends), strict=False))

    def save(self, tensors: Memory, path: Path, *, durable: bool) -> None:
        self.run(self.limits, tensors, path)


class Load(Limit, Loads):
    def __init__(self, name: str, run: Callable[[Limits, Path], tuple[int, int]]) -> None:
        self.name = f"limit: {name}"
        self.run = run

    def load(self, path: Path, expected: list[str]) -> dict[str, np.ndarray]:
        at, size = self.run(self.limits, path)
        return {"": np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))}

    def loaded(self, result: dict[str, np.ndarray], path: Path) -> dict[str, Any]:
        position = model.header_bytes(path)
        found = {}
        for name, (_, _, data) in model.mapped(path).items():
            found[name] = result[""][position : position + data.nbytes]
            position += data.nbytes
        return found


class LoadInto(Limit, LoadsInto):
    def __init__(self, threads: int) -> None:
        self.name = f"limit: pread 4M {threads}T into ready memory"
        self.threads = threads

    def load_into(self, path: Path, tensors: Memory) -> None:
        self.limits.read_ready(path, model.header_bytes(path), tensors, self.threads)


class Memcpy(Limit, LoadsInto, Transforms):
    """Into ready memory: what any copy on this machine is bounded by."""

    kind = Kind.MACHINE

    def __init__(self, threads: int) -> None:
        self.name = f"machine: memcpy {threads}T"
        self.threads = threads

    def accept(self, tensors: dict[str, torch.Tensor]) -> Memory:
        size = sum(tensor.nbytes for tensor in tensors.values())
        self._source = np.full(size, 1, np.uint8)
        self._out = np.full(size, 2, np.uint8)
        super().accept(tensors)
        return extents([address(self._source)])

    def load_into(self, path: Path, tensors: Memory) -> None:
        self.limits.memcpy(tensors, self._out.ctypes.data, self.threads)

    def accept_matrix(self, matrix: np.ndarray) -> np.ndarray:
        self._out = np.full(2 * matrix.nbytes, 2, np.uint8)
        return matrix

    def transpose(self, matrix: np.ndarray) -> np.ndarray:
        return self._copy(matrix, matrix.nbytes)

    def cast(self, matrix: np.ndarray, dtype: str) -> np.ndarray:
        return self._copy(matrix, matrix.size * (4 + model.DTYPE_BYTES[dtype]) // 2)

    def _copy(self, matrix: np.ndarray, size: int) -> np.ndarray:
        """As many bytes as make the traffic of the operation, half of it in and half of it out."""
        at, most = address(matrix)
        pieces = [(at, min(most, size)), (at, size - min(most, size))]
        self.limits.memcpy(extents(pieces), self._out.ctypes.data, self.threads)
        return self._out[:size]


CONTESTANTS = [
    Save("fallocate + pwrite 4M 1T", lambda c, memory, path: c.write_buffered(path, memory, durable=False)),
    Save("fallocate + pwrite 4M 1T + fsync", lambda c, memory, path: c.write_buffered(path, memory, durable=True)),
    Save("O_DIRECT 4M 2T", lambda c, memory, path: c.write_direct(path, memory, block=4 * MIB, threads=2)),
    Save("O_DIRECT 16M 2T", lambda c, memory, path: c.write_direct(path, memory, block=16 * MIB, threads=2)),
    Load("pread 4M 2T into fresh 2M pages", lambda c, path: c.read_fresh(path, 2)),
    Load("O_DIRECT ring 4M 3T + memcpy", lambda c, path: c.read_ring(path, 3)),
    Load("bare mmap", lambda c, path: c.map(path, populate=False)),
    Load("mmap, populated", lambda c, path: c.map(path, populate=True)),
    LoadInto(2),
    Memcpy(1),
    Memcpy(2),
]

"""The machine's limits: limits.cc, compiled on first use and called through ctypes."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).with_name("limits.cc")
MIB = 1 << 20


class Extent(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_uint64)]


def compile_library(directory: Path) -> Path:
    library = directory / "liblimits.so"
    if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
        compiler = os.environ.get("CXX", "g++")
        flags = ["-std=c++20", "-O2", "-shared", "-fPIC", "-pthread"]
        subprocess.run([compiler, *flags, str(SOURCE), "-o", str(library)], check=True)
    return library


def extents(buffers: Iterable[tuple[int, int]]) -> ctypes.Array[Extent]:
    """From (address, bytes) pairs; the caller keeps the memory alive."""
    pairs = list(buffers)
    return (Extent * len(pairs))(*pairs)


class Limits:
    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.limit_touch.restype = ctypes.c_uint64

    def _check(self, error: int) -> None:
        if error:
            raise OSError(error, os.strerror(error))

    def touch(self, memory: ctypes.Array[Extent]) -> None:
        self._library.limit_touch(memory, ctypes.c_uint64(len(memory)))

    def memcpy(self, memory: ctypes.Array[Extent], out: int, threads: int) -> None:
        self._check(self._library.limit_memcpy(memory, ctypes.c_uint64(len(memory)), ctypes.c_void_p(out), threads))

    def write_buffered(self, path: Path, memory: ctypes.Array[Extent], *, durable: bool) -> None:
        count = ctypes.c_uint64(len(memory))
        self._check(self._library.limit_write_buffered(os.fsencode(path), memory, count, int(durable)))

    def write_direct(self, path: Path, memory: ctypes.Array[Extent], *, block: int, threads: int) -> None:
        count = ctypes.c_uint64(len(memory))
        self._check(self._library.limit_write_direct(os.fsencode(path), memory, count, ctypes.c_uint64(block), threads))

    def read_ready(self, path: Path, offset: int, memory: ctypes.Array[Extent], threads: int) -> None:
        count = ctypes.c_uint64(len(memory))
        self._check(self._library.limit_read_ready(os.fsencode(path), ctypes.c_uint64(offset), memory, count, threads))

    def read_fresh(self, path: Path, threads: int) -> tuple[int, int]:
        return self._whole_file(self._library.limit_read_fresh, path, threads)

    def read_ring(self, path: Path, threads: int) -> tuple[int, int]:
        return self._whole_file(self._library.limit_read_ring, path, threads)

    def map(self, path: Path, *, populate: bool) -> tuple[int, int]:
        return self._whole_file(self._library.limit_map, path, int(populate))

    def _whole_file(self, function: ctypes._CFuncPtr, path: Path, option: int) -> tuple[int, int]:
        size = path.stat().st_size
        address = ctypes.c_void_p()
        self._check(function(os.fsencode(path), ctypes.c_uint64(size), option, ctypes.byref(address)))
        assert address.value is not None
        return address.value, size

"""The page cache before a measurement: warm or cold, and checked to be so."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def files(path: Path) -> Iterator[Path]:
    """The file, or all files below the directory."""
    if path.is_dir():
        yield from (below for below in sorted(path.rglob("*")) if below.is_file())
    else:
        yield path


def resident_share(path: Path) -> float:
    """Share of the file's pages that are in the page cache, by mincore(2)."""
    size = path.stat().st_size
    if size == 0:
        return 0.0
    pages = -(-size // mmap.PAGESIZE)
    present = (ctypes.c_ubyte * pages)()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE) as mapping:
        anchor = ctypes.c_char.from_buffer(mapping)
        failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(size), present)
        del anchor
        if failed:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
    return sum(byte & 1 for byte in bytes(present)) / pages


def warm(path: Path) -> None:
    block = bytearray(4 << 20)
    for file in files(path):
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(block):
                pass
        if file.stat().st_size and resident_share(file) < 0.999:
            raise RuntimeError(f"{file} does not stay in the page cache: the machine is short of memory")


def chill(path: Path) -> None:
    for file in files(path):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if resident_share(file) > 0.01:
            raise RuntimeError(f"{file} stays in the page cache: some process maps it or holds it")


def sync_tree(path: Path) -> None:
    """fsync of a file, or of all files and directories below one, and of the directory that holds it."""
    directories = [path, *(below for below in path.rglob("*") if below.is_dir())] if path.is_dir() else []
    for each in [*files(path), *directories, path.parent]:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

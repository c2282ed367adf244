"""Where a file's contents come from, and the reader over them.

The package passes an `OpenSource` on wherever it reads tensors of a file. Users see `File` and `TensorHandle` instead.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Literal

from .. import _core, errors

Backend = Literal["mmap", "pread"]
Verify = Literal["off", "lazy", "full"]
Opaque = Literal["error", "skip"]
Kind = Literal["path", "object", "buffer"]


def kind_of(source: Any) -> Kind | None:
    """Tells a path, a binary file object and contents with a buffer apart. None for anything else."""
    if isinstance(source, (str, os.PathLike)):
        return "path"
    if hasattr(source, "readinto") and hasattr(source, "seek"):
        return "object"
    try:
        memoryview(source).release()
    except TypeError:
        return None
    return "buffer"


class OpenSource:
    """A reader that can be closed. After close(), everything that reads through this object raises an error; arrays and
    tensors that were made before stay valid.

    path: as given; None for contents in memory.
    mapped: views of the reader's memory may be handed out. Otherwise tensors are copied.
    """

    __slots__ = ("_reader", "mapped", "path")

    def __init__(self, reader: _core.Reader, path: str | None, mapped: bool) -> None:
        self._reader: _core.Reader | None = reader
        self.path = path
        self.mapped = mapped

    @property
    def reader(self) -> _core.Reader:
        if self._reader is None:
            raise errors.make("invalid_argument", "File is closed")
        return self._reader

    @property
    def format(self) -> str:
        """ "safetensors" (also for a set of shards), "burnpack" or "pytorch"."""
        return self.reader.format.split()[0]

    def close(self) -> None:
        self._reader = None

    @property
    def closed(self) -> bool:
        return self._reader is None

    def __enter__(self) -> OpenSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_source(
    source: Any,
    *,
    backend: Backend = "mmap",
    verify: Verify = "off",
    threads: int = 0,
    opaque: Opaque = "error",
) -> OpenSource:
    """Opens a path, a binary file object or contents. The arguments are those of weightstore.open()."""
    if backend not in ("mmap", "pread"):
        raise errors.make("invalid_argument", f"backend is {backend!r}; it is 'mmap' or 'pread'")
    kind, mapped = kind_of(source), backend == "mmap"
    if kind == "path":
        reader = _core.Reader.open(source, map=mapped, verify=verify, threads=threads, opaque=opaque)
        return OpenSource(reader, os.fsdecode(source), mapped)
    if kind == "object":
        reader = _core.Reader.open_object(source, verify=verify, threads=threads, opaque=opaque)
        name = getattr(source, "name", None)
        return OpenSource(reader, name if isinstance(name, str) else None, False)
    if kind == "buffer":
        reader = _core.Reader.open_buffer(source, verify=verify, threads=threads, opaque=opaque)
        return OpenSource(reader, None, mapped)
    raise TypeError(f"cannot open a {type(source).__name__}: give a path, bytes or a binary file object")

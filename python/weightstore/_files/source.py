"""Where a file's contents come from, and the reader over them.

The package passes an `OpenSource` on wherever it reads tensors of a file. Users see `File` and `TensorHandle` instead.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple

from .. import _core, errors
from .formats import format_of_files
from .sizes import Size, parse_limits

Backend = Literal["mmap", "pread"]
Verify = Literal["off", "lazy", "full"] | bool
"""When checksums are compared; see check_verify()."""
Opaque = Literal["error", "skip"]
Kind = Literal["path", "object", "buffer"]

_log = logging.getLogger(__name__)
_SHOWN = 5  # values that a warning names


class LeftOut(NamedTuple):
    """A value of a file that was not read.

    name: where it is, as the name of a tensor.
    type: the class or function that the file names.
    reason: what it is.
    """

    name: str
    type: str
    reason: str


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


def check_verify(verify: Verify) -> Literal["off", "lazy", "full"]:
    """The word for what a caller gave as `verify`: "off" compares no checksums, "lazy" compares that of a tensor when the
    tensor is first read, "full" also refuses tensors that have none. False is "off" and True is "full"."""
    if isinstance(verify, bool):
        return "full" if verify else "off"
    if verify not in ("off", "lazy", "full"):
        raise errors.make(
            "invalid_argument", f"verify is {verify!r}; it is 'off', 'lazy' or 'full' (False is 'off', True is 'full')"
        )
    return verify


def check_backend(backend: Backend) -> Backend:
    if backend not in ("mmap", "pread"):
        raise errors.make("invalid_argument", f"backend is {backend!r}; it is 'mmap' or 'pread'")
    return backend


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
        """The name of the format: "safetensors" (also for a set of shards), "burnpack", "pytorch", ..."""
        return format_of_files(self.reader.format)

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
    opaque: Opaque = "skip",
    limits: Mapping[str, Size] | None = None,
) -> OpenSource:
    """Opens a path, a binary file object or contents. The arguments are those of weightstore.open()."""
    kind, mapped = kind_of(source), check_backend(backend) == "mmap"
    options: dict[str, Any] = {
        "verify": check_verify(verify),
        "threads": threads,
        "opaque": opaque,
        "limits": parse_limits(limits),
    }
    if kind == "path":
        opened = OpenSource(_core.Reader.open(source, backend=backend, **options), os.fsdecode(source), mapped)
    elif kind == "object":
        name = getattr(source, "name", None)
        path = name if isinstance(name, str) else None
        opened = OpenSource(_core.Reader.open_object(source, **options), path, False)
    elif kind == "buffer":
        opened = OpenSource(_core.Reader.open_buffer(source, **options), None, mapped)
    else:
        raise TypeError(f"cannot open a {type(source).__name__}: give a path, bytes or a binary file object")
    _warn_of_left_out(opened)
    return opened


def _warn_of_left_out(source: OpenSource) -> None:
    values = [LeftOut(*value) for value in source.reader.left_out()]
    if not values:
        return
    # A name from a file must not reach a terminal as anything but text.
    shown = ", ".join(
        f"{value.name!r} ({value.type if value.type.isprintable() else repr(value.type)})" for value in values[:_SHOWN]
    )
    if len(values) > _SHOWN:
        shown += f" and {len(values) - _SHOWN} more"
    what = "1 value was" if len(values) == 1 else f"{len(values)} values were"
    _log.warning("%s: %s left out: %s; `left_out` of the open file lists all", source.path or "<memory>", what, shown)

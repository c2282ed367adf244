"""Where a file's contents come from, and the reader over them.

The package passes an `OpenSource` on wherever it reads tensors of a file. Users see `File` and `TensorHandle` instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple

from .. import _core, errors
from .formats import format_of_files
from .paths import check_local, hint_at_path
from .sizes import Size, parse_limits

Backend = Literal["mmap", "pread"]
Verify = Literal["off", "lazy", "full"] | bool
"""When checksums are compared; see check_verify()."""
Opaque = Literal["error", "skip"]
Kind = Literal["path", "object", "buffer"]

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


class Opening(NamedTuple):
    """How a file was opened by its path, to open the same file again."""

    path: str
    options: dict[str, Any]
    identity: tuple[int, int, int] | None


def _identity(path: str) -> tuple[int, int, int] | None:
    """Inode, size and time of the last change in nanoseconds, of a directory those of its index or file; None for what is not
    there."""
    try:
        if os.path.isdir(path):
            from .._chunks import sources

            path = sources.index_path(path) or _core.find_model(path)[1][0]
        status = os.stat(path)
    except (OSError, errors.StoreError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class OpenSource:
    """A reader that can be closed. After close(), everything that reads through this object raises an error; arrays and
    tensors that were made before stay valid.

    path: as given; None for contents in memory.
    mapped: views of the reader's memory may be handed out. Otherwise tensors are copied.
    """

    __slots__ = ("_opening", "_reader", "mapped", "path")

    def __init__(self, reader: _core.Reader, path: str | None, mapped: bool, opening: Opening | None = None) -> None:
        self._reader: _core.Reader | None = reader
        self._opening = opening
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

    def __reduce__(self) -> Any:
        _ = self.reader
        if self._opening is None:
            raise errors.make(
                "invalid_argument",
                "only a file that was opened by its path can be pickled; this one was opened from memory or a file object",
                path=self.path,
            )
        return _reopen, (self._opening._replace(path=os.path.abspath(self._opening.path)),)

    def __enter__(self) -> OpenSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _chunked_reader(path: str, verify: str, backend: Backend) -> _core.Reader | None:
    """The reader of a directory whose tensors lie in chunks; None for other directories."""
    from .._chunks import sources  # which nobody needs who opens a file

    return sources.open_reader(path, verify, backend) if sources.is_chunked(path) else None


def open_source(
    source: Any,
    *,
    backend: Backend = "mmap",
    verify: Verify = "off",
    threads: int = 0,
    opaque: Opaque = "skip",
    limits: Mapping[str, Size] | None = None,
) -> OpenSource:
    """Opens the path of a file or directory, a binary file object or contents. The arguments are those of weightstore.open()."""
    kind, mapped = kind_of(source), check_backend(backend) == "mmap"
    if kind == "path":
        check_local(os.fspath(source), "open")
    options: dict[str, Any] = {
        "verify": check_verify(verify),
        "threads": threads,
        "opaque": opaque,
        "limits": parse_limits(limits),
    }
    if kind == "path":
        path = os.fsdecode(source)
        given = {"backend": backend, "verify": verify, "threads": threads, "opaque": opaque, "limits": limits}
        opening = Opening(path, given, _identity(path))  # before the file is opened: another one later is noticed
        reader = _chunked_reader(path, options["verify"], backend) if os.path.isdir(path) else None
        if reader is None:
            reader = _core.Reader.open(source, backend=backend, **options)
        opened = OpenSource(reader, path, mapped, opening)
    elif kind == "object":
        name = getattr(source, "name", None)
        opened = OpenSource(_core.Reader.open_object(source, **options), name if isinstance(name, str) else None, False)
    elif kind == "buffer":
        opened = OpenSource(_open_buffer(source, options), None, mapped)
    else:
        raise TypeError(f"cannot open {errors.typed(source)}: give a path, bytes or a binary file object")
    _warn_of_left_out(opened)
    return opened


def _open_buffer(source: Any, options: Mapping[str, Any]) -> _core.Reader:
    try:
        return _core.Reader.open_buffer(source, **options)
    except errors.StoreError as error:
        hint = hint_at_path(source)
        if not hint:
            raise
        raise errors.make("invalid_argument", hint) from error


def _warn_of_left_out(source: OpenSource) -> None:
    values = [LeftOut(*value) for value in source.reader.left_out()]
    if not values:
        return
    import logging

    # A name from a file must not reach a terminal as anything but text.
    shown = ", ".join(
        f"{value.name!r} ({value.type if value.type.isprintable() else repr(value.type)})" for value in values[:_SHOWN]
    )
    if len(values) > _SHOWN:
        shown += f" and {len(values) - _SHOWN} more"
    what = "1 value was" if len(values) == 1 else f"{len(values)} values were"
    log = logging.getLogger(__name__)
    log.warning("%s: %s left out: %s; `left_out` of the open file lists all", source.path or "<memory>", what, shown)


def _reopen(opening: Opening) -> OpenSource:
    """Opens a file that was pickled. Raises ConflictError if there is another file by now."""
    found = _identity(opening.path)
    if found is not None and found != opening.identity:
        raise errors.make(
            "conflict",
            "the file was replaced or changed after it was opened and pickled; open it again",
            path=opening.path,
        )
    return open_source(opening.path, **opening.options)

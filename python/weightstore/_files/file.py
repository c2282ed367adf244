"""`weightstore.open` and what it returns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from .handle import TensorHandle
from .progress import Progress, reporting
from .scalars import Scalars, scalars_of
from .sizes import Size, format_size
from .source import Backend, LeftOut, Opaque, OpenSource, Verify, open_source

if TYPE_CHECKING:
    import numpy as np
    import torch

_HTML_ROWS = 200


def open(
    path: Any,
    *,
    backend: Backend = "mmap",
    verify: Verify = "off",
    threads: int = 0,
    opaque: Opaque = "skip",
    limits: Mapping[str, Size] | None = None,
) -> File:
    """Opens a file of any format that weightstore reads, the index of a set of SafeTensors or `.bin` shards, or a directory with a
    model: a set, a checkpoint of `Saver` or of RecIS, or one file of weights. Reads headers only. The content tells the format;
    a name that ends in `.safetensors` must hold SafeTensors.

    In the directory of a checkpoint the columns of a table are tensors: "user@id", "user@embedding". Neither torch nor numpy is
    needed until something is read.

    path: str or os.PathLike; or the contents, as a bytes-like object or a binary file object (seek and readinto).
    backend: "mmap" maps the file, so that views cost nothing. "pread" reads into memory of its own, and is safe when
        another process may shorten the file: then an error is raised where touching a mapping would end the process.
    verify: compare the checksums that the file carries with its bytes: "off" never, "lazy" when a tensor is first read,
        "full" now. "full" refuses a file in which a tensor has no checksum. False is "off", True is "full".
    threads: for bulk reads; 0 lets the library choose.
    opaque: what to do about values that are neither tensors nor plain data, such as pickled objects. "skip" leaves them
        out, lists them in `File.left_out` and in a warning of the log, and reads the tensors of a torch.nn.Module.
        "error" refuses the file, naming the first of them. Neither runs anything.
    limits: how much a file may ask for, by the names of the fields of `Limits` in weightstore/read_options.h, such as
        {"expanded_bytes": "4GiB"}. A file that asks for more raises LimitError.
    """
    return File(open_source(path, backend=backend, verify=verify, threads=threads, opaque=opaque, limits=limits))


class NamesView(KeysView[str], Sequence[str]):
    """The names of a file's tensors, sorted: a set and a sequence at once."""

    _mapping: File

    def __init__(self, file: File) -> None:
        super().__init__(file)

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping._names())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._mapping._names())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._mapping._names()[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple)):
            return self._mapping._names() == list(other)
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"NamesView({self._mapping._names()!r})"


class File(Mapping[str, TensorHandle]):
    """An open file: tensor names to handles. A context manager; views of tensors outlive it.

    Reading is thread-safe. After close() every access raises an error; arrays and tensors made before stay valid.
    """

    __slots__ = ("_name_list", "_source")

    def __init__(self, source: OpenSource) -> None:
        self._source = source
        self._name_list: list[str] | None = None

    def _names(self) -> list[str]:
        reader = self._source.reader
        if self._name_list is None:
            self._name_list = reader.names()
        return self._name_list

    # ---- the mapping ---------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> TensorHandle:
        return TensorHandle(self._source, self._source.reader.at(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._source.reader.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._source.reader)

    def keys(self) -> NamesView:
        """All names, sorted."""
        return NamesView(self)

    # A file equals only itself; comparing contents is not what == should do.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    # ---- what the header says ------------------------------------------------------------------------------------

    @property
    def path(self) -> str | None:
        """The path as given; None for contents in memory."""
        return self._source.path

    @property
    def format(self) -> str:
        """The name of the format: "safetensors" (also for a set of shards or a checkpoint), "burnpack", "pytorch", ..."""
        return self._source.format

    @property
    def metadata(self) -> dict[str, str]:
        """The user's metadata; empty when there is none."""
        return self._source.reader.metadata() or {}

    @property
    def scalars(self) -> Scalars:
        """Burnpack's named scalars; empty in other formats."""
        return scalars_of(self._source.reader)

    @property
    def left_out(self) -> list[LeftOut]:
        """What the file has besides tensors and plain data, and was not read: (name, type, reason) of each value."""
        return [LeftOut(*value) for value in self._source.reader.left_out()]

    # ---- bulk reads ----------------------------------------------------------------------------------------------

    @overload
    def load(
        self,
        names: Iterable[str] | None = None,
        framework: Literal["numpy"] = "numpy",
        progress: Progress | bool | None = None,
    ) -> dict[str, np.ndarray[Any, Any]]: ...
    @overload
    def load(
        self, names: Iterable[str] | None, framework: Literal["torch"], progress: Progress | bool | None = None
    ) -> dict[str, torch.Tensor]: ...
    @overload
    def load(
        self,
        names: Iterable[str] | None = None,
        *,
        framework: Literal["torch"],
        progress: Progress | bool | None = None,
    ) -> dict[str, torch.Tensor]: ...
    def load(
        self, names: Iterable[str] | None = None, framework: str = "numpy", progress: Progress | bool | None = None
    ) -> dict[str, Any]:
        """Copies tensors (all of them unless `names` says otherwise) into memory independent of the file, in parallel."""
        from . import loading

        reader = self._source.reader
        numbers = reader.numbers() if names is None else [reader.at(name) for name in names]
        with reporting(progress) as report:
            return loading.load(reader, numbers, framework, report)

    def load_into(self, targets: Mapping[str, Any], progress: Progress | bool | None = None) -> None:
        """Fills numpy arrays or torch tensors that exist already. Types and shapes must match the file's; everything is
        checked before anything is read."""
        from . import loading

        with reporting(progress) as report:
            loading.load_into(self._source.reader, targets, report)

    def verify(self, progress: Progress | bool | None = None) -> int:
        """Compares all checksums the file carries with its bytes and returns how many there were. Raises FormatError naming
        the first tensor that differs."""
        with reporting(progress) as report:
            return self._source.reader.verify_all(report)

    def without_checksum(self) -> list[str]:
        """The names of the tensors that verify() cannot check, because the file has no checksum for them."""
        reader = self._source.reader
        return sorted(name for name, *_ in reader.describe_many(reader.without_checksum()))

    # ---- for others ----------------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        """A File is pickled by its path: for the workers of a DataLoader, say. The copy is the same file, opened again with the
        same options, or a ConflictError if the file has changed."""
        return File, (self._source,)

    def _ipython_key_completions_(self) -> list[str]:
        return [] if self.closed else self._names()

    # ---- end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets the file go. Arrays and tensors that were made from it stay valid."""
        self._source.close()
        self._name_list = None

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._source.closed

    def __enter__(self) -> File:
        _ = self._source.reader
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = repr(self.path) if self.path is not None else "in memory"
        if self.closed:
            return f"<File {where}, closed>"
        return f"<File {where}, {self.format}, {len(self)} tensors>"

    def _repr_html_(self) -> str:
        if self.closed:
            return f"<p>{escape(repr(self))}</p>"
        names = self._names()
        rows = []
        for name in names[:_HTML_ROWS]:
            handle = self[name]
            cells = (
                name,
                handle.dtype,
                str(list(handle.shape)),
                format_size(handle.nbytes),
                os.path.basename(handle.shard),
            )
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
        more = len(names) - len(rows)
        note = f"<p>and {more} more</p>" if more else ""
        head = "".join(f"<th>{title}</th>" for title in ("name", "dtype", "shape", "size", "file"))
        return f"<p>{escape(repr(self))}</p><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"


def source_of(file: File) -> OpenSource:
    """What a File reads from, for the rest of the package."""
    return file._source

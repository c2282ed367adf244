"""Looks into checkpoints. Needs neither torch nor numpy until something is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _core, errors
from .._files.handle import TensorHandle
from .._files.progress import Progress, reporting
from .._files.source import OpenSource
from .._tensors import dtypes, frameworks
from . import arguments

_FRAMEWORKS = {"pt": "torch", "torch": "torch", "np": "numpy", "numpy": "numpy"}


class CheckpointReader:
    """Looks into a checkpoint of `Saver`, of RecIS, a Hugging Face set of shards, or a single file. `weightstore.open` opens
    the same directories; this class also tells tables and their blocks, and checks them.

    Names are the same in both layouts. The columns of a table are called "user@id" and "user@embedding". A column is one
    array: its blocks in the order of their buckets.

    path: the directory, the index, or a single file.
    framework: what `read_tensor`, `read_rows` and `tensor_dtype` return: "torch" (or "pt") for torch's tensors, "numpy" (or
        "np") for arrays. The other methods need neither torch nor numpy.
    """

    def __init__(self, path: str | os.PathLike[str], *, framework: str = "torch") -> None:
        if framework not in _FRAMEWORKS:
            message = f"framework is {framework!r}; it is one of {', '.join(_FRAMEWORKS)}"
            raise errors.make("invalid_argument", message, format="checkpoint")
        self._framework = _FRAMEWORKS[framework]
        with _about_checkpoint():
            self._path = arguments.path_text(path)
            self._core = _core.CheckpointReader.open(self._path)
        # Not mapped: what is read has memory of its own.
        self._source = OpenSource(self._core.reader, self._path, mapped=False)

    def __repr__(self) -> str:
        return f"<CheckpointReader {self._path!r}, {len(self._source.reader)} tensors, {len(self.tables())} tables>"

    def tensor_names(self) -> list[str]:
        """The names of all tensors and columns, sorted."""
        return self._source.reader.names()

    list_tensor_names = tensor_names

    def tables(self) -> dict[str, list[str]]:
        """The columns of every table: "id" and its slots, such as {"user": ["embedding", "id"]}."""
        return self._core.tables()

    def read_tensor(self, name: str) -> Any:
        """A whole tensor or column, in memory of its own."""
        with _about_checkpoint():
            return self._show(self._handle(name))

    def read_rows(self, name: str, begin: int, end: int) -> Any:
        """Rows [begin, end) of the first dimension, in memory of their own."""
        with _about_checkpoint():
            handle = self._handle(name)
            if not handle.shape or not 0 <= begin <= end <= handle.shape[0]:
                raise errors.make("invalid_argument", f"has no rows {begin} to {end}", tensor=name)
            return self._show(handle[begin:end])

    def tensor_shape(self, name: str) -> list[int]:
        """The shape in the framework of this reader."""
        with _about_checkpoint():
            handle = self._handle(name)
            return list(frameworks.shown_shape(handle.dtype, handle.shape, name))

    def tensor_dtype(self, name: str) -> Any:
        """The type in the framework of this reader."""
        dtype = self.stored_dtype(name)
        if self._framework == "torch":
            from .._tensors import torch_tensors

            return torch_tensors.shown_dtype(dtype)
        from .._tensors import arrays

        return arrays.shown_dtype(dtype)

    def stored_dtype(self, name: str) -> dtypes.DType:
        """The type as files call it, such as "BF16". It also equals the same type of torch and numpy."""
        with _about_checkpoint():
            return self._handle(name).dtype

    def stored_shape(self, name: str) -> list[int]:
        """The shape in elements, as files count. It differs from `tensor_shape` for types that pack two elements in a byte."""
        with _about_checkpoint():
            return list(self._handle(name).shape)

    def tensor_nbytes(self, name: str) -> int:
        """The number of bytes in the files."""
        with _about_checkpoint():
            return self._handle(name).nbytes

    def tensor_slices(self, name: str) -> list[tuple[int, int, int, int]]:
        """(begin, end, size, rows) of every block of a table's column: it has the rows of the buckets [begin, end) of `size`
        buckets in all. Empty for a dense tensor."""
        with _about_checkpoint():
            return self._core.blocks(name)

    def verify(self, *, progress: Progress | bool | None = None) -> int:
        """Compares all checksums and returns how many there were. Checks that files, index and tables fit together, and that
        ids lie in the buckets of their blocks.

        Raises a FormatError that names what is wrong, or a tensor that has no checksum. The recis layout has no place for
        checksums: there no tensor has one, and the result is 0."""
        with _about_checkpoint(), reporting(progress) as report:
            return self._core.verify(report)

    def _handle(self, name: str) -> TensorHandle:
        return TensorHandle(self._source, self._source.reader.at(name))

    def _show(self, handle: TensorHandle) -> Any:
        return handle.torch() if self._framework == "torch" else handle.numpy()


@contextmanager
def _about_checkpoint() -> Iterator[None]:
    """Makes every error of the package a CheckpointError."""
    try:
        yield
    except errors.StoreError as error:
        raise errors.placed(error, "checkpoint", again=True) from None

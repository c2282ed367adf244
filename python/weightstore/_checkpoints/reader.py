"""Looks into checkpoints. Needs neither torch nor numpy until something is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _core, errors
from .._files.progress import Progress, reporting
from .._tensors import dtypes, frameworks
from . import arguments

_FRAMEWORKS = {"pt": "torch", "torch": "torch", "np": "numpy", "numpy": "numpy"}


class CheckpointReader:
    """Looks into a checkpoint of `Saver`, of RecIS, a Hugging Face set of shards, or a single file.

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

    def __repr__(self) -> str:
        return f"<CheckpointReader {self._path!r}, {len(self.tensor_names())} tensors, {len(self.tables())} tables>"

    def tensor_names(self) -> list[str]:
        """The names of all tensors and columns, sorted."""
        return self._core.names()

    list_tensor_names = tensor_names

    def tables(self) -> dict[str, list[str]]:
        """The columns of every table: "id" and its slots, such as {"user": ["embedding", "id"]}."""
        return self._core.tables()

    def read_tensor(self, name: str) -> Any:
        """A whole tensor or column, in memory of its own."""
        dtype, shape = self._showable(name)
        with _about_checkpoint():
            return self._show(self._core.read(name), dtype, shape)

    def read_rows(self, name: str, begin: int, end: int) -> Any:
        """Rows [begin, end) of the first dimension, in memory of their own."""
        dtype, shape = self._showable(name)
        if not shape or not 0 <= begin <= end <= shape[0]:
            message = f"has no rows {begin} to {end}"
            raise errors.make("invalid_argument", message, tensor=name, format="checkpoint")
        with _about_checkpoint():
            return self._show(self._core.read_rows(name, begin, end), dtype, (end - begin, *shape[1:]))

    def tensor_shape(self, name: str) -> list[int]:
        """The shape in the framework of this reader."""
        dtype, shape = self._describe(name)
        with _about_checkpoint():
            return list(frameworks.shown_shape(dtype, shape, name))

    def tensor_dtype(self, name: str) -> Any:
        """The type in the framework of this reader."""
        return self._library().shown_dtype(self._describe(name)[0])

    def stored_dtype(self, name: str) -> dtypes.DType:
        """The type as files call it, such as "BF16". It also equals the same type of torch and numpy."""
        return dtypes.DType(self._describe(name)[0])

    def stored_shape(self, name: str) -> list[int]:
        """The shape in elements, as files count. It differs from `tensor_shape` for types that pack two elements in a byte."""
        return list(self._describe(name)[1])

    def tensor_nbytes(self, name: str) -> int:
        """The number of bytes in the files."""
        with _about_checkpoint():
            return self._core.describe(name)[2]

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

    def _describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        with _about_checkpoint():
            dtype, shape, _ = self._core.describe(name)
        return dtype, shape

    def _showable(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Type and shape of a tensor. Raises before anything is read if the framework cannot show it."""
        dtype, shape = self._describe(name)
        with _about_checkpoint():
            self._library().check_showable(name, dtype, shape)
        return dtype, shape

    def _show(self, memory: _core.Memory, dtype: str, shape: tuple[int, ...]) -> Any:
        return self._library().from_memory(memory, dtype, shape)

    def _library(self) -> Any:
        """The module that shows memory as tensors or arrays. Imports torch or numpy."""
        if self._framework == "torch":
            from .._tensors import torch_tensors

            return torch_tensors
        from .._tensors import arrays

        return arrays


@contextmanager
def _about_checkpoint() -> Iterator[None]:
    """Makes every error of the package a CheckpointError."""
    try:
        yield
    except errors.StoreError as error:
        raise errors.placed(error, "checkpoint", again=True) from None

"""Loads sharded checkpoints, and looks into them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._files.progress import Progress, check_progress
from . import arguments, torch_library
from .job import Job
from .torch_errors import translated

if TYPE_CHECKING:
    import torch


class Loader:
    """Loads a checkpoint of `Saver`, of RecIS, or a Hugging Face set of shards, into tables and tensors that are there.

    checkpoint_path: the directory, the index, or a single file.
    hashtables: name to `torch.classes.store.HashTable`; the key must be the table's `name()`. Rows are added, or overwrite
        those of the same id; ids outside of a table's slice are passed over, so that any number of shards may load.
    tensors: name to tensor, or (name, tensor) pairs; filled in place. No tensor may have the name of a table. Tensors may
        share memory, as tied weights do, if the checkpoint has the same values for what they share.
    filter_func: gets the load info, {destination: {source: [columns]}}, and returns what is to be loaded.
    strict: what is missing in the checkpoint, or there and not among the targets, is an error.
    verify: compare the checksums of what is read; what has none is an error.
    progress: called as progress(done, total, name) in bytes; returning False or raising cancels, and so does Ctrl-C. What
        was loaded by then stays. True: a tqdm bar.
    """

    def __init__(
        self,
        checkpoint_path: str | os.PathLike[str],
        hashtables: Mapping[str, Any] | None = None,
        tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None = None,
        parallel: int = 16,
        filter_func: Callable[[dict[str, Any]], dict[str, Any]] = lambda x: x,
        *,
        strict: bool = True,
        verify: bool = False,
        progress: Progress | bool | None = None,
    ) -> None:
        import torch

        torch_library.load()
        self._filter_func = filter_func
        self._progress = progress
        check_progress(progress)
        with translated():
            self._impl = torch.classes.store.Loader(
                arguments.path_text(checkpoint_path),
                parallel,
                arguments.tables_by_name(hashtables),
                arguments.tensors_by_name(tensors),
            )
            self._impl.configure(json.dumps({"strict": strict, "verify": verify}))

    def default_load_info(self) -> dict[str, Any]:
        """What `load` gives to filter_func."""
        with translated():
            info: dict[str, Any] = json.loads(self._impl.default_load_info())
        return info

    def load(self) -> None:
        info = self._filter_func(self.default_load_info())
        Job(self._impl, lambda: self._impl.load(json.dumps(info)), self._progress).wait()


class CheckpointReader:
    """Looks into a checkpoint. A table's columns are called "user@id", "user@embedding", whatever the layout, and shown as
    one array in the order of their slices."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import torch

        torch_library.load()
        with translated():
            self._impl = torch.classes.store.CheckpointReader(arguments.path_text(path))

    def tensor_names(self) -> list[str]:
        names: list[str] = self._impl.list_tensor_names()
        return names

    list_tensor_names = tensor_names

    def read_tensor(self, name: str) -> torch.Tensor:
        with translated():
            tensor: torch.Tensor = self._impl.read_tensor(name)
        return tensor

    def read_rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Rows [begin, end) of the first dimension."""
        with translated():
            tensor: torch.Tensor = self._impl.read_rows(name, begin, end)
        return tensor

    def tensor_shape(self, name: str) -> list[int]:
        with translated():
            shape: list[int] = self._impl.tensor_shape(name)
        return shape

    def tensor_dtype(self, name: str) -> torch.dtype:
        # TorchScript gives a dtype's number; reading nothing of the tensor gives the dtype itself.
        if self.tensor_shape(name):
            return self.read_rows(name, 0, 0).dtype
        return self.read_tensor(name).dtype

    def tensor_slices(self, name: str) -> list[tuple[int, int, int, int]]:
        """(begin, end, size, rows) of every slice of a table's column; nothing for a dense tensor."""
        with translated():
            return [(begin, end, size, rows) for begin, end, size, rows in self._impl.tensor_slices(name)]

    def verify(self) -> int:
        """Compares all checksums and returns how many there were; checks that files, index and tables fit each other, and that
        ids lie in their slices. Raises a FormatError that names what is wrong, or a tensor that has no checksum; in the
        recis layout, which has no place for checksums, none has one and the result is 0."""
        with translated():
            return int(self._impl.verify())

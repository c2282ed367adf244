"""Loads sharded checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._files.progress import Progress, check_progress
from .._files.source import Verify
from .._torch_library.loading import load as load_library
from . import arguments, parts
from .background_call import BackgroundCall
from .torch_errors import translated

if TYPE_CHECKING:
    import torch


class Loader:
    """Loads a checkpoint of `Saver`, of RecIS, or a Hugging Face set of shards, into existing tables and tensors.

    checkpoint_path: the directory, the index, or a single file.
    hashtables: name to `HashTable`, or to `torch.classes.store.HashTable`; the key must be the table's `name()`. The load adds
        rows, or overwrites those of the same id. It skips ids outside the buckets of a table, so that any number of shards
        may load.
    tensors: name to tensor, or (name, tensor) pairs; filled in place. Of a DTensor each rank reads its part, whatever parts the
        checkpoint was saved in. No tensor may have the name of a table. Tensors may
        share memory, as tied weights do, if the checkpoint has the same values for what they share.
    filter_func: gets the load info, {target: {name in the checkpoint: [columns]}}, and returns what to load.
    strict: it is an error if the checkpoint lacks a target, or has a tensor that is no target.
    verify: compare the checksums of everything that is read: "off"; "lazy", which accepts tensors without a checksum; or "full",
        which refuses them before it changes anything. False is "off", True is "full".
    progress: called as progress(done, total, name) in bytes; returning False or raising cancels, and so does Ctrl-C. Rows and
        tensors that were loaded by then stay. True: a tqdm bar.
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
        verify: Verify = "off",
        progress: Progress | bool | None = None,
    ) -> None:
        import torch

        load_library()
        self._path = arguments.path_text(checkpoint_path)
        self._hashtables = arguments.tables_by_name(hashtables)
        self._tensors = arguments.tensors_by_name(tensors)
        arguments.check_callable("filter_func", filter_func)
        self._filter_func = filter_func
        self._progress = progress
        check_progress(progress)
        memory, places = parts.to_load(self._tensors)
        with translated():
            self._impl = torch.classes.store.Loader(
                self._path, arguments.whole_number("parallel", parallel), self._hashtables, memory
            )
            if places:
                wholes, begins = ({name: list(place[i]) for name, place in places.items()} for i in (0, 1))
                self._impl.set_parts(wholes, begins)
            self._impl.configure(json.dumps({"strict": strict, "verify": arguments.verify_word(verify)}))

    def __repr__(self) -> str:
        return f"<Loader {self._path!r}, {len(self._hashtables)} tables, {len(self._tensors)} tensors>"

    def default_load_info(self) -> dict[str, Any]:
        """The load info that `load` gives to filter_func."""
        with translated():
            info: dict[str, Any] = json.loads(self._impl.default_load_info())
        return info

    def load(self) -> None:
        """Loads. Checks names, types and shapes first; an error about them leaves everything as it was."""
        info = self._filter_func(self.default_load_info())
        try:
            BackgroundCall(self._impl, lambda: self._impl.load(json.dumps(info)), self._progress).wait()
        finally:
            parts.changed(self._tensors.values())

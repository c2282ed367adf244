"""What the coordinator writes when all ranks have written: the index, and the headers of shared files. Imports torch."""

from __future__ import annotations

import os
from collections.abc import Sequence

from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.storage import WriteResult

from .. import errors
from .._chunks import index as index_file
from .._chunks.layout import INDEX_NAME, WholeLayout
from .directory import Staging
from .items import stored_dtype
from .rank_writer import write_header


def make_index(
    save: str, metadata: Metadata, written: Sequence[WriteResult], whole: WholeLayout | None, path: str | None
) -> index_file.Index:
    """The index of a checkpoint. `whole` is the plan of its files in the layout of this name."""
    index = index_file.Index("per-rank" if whole is None else "whole", save, paths=_paths(metadata, path))
    places = {(result.index.fqn, _offset(result)): result.storage_data for result in written}
    if whole is not None:
        index.files = {file.name: file.size for file in whole.files if file.tensors}
    for result in written:
        index.files.setdefault(result.storage_data.file, result.storage_data.file_size)
    for name, stored in metadata.state_dict_metadata.items():
        if not isinstance(stored, TensorStorageMetadata):
            place = places[name, None]
            index.objects[name] = (place.file, place.key)
            continue
        shape = tuple(stored.size)
        tensor = index_file.StoredTensor(stored_dtype(stored.properties.dtype, name), shape)
        index.tensors[name] = tensor
        if whole is not None and name in whole.places:
            file = whole.files[whole.places[name][0]].name
            tensor.chunks.append(index_file.Chunk((0,) * len(shape), shape, file, name))
            continue
        for chunk in stored.chunks:
            place = places[name, tuple(chunk.offsets)]
            tensor.chunks.append(index_file.Chunk(tuple(chunk.offsets), tuple(chunk.sizes), place.file, place.key))
    return index


def finish_whole(staging: Staging, whole: WholeLayout, written: Sequence[WriteResult]) -> None:
    """Writes the headers with the checksums that the remainders make, and Hugging Face's index, and syncs all shared files."""
    remainders: dict[str, int] = {}
    for result in written:
        remainder = result.storage_data.remainder
        if remainder is not None:
            name = result.index.fqn
            remainders[name] = remainders.get(name, 0) ^ remainder
    names = []
    for file in whole.files:
        if file.tensors:
            write_header(staging.path_of(file.name), file, remainders)
            names.append(file.name)
        else:
            os.unlink(staging.path_of(file.name))
    staging.sync(names)
    text = whole.index()
    if text is not None:
        staging.write(INDEX_NAME, text.encode())


def _offset(result: WriteResult) -> tuple[int, ...] | None:
    return None if result.index.offset is None else tuple(result.index.offset)


def _paths(metadata: Metadata, path: str | None) -> dict[str, tuple[str | int, ...]] | None:
    """torch's planner keeps where each name is in the nested state dict. Raises InvalidArgument for another planner's data that
    an index cannot hold."""
    data = metadata.planner_data
    if data is None:
        return None
    fits = isinstance(data, dict) and all(
        isinstance(name, str) and isinstance(keys, (tuple, list)) and all(type(key) in (str, int) for key in keys)
        for name, keys in data.items()
    )
    if not fits:
        text = f"the planner's data ({errors.typed(data)}) is not a dict of paths, and an index holds nothing else"
        raise errors.make("invalid_argument", text, path=path)
    return {name: tuple(keys) for name, keys in data.items()}

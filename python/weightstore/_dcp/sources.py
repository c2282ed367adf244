"""Checkpoints that can be read: ours, those of torch's FileSystemWriter and HuggingFaceStorageWriter, and Hugging Face's models.
Knows nothing of torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .. import _core, errors
from .._tensors import frameworks
from . import index as index_file
from .index import StoredTensor
from .layout import INDEX_NAME, OFFSETS_KEY, SHARDING_KEY


@dataclass(frozen=True, slots=True)
class Record:
    """Where the bytes of a chunk or an object are: a tensor of a file, or a file inside a file."""

    path: str
    size: tuple[int, ...]  # of the chunk; empty for an object
    key: str | None = None
    offset: int = 0
    length: int = 0


@dataclass(slots=True)
class Checkpoint:
    """What a directory holds. `records` has the place of each chunk, by name and where it begins, and of each object, by name
    and None."""

    path: str
    kind: str
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)
    records: dict[tuple[str, tuple[int, ...] | None], Record] = field(default_factory=dict)
    paths: dict[str, tuple[str | int, ...]] | None = None


def read(path: str, rank: int | None = None) -> Checkpoint:
    """What a directory holds. Raises FormatError or StoreIOError that names the file. rank: read what torch's FileSystemWriter
    wrote for this rank alone, with use_collectives=False."""
    if rank is not None:
        return _of_filesystem(path, f"__{rank}.metadata")
    if os.path.exists(os.path.join(path, index_file.NAME)):
        return _of_index(path)
    if os.path.exists(os.path.join(path, ".metadata")):
        return _of_filesystem(path, ".metadata")
    names = _safetensors_files(path)
    if names:
        return _of_files(path, names)
    text = f"no checkpoint is here: neither {index_file.NAME}, .metadata nor *.safetensors"
    raise errors.make("io", text, path=path)


def _of_index(path: str) -> Checkpoint:
    index = index_file.read(os.path.join(path, index_file.NAME))
    result = Checkpoint(path, index.layout, index.tensors, list(index.objects), paths=index.paths)
    for name, tensor in index.tensors.items():
        for chunk in tensor.chunks:
            result.records[name, chunk.begin] = Record(os.path.join(path, chunk.file), chunk.size, chunk.key)
    for name, (file, key) in index.objects.items():
        result.records[name, None] = Record(os.path.join(path, file), (), key)
    return result


def _of_filesystem(path: str, name: str) -> Checkpoint:
    metadata_path = os.path.join(path, name)
    metadata = _core.read_dcp_metadata(metadata_path)
    paths = {name: tuple(keys) for name, keys in metadata["paths"].items()}
    result = Checkpoint(path, "filesystem", objects=metadata["objects"], paths=paths or None)
    places = {
        (name, None if begin is None else tuple(begin)): (file, offset, length)
        for name, begin, file, offset, length in metadata["places"]
    }
    for name, (dtype, shape, chunks) in metadata["tensors"].items():
        tensor = result.tensors[name] = StoredTensor(dtype, tuple(shape))
        for begin, size in chunks:
            chunk = index_file.Chunk(tuple(begin), tuple(size), "", "")
            if not index_file.fits(tensor.shape, chunk.begin, chunk.size):
                raise _corrupt(metadata_path, f"a chunk of {size} from {begin} on leaves the shape {shape}", name)
            if (name, chunk.begin) not in places:
                raise _corrupt(metadata_path, f"there is no record of the chunk at {begin}", name)
            tensor.chunks.append(chunk)
            file, offset, length = places[name, chunk.begin]
            result.records[name, chunk.begin] = Record(os.path.join(path, file), chunk.size, None, offset, length)
    for name in result.objects:
        if (name, None) not in places:
            raise _corrupt(metadata_path, "there is no record of this object", name)
        file, offset, length = places[name, None]
        result.records[name, None] = Record(os.path.join(path, file), (), None, offset, length)
    return result


def _of_files(path: str, names: Iterable[str]) -> Checkpoint:
    """SafeTensors files, with or without torch's entry that says which box each tensor is."""
    result = Checkpoint(path, "safetensors")
    for name in names:
        file = os.path.join(path, name)
        reader = _core.Reader.open(file)
        offsets = _sharding_of(reader, file)
        for number in range(len(reader)):
            tensor, dtype, stored_shape, _ = reader.describe(number)
            size = frameworks.shown_shape(dtype, stored_shape, tensor)
            begin = offsets.get(tensor, (0,) * len(size))
            _add_chunk(result, tensor, dtype, index_file.Chunk(begin, size, name, tensor))
    return result


def _add_chunk(result: Checkpoint, name: str, dtype: str, chunk: index_file.Chunk) -> None:
    file = os.path.join(result.path, chunk.file)
    known = result.tensors.setdefault(name, StoredTensor(dtype, (0,) * len(chunk.size)))
    if known.dtype != dtype or len(known.shape) != len(chunk.size) or len(chunk.begin) != len(chunk.size):
        raise _corrupt(file, f"{dtype} of {list(chunk.size)}, and another file has {known.dtype} of this name", name)
    if (name, chunk.begin) in result.records:
        raise _corrupt(file, f"two files have its chunk at {list(chunk.begin)}", name)
    known.chunks.append(chunk)
    ends = (first + count for first, count in zip(chunk.begin, chunk.size, strict=True))
    known.shape = tuple(max(size, end) for size, end in zip(known.shape, ends, strict=True))
    result.records[name, chunk.begin] = Record(file, chunk.size, name)


def _safetensors_files(path: str) -> list[str]:
    """The files that Hugging Face's index names, else all files of the directory that have the ending."""
    try:
        with open(os.path.join(path, INDEX_NAME), "rb") as file:
            document = json.loads(file.read(1 << 28))
    except FileNotFoundError:
        return sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
    except ValueError as error:
        raise _corrupt(os.path.join(path, INDEX_NAME), f"the index is no JSON: {error}") from None
    weights = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weights, dict):
        raise _corrupt(os.path.join(path, INDEX_NAME), "the index has no weight_map")
    for name in weights.values():
        if not isinstance(name, str) or os.path.basename(name) != name:
            raise _corrupt(os.path.join(path, INDEX_NAME), f"{name!r:.60} is not the name of a file beside the index")
    return sorted(set(weights.values()))


def _sharding_of(reader: _core.Reader, path: str) -> dict[str, tuple[int, ...]]:
    text = (reader.metadata() or {}).get(SHARDING_KEY)
    if text is None:
        return {}
    try:
        entries: Any = json.loads(text)
        offsets = {name: tuple(entry[OFFSETS_KEY]) for name, entry in entries.items()}
        if not all(type(first) is int and first >= 0 for begin in offsets.values() for first in begin):
            raise ValueError("an offset is not a number from 0 on")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _corrupt(path, f"the metadata entry {SHARDING_KEY} is damaged: {error}") from None
    return offsets


def _corrupt(path: str, message: str, tensor: str | None = None) -> errors.StoreError:
    return errors.make("corrupt", message, path=path, tensor=tensor)

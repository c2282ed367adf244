"""Checkpoints that can be read: ours, those of torch's FileSystemWriter and HuggingFaceStorageWriter, and Hugging Face's models.
Knows nothing of torch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .. import _core, errors
from .._tensors import dtypes, frameworks
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


def is_chunked(path: str) -> bool:
    """Whether a directory has a checkpoint of ours or of torch's writers, and not just files."""
    return index_path(path) is not None or bool(_sharded_files(path))


def index_path(path: str) -> str | None:
    """The file that says what is in a checkpoint; None for torch's HuggingFaceStorageWriter, which writes none."""
    for name in (index_file.NAME, ".metadata"):
        if os.path.exists(os.path.join(path, name)):
            return os.path.join(path, name)
    return None


def _sharded_files(path: str) -> list[str]:
    if os.path.exists(os.path.join(path, INDEX_NAME)):
        return []
    return [name for name in os.listdir(path) if name.startswith("shard-") and name.endswith(".safetensors")]


def open_reader(path: str, verify: str, backend: str) -> _core.Reader:
    """A reader of all tensors of a checkpoint, each whole under its own name."""
    checkpoint = read(path)
    readers = Readers(verify, backend)
    readers.open_records(checkpoint.records[key] for key in checkpoint.records if key[1] is not None)
    tensors = []
    for name, tensor in checkpoint.tensors.items():
        parts = []
        for chunk in tensor.chunks:
            record = checkpoint.records[name, chunk.begin]
            parts.append((*readers.find(record), chunk.begin, chunk.size))
            check_chunk(name, tensor, record, *parts[-1][:2])
        items = _core.DTYPES[tensor.dtype] * dtypes.byte_packing(tensor.dtype) // 8
        stored_shape = frameworks.stored_shape(tensor.dtype, tensor.shape)
        tensors.append((name, tensor.dtype, stored_shape, items, tensor.shape, parts))
    others = [(name, "object", "it is no tensor; torch.distributed.checkpoint loads it") for name in checkpoint.objects]
    return _core.boxed_reader(path, tensors, others, verify)


class Readers:
    """The open files of a checkpoint."""

    def __init__(self, verify: str, backend: str = "pread") -> None:
        self._verify = verify
        self._backend = backend
        self._files: dict[str, _core.Reader] = {}
        self._records: dict[Record, _core.Reader] = {}

    def open_records(self, records: Iterable[Record]) -> None:
        """Opens the files inside files among the records. This comes before find()."""
        by_path: dict[str, list[Record]] = {}
        for record in dict.fromkeys(records):
            if record.key is None:
                by_path.setdefault(record.path, []).append(record)
        for path, inside in by_path.items():
            readers = _core.open_records(path, [(record.offset, record.length) for record in inside])
            self._records.update(zip(inside, readers, strict=True))

    def find(self, record: Record) -> tuple[_core.Reader, int]:
        """The reader of a record, and the number of its tensor."""
        if record.key is None:
            return self._records[record], 0
        reader = self._files.get(record.path)
        if reader is None:
            reader = self._files[record.path] = _core.Reader.open(
                record.path, backend=self._backend, verify=self._verify
            )
        return reader, reader.at(record.key)


def check_chunk(name: str, tensor: StoredTensor, record: Record, reader: _core.Reader, number: int) -> None:
    """Raises FormatError unless a file says the same about a chunk as the index."""
    if len(reader) <= number:
        raise _corrupt(record.path, "the record holds no tensor", name)
    _, dtype, shape, nbytes = reader.describe(number)
    if record.key is not None and record.key != name:  # bytes of a type that SafeTensors does not have
        right = dtype == "U8" and nbytes * 8 == _core.DTYPES[tensor.dtype] * math.prod(record.size)
    else:
        right = dtype == tensor.dtype and tuple(shape) == frameworks.stored_shape(dtype, record.size)
    if not right:
        found = f"the file has {dtype} of {list(shape)}"
        raise _corrupt(record.path, f"the index says {tensor.dtype} of {list(record.size)}, {found}", name)


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

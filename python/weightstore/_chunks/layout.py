"""Which bytes of which file a tensor has. Knows nothing of torch, and does nothing that grows with the number of ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .. import _core, errors

INDEX_NAME = "model.safetensors.index.json"
SHARDING_KEY = "DCP_SHARDING_INFO"
OFFSETS_KEY = "saved_offsets"
# What torch's HuggingFaceStorageWriter writes, too.
_FORMAT = {"format": "pt"}
_DCP_FORMAT = {**_FORMAT, "DCP_VERSION": "1.0"}


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of a SafeTensors file, by type and shape as files have them."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        bits = _core.DTYPES[self.dtype]
        for size in self.shape:
            bits *= size
        return bits // 8


@dataclass(slots=True)
class PlannedFile:
    """A SafeTensors file: the header has room for the checksums, which are known when the data is written."""

    name: str
    tensors: Sequence[FileTensor]
    metadata: Mapping[str, str]
    checksums: bool
    begins: list[int] = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _, self.begins, self.size = self._plan([0] * len(self.tensors))

    def header(self, remainders: Mapping[str, int]) -> bytes:
        """remainders: of the bytes of every tensor, by name; not used without checksums."""
        crcs = [_core.crc32c_of_remainder(remainders.get(each.name, 0), each.nbytes) for each in self.tensors]
        header, _, _ = self._plan(crcs)
        return header

    def _plan(self, crcs: list[int]) -> tuple[bytes, list[int], int]:
        tensors = [(each.name, each.dtype, each.shape) for each in self.tensors]
        return _core.plan_safetensors(tensors, list(self.metadata.items()), crcs if self.checksums else None)


class WholeLayout:
    """Whole tensors under their own names, in files cut by size: what Hugging Face's tools read."""

    def __init__(self, tensors: Iterable[FileTensor], max_bytes: int, checksums: bool) -> None:
        groups = cut(tensors, max_bytes)
        self.files = [
            PlannedFile(shard_name(number, len(groups)), group, _FORMAT, checksums)
            for number, group in enumerate(groups)
        ]
        #: name of a tensor to the number of its file, and where it begins there
        self.places = {
            tensor.name: (number, begin)
            for number, file in enumerate(self.files)
            for tensor, begin in zip(file.tensors, file.begins, strict=True)
        }

    def index(self) -> str | None:
        """The text of Hugging Face's index; None for a single file, which has none."""
        if len(self.files) <= 1:
            return None
        total = sum(tensor.nbytes for file in self.files for tensor in file.tensors)
        weights = {tensor.name: file.name for file in self.files for tensor in file.tensors}
        return json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2, sort_keys=True) + "\n"


def cut(tensors: Iterable[FileTensor], max_bytes: int) -> list[list[FileTensor]]:
    """Tensors a file, in their order: a file is closed when the next tensor would not fit. At least one file."""
    groups: list[list[FileTensor]] = [[]]
    used = 0
    for tensor in tensors:
        if groups[-1] and used + tensor.nbytes > max_bytes:
            groups.append([])
            used = 0
        groups[-1].append(tensor)
        used += tensor.nbytes
    return groups


def shard_name(number: int, count: int) -> str:
    """The usual name of a file of a set; `number` counts from 0."""
    return "model.safetensors" if count == 1 else f"model-{number + 1:05d}-of-{count:05d}.safetensors"


def rank_file_name(rank: int, number: int, count: int) -> str:
    """As torch's HuggingFaceStorageWriter calls the files of a rank; `rank` and `number` count from 0."""
    return f"shard-{rank + 1:05d}-model-{number + 1:05d}-of-{count:05d}.safetensors"


def objects_name(rank: int) -> str:
    """The file of a rank for what is no tensor of a SafeTensors file. No glob of *.safetensors finds it."""
    return f"objects-{rank + 1:05d}.weightstore"


def rank_files(
    rank: int, chunks: Sequence[tuple[FileTensor, Sequence[int]]], checksums: bool
) -> tuple[list[PlannedFile], list[tuple[int, int]]]:
    """The files of one rank, and for each chunk its file and its place there. A chunk is a tensor, and the indices at which it
    begins in the whole tensor. One file has no two chunks of a name, so usually there is one file."""
    seen: dict[str, int] = {}
    numbers = []
    for tensor, _ in chunks:
        numbers.append(seen.get(tensor.name, 0))
        seen[tensor.name] = numbers[-1] + 1
    count = max(numbers, default=-1) + 1
    files = []
    for number in range(count):
        members = [chunk for chunk, its in zip(chunks, numbers, strict=True) if its == number]
        info = {tensor.name: {OFFSETS_KEY: list(begin)} for tensor, begin in members}
        metadata = {**_DCP_FORMAT, SHARDING_KEY: json.dumps(info)}
        name = rank_file_name(rank, number, count)
        files.append(PlannedFile(name, [tensor for tensor, _ in members], metadata, checksums))
    left = [iter(file.begins) for file in files]
    return files, [(number, next(left[number])) for number in numbers]


def check_coverage(name: str, shape: Sequence[int], elements: int) -> None:
    """Raises unless the chunks of a tensor have all its elements. They do not overlap: torch's planner checks that."""
    expected = 1
    for size in shape:
        expected *= size
    if elements != expected:
        raise errors.make(
            "invalid_argument",
            f"the ranks have {elements} of its {expected} elements, so it cannot be saved whole; let all ranks of its "
            'device mesh save, or use layout="per-rank"',
            tensor=name,
        )

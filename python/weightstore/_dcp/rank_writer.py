"""What a rank does in a save: writes its items into the staging directory, and syncs them. Imports torch."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from .. import _core, errors
from .._chunks.layout import PlannedFile, objects_name, rank_files
from .._files.progress import Progress
from .exchange import Range, joined
from .items import box, chunk_of, dtype_of, file_tensor, is_in_safetensors, nbytes_of, pieces, values_of
from .planning import ItemPlace, RankPlan, Written

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class WriteOptions:
    durable: bool
    checksums: bool
    threads: int
    timeout: float
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the values of an item go: the tensor in the file, its shape, and where the item begins in it."""

    file: int
    begin: int
    shape: tuple[int, ...]
    first: tuple[int, ...]
    shared: Range | None = None


class RankWriter:
    """Writes the items of one rank for one save. `memory`: the descriptor that the rank gave for an exchange."""

    def __init__(self, storage: RankPlan, planner: SavePlanner, options: WriteOptions, memory: int) -> None:
        self._storage = storage
        self._planner = planner
        self._options = options
        self._memory = memory
        self._exchange: _core.BoxExchange | None = None

    def write(self, plan: SavePlan) -> list[WriteResult]:
        storage = self._storage
        with joined(storage.exchange, storage.rank, self._memory, self._options.timeout) as self._exchange:
            self._wait_for([storage.staging, *map(self._path, storage.files)])
            tensors: list[tuple[WriteItem, ItemPlace | None]] = []
            others: list[WriteItem] = []
            for number, item in enumerate(plan.items):
                if item.type != WriteItemType.BYTE_IO and is_in_safetensors(dtype_of(item)):
                    tensors.append((item, None if storage.places is None else storage.places[number]))
                else:
                    others.append(item)
            results = self._write_objects(others)
            if storage.places is None:
                return results + self._write_own_files([item for item, _ in tensors])
            return results + self._write_shared_files([(item, place) for item, place in tensors if place is not None])

    def _path(self, name: str) -> str:
        return os.path.join(self._storage.staging, name)

    def _wait_for(self, paths: Iterable[str]) -> None:
        """Other hosts may see a new file late."""
        deadline = time.monotonic() + self._options.timeout
        for path in paths:
            while not os.path.exists(path):
                if time.monotonic() >= deadline:
                    text = (
                        f"rank 0 made this for the save, and it was not visible here within {self._options.timeout:g} seconds; "
                        "all ranks need one file system, on which each sees what the others write"
                    )
                    raise errors.make("io", text, path=path)
                time.sleep(_POLL_SECONDS)

    def _write_objects(self, items: Sequence[WriteItem]) -> list[WriteResult]:
        """What is no tensor, and tensors of types that SafeTensors does not have: as bytes, in a file of their own."""
        if not items:
            return []
        writer = _core.Writer()
        kept = []
        for number, item in enumerate(items):
            value = self._planner.resolve_data(item)
            if isinstance(value, io.BytesIO):
                data: Any = value.getbuffer()
            else:
                values = values_of(item, value).cpu().resolve_conj().resolve_neg().contiguous()
                data = values.reshape(-1).view(torch.uint8).numpy()
            # Two chunks of a tensor have one name.
            key = f"{number}:{item.index.fqn}"
            kept.append((item, key, data.nbytes))
            writer.add(key, "U8", (data.nbytes,), _core.Producer.buffer(data))
        name = objects_name(self._storage.rank)
        options = self._options
        writer.write_file(self._path(name), "safetensors", durable=options.durable, checksums=options.checksums)
        size = os.stat(self._path(name)).st_size
        return [WriteResult(item.index, nbytes, Written(name, key, size)) for item, key, nbytes in kept]

    def _write_own_files(self, items: Sequence[WriteItem]) -> list[WriteResult]:
        chunks = []
        for item in items:
            _, begin, size = chunk_of(item)
            chunks.append((file_tensor(item.index.fqn, dtype_of(item), size), begin))
        files, places = rank_files(self._storage.rank, chunks, self._options.checksums)
        for file in files:
            _core.create_file(self._path(file.name), file.size)
        targets = []
        for item, (number, at) in zip(items, places, strict=True):
            shape = chunk_of(item)[2]
            targets.append(_Target(number, at, shape, (0,) * len(shape)))
        remainders = self._write_boxes([file.name for file in files], items, targets)
        by_file: list[dict[str, int]] = [{} for _ in files]
        results = []
        for item, (number, _), remainder in zip(items, places, remainders, strict=True):
            by_file[number][item.index.fqn] = remainder
            written = Written(files[number].name, item.index.fqn, files[number].size)
            results.append(WriteResult(item.index, nbytes_of(item), written))
        for file, known in zip(files, by_file, strict=True):
            write_header(self._path(file.name), file, known)
        self._sync([file.name for file in files])
        return results

    def _write_shared_files(self, items: Sequence[tuple[WriteItem, ItemPlace]]) -> list[WriteResult]:
        files = self._storage.files
        targets = [_Target(place.file, place.begin, *chunk_of(item)[:2], place.shared) for item, place in items]
        remainders = self._write_boxes(files, [item for item, _ in items], targets)
        if self._storage.syncs:
            self._sync(files)
        return [
            WriteResult(item.index, nbytes_of(item), Written(files[place.file], item.index.fqn, 0, remainder))
            for (item, place), remainder in zip(items, remainders, strict=True)
        ]

    def _write_boxes(self, files: Sequence[str], items: Sequence[WriteItem], targets: Sequence[_Target]) -> list[int]:
        """Writes each item, and returns the remainder of each: first what this rank writes alone, then what it writes with others,
        in the order of the blocks. What is on the CPU is written at once, by all threads."""
        paths = [self._path(name) for name in files]
        remainders = [0] * len(items)
        waiting: list[tuple[int, tuple[Any, ...]]] = []
        values = []  # keeps the memory alive

        def write() -> None:
            written = self._write([each for _, each in waiting], paths)
            for (number, _), remainder in zip(waiting, written, strict=True):
                remainders[number] ^= remainder
            waiting.clear()

        def first_block(number: int) -> int:
            shared = targets[number].shared
            return -1 if shared is None else shared[0]

        for number in sorted(range(len(items)), key=first_block):
            item, target = items[number], targets[number]
            tensor = values_of(item, self._planner.resolve_data(item))
            on_cpu = tensor.device.type == "cpu"
            if not on_cpu:
                write()
            for row, piece in pieces(tensor):
                first = (target.first[0] + row, *target.first[1:]) if target.first else target.first
                each = box(item.index.fqn, target.file, target.begin, target.shape, first, piece, target.shared)
                waiting.append((number, each))
                values.append(piece)
                if not on_cpu:
                    write()
                    values.clear()
        write()
        return remainders

    def _write(self, boxes: Sequence[tuple[Any, ...]], paths: Sequence[str]) -> list[int]:
        if not boxes:
            return []
        options = self._options
        remainders = _core.write_boxes(
            paths,
            boxes,
            direct=options.durable,
            checksums=options.checksums,
            threads=options.threads,
            exchange=self._exchange,
            progress=options.progress,
        )
        return remainders if options.checksums else [0] * len(boxes)

    def _sync(self, files: Iterable[str]) -> None:
        if self._options.durable:
            _core.sync_files([self._path(name) for name in files])


def write_header(path: str, file: PlannedFile, remainders: Mapping[str, int]) -> None:
    """Replaces the first bytes of a file, for which there is room. The caller syncs it."""
    with open(path, "r+b") as opened:
        opened.write(file.header(remainders))

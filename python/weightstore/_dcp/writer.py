"""Writes checkpoints for torch.distributed.checkpoint. Imports torch."""

from __future__ import annotations

import dataclasses
import io
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter as TorchStorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import _core, errors
from .._chunks import index as index_file
from .._chunks.layout import INDEX_NAME, PlannedFile, WholeLayout, check_coverage, objects_name, rank_files
from .._files.paths import check_local
from .._files.progress import Progress, check_progress
from .._files.sizes import DEFAULT_SHARD_SIZE, Size, parse_size
from . import directory, sharing
from .items import box, chunk_of, file_tensor, is_in_safetensors, pieces, stored_dtype, values_of
from .staging import Stager

Layout = Literal["per-rank", "whole"]
_LAYOUTS = ("per-rank", "whole")
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RankPlan:
    """What the coordinator tells a rank."""

    staging: str
    rank: int
    #: layout "whole": the files that the rank writes into, and for each item of its plan the number of its file there and the
    #: place of its tensor; None for what goes to the file of objects
    files: tuple[str, ...] = ()
    places: tuple[tuple[int, int] | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What a rank tells the coordinator about an item."""

    file: str
    key: str
    file_size: int
    remainder: int | None = None  # of the whole tensor, with zeros where the item has nothing


class StorageWriter(Stager, TorchStorageWriter):
    """For `torch.distributed.checkpoint`: `save` and `async_save` write SafeTensors files, which appear all at once.

    path: the directory of the checkpoint. `checkpoint_id=` of `save` and `async_save` takes its place, so that one writer serves
        many saves; this keeps the memory of `async_save`.
    layout: "per-rank": each rank writes files of its own. "whole": the ranks write whole tensors into files that they share,
        the final files of a Hugging Face model; where ranks cannot write a file together, a warning says so and the layout is
        "per-rank". Both are read by `StorageReader`, and "per-rank" by torch's `HuggingFaceStorageReader`, too.
    max_shard_size: layout "whole": a file is closed when the next tensor would make it larger.
    files: small files that appear together with the checkpoint, such as {"config.json": text}. Only rank 0 uses them.
    durable: the checkpoint survives a power failure.
    checksums: write a crc32c of every tensor, for `verify`.
    overwrite: also replace a model in the directory that another program wrote. A checkpoint of this class is replaced always.
        All other files in the directory stay.
    threads: that write, on each rank; 0: one for each processor, 2 to 8.
    timeout: seconds that a rank waits until it sees the files of rank 0.
    progress: called on each rank as progress(done, total, name) in bytes; returning False or raising cancels the save.

    A save that fails leaves the previous checkpoint in place. docs/distributed.md has the rules.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        layout: Layout = "per-rank",
        max_shard_size: Size = DEFAULT_SHARD_SIZE,
        files: Mapping[str, bytes | str] | None = None,
        durable: bool = True,
        checksums: bool = True,
        overwrite: bool = False,
        threads: int = 0,
        timeout: float = 300.0,
        progress: Progress | None = None,
    ) -> None:
        super().__init__()
        if layout not in _LAYOUTS:
            raise errors.make("invalid_argument", f"layout must be one of {', '.join(_LAYOUTS)}, not {layout!r}")
        check_progress(progress)
        self._path: str | None = None
        self._layout = layout
        self._max_bytes = parse_size(max_shard_size, "max_shard_size")
        self._files = directory.check_files(files)
        self._durable = durable
        self._checksums = checksums
        self._overwrite = overwrite
        self._threads = threads
        self._timeout = timeout
        self._progress = progress
        self._staging: directory.Staging | None = None
        self._whole: WholeLayout | None = None
        self._is_coordinator = False
        self.reset(path)

    def __repr__(self) -> str:
        return f"<StorageWriter {self._path!r}, layout {self._layout!r}>"

    @property
    def checkpoint_id(self) -> str | None:
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            check_local(os.fspath(checkpoint_id), "checkpoint")
        except (TypeError, errors.StoreError):
            return False
        return True

    # ---- called by torch, in this order ------------------------------------------------------------------------------

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._path = directory.resolved(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._path is None:
            raise errors.make("invalid_argument", "no directory: pass path= to the StorageWriter, or checkpoint_id=")
        if not kwargs.get("use_collectives", True):
            text = "use_collectives=False is not supported: rank 0 must learn what the others wrote"
            raise errors.make("invalid_argument", text, path=self._path)
        self._is_coordinator = is_coordinator

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self._path)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        assert self._path is not None
        return dataclasses.replace(plan, storage_data=sharing.Place.of(os.path.dirname(self._path)))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator: makes the staging directory and, for layout "whole", the files in it."""
        assert self._path is not None
        if not all(plan.usable for plan in plans):
            text = "a planner with enable_plan_caching=True is not supported; leave it out"
            raise errors.make("invalid_argument", text, path=self._path)
        whole = self._layout == "whole" and self._can_share(plans)
        self._staging = directory.begin(self._path, overwrite=self._overwrite, durable=self._durable)
        try:
            self._whole = self._plan_whole(plans) if whole else None
            if self._whole is None:
                rank_plans = [RankPlan(self._staging.path, rank) for rank in range(len(plans))]
            else:
                for file in self._whole.files:
                    _core.create_file(self._staging.path_of(file.name), file.size)
                rank_plans = [self._rank_plan(rank, plan.items, self._whole) for rank, plan in enumerate(plans)]
        except BaseException:
            self._staging.abandon()
            raise
        return [
            dataclasses.replace(plan, storage_data=storage) for plan, storage in zip(plans, rank_plans, strict=True)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """On each rank: writes its items into the staging directory, and syncs them."""
        storage: RankPlan = plan.storage_data
        self._wait_for([storage.staging, *(os.path.join(storage.staging, name) for name in storage.files)])
        tensors: list[tuple[int, WriteItem]] = []
        others: list[WriteItem] = []
        for number, item in enumerate(plan.items):
            is_tensor = item.type != WriteItemType.BYTE_IO and is_in_safetensors(_dtype(item))
            if is_tensor:
                tensors.append((number, item))
            else:
                others.append(item)
        results = self._write_objects(storage, others, planner)
        if storage.places is None:
            results += self._write_rank_files(storage, [item for _, item in tensors], planner)
        else:
            results += self._write_shared_files(storage, tensors, planner)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator, when all ranks have written: headers, indexes and the commit."""
        staging = self._staging
        assert staging is not None
        try:
            written = [result for of_rank in results for result in of_rank]
            index = self._index(staging.save, metadata, written)
            if self._whole is not None:
                self._finish_whole(staging, self._whole, index, written)
            for name, data in self._files.items():
                staging.write(name, data)
            staging.write(index_file.NAME, index.encode().encode())
            staging.commit()
        except BaseException:
            staging.abandon()
            raise
        finally:
            self._staging = self._whole = None
        metadata.storage_meta = self.storage_meta()

    # ---- planning ----------------------------------------------------------------------------------------------------

    def _can_share(self, plans: Sequence[SavePlan]) -> bool:
        why = sharing.why_not_together([plan.storage_data for plan in plans])
        if why is None:
            return True
        warnings.warn(
            f"{self._path}: {why}; so each rank writes files of its own (layout 'per-rank'), and `weightstore convert` makes "
            "whole tensors of them",
            stacklevel=2,
        )
        return False

    def _plan_whole(self, plans: Sequence[SavePlan]) -> WholeLayout:
        tensors: dict[str, Any] = {}
        elements: dict[str, int] = {}
        for plan in plans:
            for item in plan.items:
                if item.type == WriteItemType.BYTE_IO:
                    continue
                data = item.tensor_data
                assert data is not None
                name = item.index.fqn
                if name not in tensors:
                    tensors[name] = data
                    elements[name] = 0
                elements[name] += data.chunk.sizes.numel()
        planned = []
        for name, data in tensors.items():
            check_coverage(name, data.size, elements[name])
            dtype = stored_dtype(data.properties.dtype, name)
            if is_in_safetensors(dtype):
                planned.append(file_tensor(name, dtype, tuple(data.size)))
        return WholeLayout(planned, self._max_bytes, self._checksums)

    def _rank_plan(self, rank: int, items: Iterable[WriteItem], whole: WholeLayout) -> RankPlan:
        assert self._staging is not None
        numbers: dict[int, int] = {}  # of a file: its number for the rank
        places: list[tuple[int, int] | None] = []
        for item in items:
            place = None if item.type == WriteItemType.BYTE_IO else whole.places.get(item.index.fqn)
            if place is None:
                places.append(None)
            else:
                places.append((numbers.setdefault(place[0], len(numbers)), place[1]))
        files = tuple(whole.files[number].name for number in numbers)
        return RankPlan(self._staging.path, rank, files, tuple(places))

    # ---- writing -----------------------------------------------------------------------------------------------------

    def _wait_for(self, paths: Iterable[str]) -> None:
        """Other hosts may see a new file late."""
        deadline = time.monotonic() + self._timeout
        for path in paths:
            while not os.path.exists(path):
                if time.monotonic() >= deadline:
                    text = (
                        f"rank 0 made this for the save, and it was not visible here within {self._timeout:g} seconds; all "
                        "ranks need one file system, on which each sees what the others write"
                    )
                    raise errors.make("io", text, path=path)
                time.sleep(_POLL_SECONDS)

    def _write_objects(self, storage: RankPlan, items: Sequence[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        """What is no tensor, and tensors of types that SafeTensors does not have: as bytes, in a file of their own."""
        if not items:
            return []
        writer = _core.Writer()
        kept = []
        for number, item in enumerate(items):
            value = planner.resolve_data(item)
            if isinstance(value, io.BytesIO):
                data: Any = value.getbuffer()
            else:
                values = values_of(item, value).cpu().resolve_conj().resolve_neg().contiguous()
                data = values.reshape(-1).view(torch.uint8).numpy()
            # Two chunks of a tensor have one name.
            key = f"{number}:{item.index.fqn}"
            kept.append((item, key, data.nbytes))
            writer.add(key, "U8", (data.nbytes,), _core.Producer.buffer(data))
        name = objects_name(storage.rank)
        path = os.path.join(storage.staging, name)
        writer.write_file(path, "safetensors", durable=self._durable, checksums=self._checksums)
        size = os.stat(path).st_size
        return [WriteResult(item.index, nbytes, Written(name, key, size)) for item, key, nbytes in kept]

    def _write_rank_files(
        self, storage: RankPlan, items: Sequence[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        chunks = []
        for item in items:
            _, begin, size = chunk_of(item)
            chunks.append((file_tensor(item.index.fqn, _dtype(item), size), begin))
        files, places = rank_files(storage.rank, chunks, self._checksums)
        paths = [os.path.join(storage.staging, file.name) for file in files]
        for path, file in zip(paths, files, strict=True):
            _core.create_file(path, file.size)
        boxes = [(chunk_of(item)[2], (0,) * len(chunk_of(item)[2])) for item in items]
        remainders = self._write_boxes(paths, items, places, boxes, planner)
        by_file: list[dict[str, int]] = [{} for _ in files]
        results = []
        for item, (number, _), remainder in zip(items, places, remainders, strict=True):
            by_file[number][item.index.fqn] = remainder
            written = Written(files[number].name, item.index.fqn, files[number].size)
            results.append(WriteResult(item.index, _nbytes(item), written))
        for path, file, known in zip(paths, files, by_file, strict=True):
            self._write_header(path, file, known)
        return results

    def _write_shared_files(
        self, storage: RankPlan, items: Sequence[tuple[int, WriteItem]], planner: SavePlanner
    ) -> list[WriteResult]:
        assert storage.places is not None
        paths = [os.path.join(storage.staging, name) for name in storage.files]
        places = [place for number, _ in items if (place := storage.places[number]) is not None]
        boxes = [chunk_of(item)[:2] for _, item in items]
        remainders = self._write_boxes(paths, [item for _, item in items], places, boxes, planner)
        return [
            WriteResult(item.index, _nbytes(item), Written(storage.files[file], item.index.fqn, 0, remainder))
            for (_, item), (file, _), remainder in zip(items, places, remainders, strict=True)
        ]

    def _write_boxes(
        self,
        paths: Sequence[str],
        items: Sequence[WriteItem],
        places: Sequence[tuple[int, int]],
        boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
        planner: SavePlanner,
    ) -> list[int]:
        """Writes each item into its tensor: its file and where the tensor begins there, the shape of the tensor, and where the
        item begins in it. Returns the remainder of each item. What is on the CPU is written at once, by all threads."""
        remainders = [0] * len(items)
        here: list[tuple[Any, ...]] = []
        numbers: list[int] = []
        values = []  # keeps the memory alive
        for number, (item, (file, begin), (shape, first)) in enumerate(zip(items, places, boxes, strict=True)):
            tensor = values_of(item, planner.resolve_data(item))
            name = item.index.fqn
            if tensor.device.type == "cpu":
                values.append(tensor)
                here.append(box(name, file, begin, shape, first, tensor))
                numbers.append(number)
                continue
            for row, piece in pieces(tensor):
                moved = (first[0] + row, *first[1:]) if first else first
                (remainder,) = self._write([box(name, file, begin, shape, moved, piece)], paths)
                remainders[number] ^= remainder
        for number, remainder in zip(numbers, self._write(here, paths), strict=True):
            remainders[number] = remainder
        return remainders

    def _write(self, boxes: Sequence[tuple[Any, ...]], paths: Sequence[str]) -> list[int]:
        remainders = _core.write_boxes(
            paths,
            boxes,
            durable=self._durable,
            checksums=self._checksums,
            threads=self._threads,
            progress=self._progress,
        )
        return remainders if self._checksums else [0] * len(boxes)

    def _write_header(self, path: str, file: PlannedFile, remainders: Mapping[str, int]) -> None:
        with open(path, "r+b") as opened:
            opened.write(file.header(remainders))
            opened.flush()
            if self._durable:
                os.fsync(opened.fileno())

    # ---- finishing ---------------------------------------------------------------------------------------------------

    def _index(self, save: str, metadata: Metadata, written: Sequence[WriteResult]) -> index_file.Index:
        index = index_file.Index(
            "per-rank" if self._whole is None else "whole", save, paths=_paths(metadata, self._path)
        )
        places = {(result.index.fqn, _offset(result)): result.storage_data for result in written}
        if self._whole is not None:
            index.files = {file.name: file.size for file in self._whole.files if file.tensors}
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
            if self._whole is not None and name in self._whole.places:
                file = self._whole.files[self._whole.places[name][0]].name
                tensor.chunks.append(index_file.Chunk((0,) * len(shape), shape, file, name))
                continue
            for chunk in stored.chunks:
                place = places[name, tuple(chunk.offsets)]
                tensor.chunks.append(index_file.Chunk(tuple(chunk.offsets), tuple(chunk.sizes), place.file, place.key))
        return index

    def _finish_whole(
        self, staging: directory.Staging, whole: WholeLayout, index: index_file.Index, written: Sequence[WriteResult]
    ) -> None:
        remainders: dict[str, int] = {}
        for result in written:
            remainder = result.storage_data.remainder
            if remainder is not None:
                name = result.index.fqn
                remainders[name] = remainders.get(name, 0) ^ remainder
        for file in whole.files:
            if file.tensors:
                staging.patch(file.name, file.header(remainders))
            else:
                os.unlink(staging.path_of(file.name))
        text = whole.index()
        if text is not None:
            staging.write(INDEX_NAME, text.encode())


def _dtype(item: WriteItem) -> str:
    data = item.tensor_data
    assert data is not None
    return stored_dtype(data.properties.dtype, item.index.fqn)


def _nbytes(item: WriteItem) -> int:
    data = item.tensor_data
    assert data is not None
    return data.chunk.sizes.numel() * data.properties.dtype.itemsize


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

"""Reads checkpoints for torch.distributed.checkpoint. Imports torch."""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader as TorchStorageReader
from torch.futures import Future

from .. import _core, errors
from .._chunks import sources
from .._files.paths import check_local
from .._files.progress import Progress, check_progress
from .._files.source import Verify, check_verify
from .._tensors import dtypes, frameworks
from .._tensors.torch_memory import require_memory
from . import directory

# Tensors that cannot be read in place are read through memory of about this size.
_THROUGH_BYTES = 32 << 20


class StorageReader(TorchStorageReader):
    """For `torch.distributed.checkpoint`: `load` reads what `StorageWriter` wrote in either layout, the checkpoints of torch's
    `FileSystemWriter` and `HuggingFaceStorageWriter`, and any Hugging Face model, into tensors of any placement. Each rank reads
    the bytes that it needs, each once.

    path: the directory; `checkpoint_id=` of `load` takes its place.
    verify: compare the checksums of tensors that are read: "off", "lazy" or "full"; docs/conventions.md says how they differ.
    threads: that read, on each rank; 0: one for each processor, 2 to 8.
    unsafe_objects: values that are no tensors are pickles, which torch's planner runs. By default only plain data is passed to
        it (what `torch.load(weights_only=True)` takes); True passes everything. Use True only for files that you trust.
    progress: called on each rank as progress(done, total, name) in bytes; returning False or raising cancels.

    The file `.metadata` of torch and the tensors in its files are pickles, too. They are read as data: nothing in them is run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        verify: Verify = "off",
        threads: int = 0,
        unsafe_objects: bool = False,
        progress: Progress | None = None,
    ) -> None:
        super().__init__()
        check_progress(progress)
        self._path: str | None = None
        self._verify = check_verify(verify)
        self._threads = threads
        self._unsafe_objects = unsafe_objects
        self._progress = progress
        self._checkpoint: sources.Checkpoint | None = None
        self._readers = sources.Readers(self._verify)
        self.reset(path)

    def __repr__(self) -> str:
        return f"<StorageReader {self._path!r}>"

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
        self._checkpoint = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self._path is None:
            raise errors.make("invalid_argument", "no directory: pass path= to the StorageReader, or checkpoint_id=")
        checkpoint = sources.read(self._path, kwargs.get("rank"))
        described: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
        for name, tensor in checkpoint.tensors.items():
            chunks = [ChunkStorageMetadata(torch.Size(each.begin), torch.Size(each.size)) for each in tensor.chunks]
            properties = TensorProperties(dtype=dtypes.torch_dtype(tensor.dtype))
            described[name] = TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)
        for name in checkpoint.objects:
            described[name] = BytesStorageMetadata()
        records = {MetadataIndex(name, begin): record for (name, begin), record in checkpoint.records.items()}
        self._checkpoint = checkpoint
        return Metadata(described, checkpoint.paths, records, StorageMeta(checkpoint_id=self._path))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._checkpoint is None:
            raise errors.make("invalid_argument", "read_metadata() comes first", path=self._path)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        tensors = []
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self._object(item))
            else:
                tensors.append(item)
        try:
            self._readers.open_records(self._record(item.storage_index) for item in tensors)
            self._read_tensors(tensors, planner)
        finally:
            self._readers = sources.Readers(self._verify)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _record(self, index: MetadataIndex) -> sources.Record:
        assert self._checkpoint is not None
        begin = None if index.offset is None else tuple(index.offset)
        record = self._checkpoint.records.get((index.fqn, begin))
        if record is None:
            at = "" if begin is None else f" at {list(begin)}"
            raise errors.make("not_found", f"the checkpoint has no chunk{at}", path=self._path, tensor=index.fqn)
        return record

    def _read_tensors(self, items: Sequence[ReadItem], planner: LoadPlanner) -> None:
        """Reads into the targets where they are. What cannot be read in place goes through memory, some at a time."""
        in_place: list[tuple[Any, ...]] = []
        done: list[tuple[ReadItem, torch.Tensor, torch.Tensor]] = []
        through: list[tuple[tuple[Any, ...], ReadItem, torch.Tensor, torch.Tensor]] = []
        waiting = 0
        for item in items:
            target = planner.resolve_tensor(item)
            values = target.detach()
            dtype, box = self._box(item, values)
            if _can_fill(values, dtype):
                in_place.append(_with_memory(box, values))
                done.append((item, target, values))
                continue
            copy = torch.empty(values.shape, dtype=dtypes.torch_dtype(dtype), device="cpu")
            through.append((_with_memory(box, copy), item, target, copy))
            waiting += copy.nbytes
            if waiting >= _THROUGH_BYTES:
                self._read_through(through, planner)
                through, waiting = [], 0
        self._read_through(through, planner)
        _core.read_boxes(in_place, threads=self._threads, progress=self._progress)
        for item, target, values in done:
            frameworks.note_written(values)
            planner.commit_tensor(item, target)

    def _read_through(
        self, boxes: Sequence[tuple[tuple[Any, ...], ReadItem, torch.Tensor, torch.Tensor]], planner: LoadPlanner
    ) -> None:
        _core.read_boxes([box for box, _, _, _ in boxes], threads=self._threads)
        for _, item, target, copy in boxes:
            with torch.no_grad():
                target.detach().copy_(copy)
            planner.commit_tensor(item, target)

    def _box(self, item: ReadItem, values: torch.Tensor) -> tuple[str, tuple[Any, ...]]:
        """The type of a chunk, and the box of it that an item wants."""
        name = item.storage_index.fqn
        record = self._record(item.storage_index)
        require_memory(values, name)
        if tuple(values.shape) != tuple(item.lengths):
            text = f"the plan reads {list(item.lengths)} into a tensor of the shape {list(values.shape)}"
            raise errors.make("invalid_argument", text, tensor=name)
        reader, number = self._readers.find(record)
        assert self._checkpoint is not None
        tensor = self._checkpoint.tensors[name]
        sources.check_chunk(name, tensor, record, reader, number)
        item_bytes = dtypes.torch_dtype(tensor.dtype).itemsize
        box = (reader, number, item_bytes, record.size, tuple(item.storage_offsets), tuple(item.lengths))
        return tensor.dtype, box

    def _object(self, item: ReadItem) -> io.BytesIO:
        record = self._record(item.storage_index)
        if record.key is None:
            data = _core.read_record(record.path, record.offset, record.length)
        else:
            reader, number = self._readers.find(record)
            data = reader.read_bytes(number)
        if not self._unsafe_objects:
            self._check_object(item.storage_index.fqn, record.path, data)
        return io.BytesIO(data)

    @staticmethod
    def _check_object(name: str, path: str, data: bytes) -> None:
        try:
            torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except (
            pickle.UnpicklingError,
            RuntimeError,
            ValueError,
            LookupError,
            EOFError,
            OSError,
            AttributeError,
        ) as error:
            named = re.search(r"GLOBAL (\S+)", str(error))
            names = f" It names {named.group(1)}." if named else ""
            text = (
                f"it is a pickle of more than plain data, and torch would run it.{names} If you trust the file, use "
                "StorageReader(..., unsafe_objects=True)"
            )
            raise errors.make("unsupported", text, path=path, tensor=name) from None


def _can_fill(values: torch.Tensor, dtype: str) -> bool:
    """Whether bytes of a file can go straight into a tensor."""
    return (
        values.device.type == "cpu"
        and values.dtype == dtypes.torch_dtype(dtype)
        and not values.is_conj()
        and not values.is_neg()
    )


def _with_memory(box: tuple[Any, ...], values: torch.Tensor) -> tuple[Any, ...]:
    item_bytes = values.element_size()
    return (*box, values.data_ptr(), tuple(stride * item_bytes for stride in values.stride()))
